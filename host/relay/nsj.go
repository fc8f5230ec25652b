package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

// Nsj names a queue table of nsj-queue-lib, whose rows become tasks. A row is one attempt and becomes one task, and its
// end is written as a worker of nsj-queue-lib would. Such workers may share the table.
//
//	          lock, claim                enqueue, once          hosts
//	pendente ────────────▶ processando ──────────────▶ task ─────────▶ ended
//	  ▲  ▲                                                               │ report
//	  │  └─ agendada ◀─ a retry ─┬─ falha, sucesso ◀─── write, unlock ───┘
//	  └─────────────── a dead row┘
type Nsj struct {
	Table string `yaml:"table"` // with its schema, unless the role's search path has it
	// Subscribers is the table of subscribers (default: Table with _subscriber behind it, if there is one).
	Subscribers string `yaml:"subscribers"`
	// MaxRetry is how many attempts a task has, as QUEUE_MAX_RETRY says to workers (default 100).
	MaxRetry int `yaml:"max_retry"`
	// RetryInterval is the delay of the first retry, as QUEUE_BASE_INTERVAL_RETRY (default 5m). The delay of the nth
	// retry is n times as long.
	RetryInterval time.Duration `yaml:"retry_interval"`
	// Queues maps what a row names, its subscriber or else its process, to the queue for its tasks. "*" stands for all
	// others (default: the queue has the same name). A row that names nothing counts as naming the table.
	Queues map[string]string `yaml:"queues"`
}

const (
	// deadSuffix follows the name of the queue for rows that have used up their attempts.
	deadSuffix = ".dead"
	anyName    = "*"
)

// nsjTable is a queue table of nsj-queue-lib as a source. check sets what is not exported.
type nsjTable struct {
	Nsj
	tableName          // the channel of notifications has the bare name too
	subscribers string // the quoted name of the table of subscribers; "" for none
	sequence    string // of the table's numbers, in SQL; "" for none
	report      string // the name of its reports
	message     int    // how many characters the column mensagem takes
}

func newNsjTable(n Nsj) *nsjTable {
	n.MaxRetry, n.RetryInterval = cmp.Or(n.MaxRetry, 100), cmp.Or(n.RetryInterval, 5*time.Minute)
	return &nsjTable{Nsj: n}
}

// validate returns an error that names the field that is wrong.
func (n *Nsj) validate() error {
	const mostRetries, longest = 1_000_000, 365 * 24 * time.Hour
	switch {
	case n.MaxRetry < 0 || n.MaxRetry > mostRetries:
		return fmt.Errorf("%w: max_retry %d: use 1 to %d, as QUEUE_MAX_RETRY of the workers", queue.ErrInvalid, n.MaxRetry, mostRetries)
	case n.RetryInterval < 0 || n.RetryInterval > longest:
		return fmt.Errorf("%w: retry_interval %s: use 1s to 8760h, such as 5m for 5 in QUEUE_BASE_INTERVAL_RETRY", queue.ErrInvalid, n.RetryInterval)
	}
	for name, to := range n.Queues {
		if err := queue.ValidTarget(to + deadSuffix); err != nil {
			return fmt.Errorf("queues: %q: %w", name, err)
		}
	}
	return nil
}

func (n *nsjTable) name() string {
	return "nsj:" + strings.TrimPrefix(cmp.Or(n.quoted, n.Table), "public.")
}

// queueOf returns the queue for rows that name this subscriber or process.
func (n *nsjTable) queueOf(name string, dead bool) string {
	to, ok := n.Queues[name]
	if !ok {
		to = cmp.Or(n.Queues[anyName], name)
	}
	if dead {
		to += deadSuffix
	}
	return to
}

func (n *nsjTable) relay(ctx context.Context, t *term) error {
	lock, err := t.relay.config.Direct.Connect(ctx, "quern relay, locks")
	if err != nil {
		return err
	}
	defer lock.Close() // gives the locks back
	asking, cancel := context.WithTimeout(ctx, answerTimeout)
	own, err := lock.OwnSession(asking)
	cancel()
	if err != nil {
		return err
	}
	if !own {
		return fmt.Errorf("%s is a pooler, and locks need a session of their own: give the URL without the pooler as direct",
			t.relay.config.Direct)
	}
	db, err := t.relay.connect(ctx, ", nsj")
	if err != nil {
		return err
	}
	defer db.Close()
	const session = "; SET default_transaction_isolation = 'read committed'"
	if err := errors.Join(lock.Script(ctx, keepAlive+session), db.Script(ctx, keepAlive+session)); err != nil {
		return err
	}
	l := newClaims(t, n.report, auditInterval, nil)
	rows := newNsjRows(n, lock, db, l)
	l.rows = rows
	if err := rows.adopt(ctx); err != nil { // also while Redis is away: workers try rows again that nobody has locked
		return err
	}
	wake := make(chan struct{}, 1)
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error { return t.listen(ctx, quoteName(n.bare), func() { periodic.Notify(wake) }) })
	work.Go(func() error { return l.run(ctx, wake) })
	return work.Wait()
}

// taskPrefix is what the IDs of a table's tasks begin with. The number of the row and a word that is different for each
// claim follow, so a row that is put back by hand becomes another task.
func (n *nsjTable) taskPrefix() string {
	const most = 64
	name := strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' {
			return '_'
		}
		return r
	}, n.bare)
	return "nsj-" + name[:min(len(name), most)] + "-"
}

// claimWord returns a word for the IDs of the tasks of one claim.
func claimWord() string { return uuid.NewString()[:8] }

// rowOf returns the row of a task.
func (n *nsjTable) rowOf(task string) (id string, ok bool) {
	rest, ours := strings.CutPrefix(task, n.taskPrefix())
	at := strings.LastIndexByte(rest, '-') // the number may be negative
	id = rest[:max(at, 0)]
	_, err := strconv.ParseInt(id, 10, 64)
	return id, ours && err == nil
}
