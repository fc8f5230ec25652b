package relay

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/quern-project/quern/host/postgres"
)

// Raquel names a table of Raquel, the job queue for Python, whose rows become tasks. An attempt of a row is a task, and
// its end is written into the row as a worker of Raquel would. Workers of Raquel may share the table.
//
//	        claim                    enqueue, once          hosts
//	queued ──────▶ claimed by Quern ──────────────▶ task ─────────▶ ended
//	failed            │    ▲                                          │
//	                  └────┘ renew, so that workers leave it alone    │ report
//	success, failed, exhausted, queued, … ◀───────────────────────────┘
type Raquel struct {
	Table  string   `yaml:"table"`  // with its schema, unless the role's search path has it
	Queues []string `yaml:"queues"` // the queues to claim from (default: all that hosts serve)
}

const (
	// A claim is renewed after raquelRenew. Others may claim a row whose claim is older than raquelReclaim: this is the
	// default of Raquel's workers.
	raquelRenew   = 15 * time.Second
	raquelReclaim = time.Minute
	raquelOwner   = "quern:" // and the tenant: claimed_by
)

// raquelTable is a table of Raquel as a source. check sets what is not exported.
type raquelTable struct {
	Raquel
	tableName
	report               string // the name of its reports
	errorType, traceType string // of the columns error and error_trace, in SQL
}

func (r *raquelTable) name() string {
	return "raquel:" + strings.TrimPrefix(cmp.Or(r.quoted, r.Table), "public.")
}

func (r *raquelTable) check(ctx context.Context, db *postgres.Conn) (err error) {
	if err := r.find(ctx, db); err != nil {
		return err
	}
	r.report, err = reportName(ctx, db, "raquel", r.quoted)
	return err
}

func (r *raquelTable) relay(ctx context.Context, t *term) error {
	db, err := t.relay.connect(ctx, ", raquel")
	if err != nil {
		return err
	}
	defer db.Close()
	l := newClaims(t, r.report, raquelRenew, r.Queues)
	rows := newRaquelRows(r, db, l)
	l.rows = rows
	t.setNotified(true) // it looks by itself, so that nothing is needed in a table of others
	if _, err := rows.adopt(ctx); err != nil {
		return err
	}
	return l.run(ctx, nil)
}
