package relay

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

// channel is where writers announce new rows.
const channel = "quern_outbox"

// outboxTable is Quern's own table, quern.outbox.
type outboxTable struct{}

func (outboxTable) name() string { return "outbox" }

func (outboxTable) check(ctx context.Context, db *postgres.Conn) error {
	return checkTables(ctx, db, initRemedy, "outbox", "outbox_refused", "outbox_held", "ended")
}

func (outboxTable) relay(ctx context.Context, t *term) error {
	db, err := t.relay.connect(ctx, ", outbox")
	if err != nil {
		return err
	}
	defer db.Close()
	report, err := reportName(ctx, db, "outbox", "quern.outbox")
	if err != nil {
		return err
	}
	t.setReports(report)
	o := &outboxTerm{term: t, db: db, reports: report, full: make(map[string]time.Time)}
	work, ctx := errgroup.WithContext(ctx)
	wake := make(chan struct{}, 1)
	work.Go(func() error { return t.listen(ctx, channel, func() { periodic.Notify(wake) }) })
	work.Go(func() error { return o.relayAll(ctx, wake) })
	for _, client := range t.relay.config.Tenants {
		work.Go(func() error { return o.report(ctx, client) })
	}
	return work.Wait()
}

// outboxTerm is one term as leader of the outbox. Its connection belongs to the goroutine of relayAll.
type outboxTerm struct {
	*term
	db      *postgres.Conn
	reports string // the name for reports of ends

	horizon horizon
	full    map[string]time.Time // until when the rows of a target are left out
	looked  time.Time            // when the leader last asked how far transactions have ended
	swept   time.Time            // when it last read from the beginning
	purged  time.Time
	counted time.Time
	pause   periodic.Pause // after failures of Redis
}

// relayAll relays rows until ctx ends or the lease is lost. wake tells of new rows.
//
//	asleep ── a notification, a second, a row found ──▶ awake ── awakeFor without a row ──▶ asleep
func (o *outboxTerm) relayAll(ctx context.Context, wake <-chan struct{}) error {
	awake := &awakeLocker{address: o.relay.config.Direct}
	defer awake.release()
	var last time.Time // when a row was last found
	for {
		found, err := o.round(ctx)
		switch {
		case err != nil:
			return err
		case found:
			last = time.Now()
		}
		if err := o.purge(ctx); err != nil {
			return err
		}
		if err := o.count(ctx); err != nil {
			return err
		}
		if time.Since(last) <= awakeFor && o.notified.Load() {
			awake.take(ctx)
		}
		if found {
			continue
		}
		wait := busyInterval
		if time.Since(last) > awakeFor {
			if awake.held() {
				awake.release()
				continue // look once more: a row that was inserted before has sent no notification
			}
			wait = idleInterval
		}
		if left := o.pause.Left(time.Now()); left > 0 {
			wait = left
		}
		timer := time.NewTimer(wait)
		select {
		case <-wake:
			last = time.Now()
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
		timer.Stop()
	}
}

// round relays one batch, and reports whether there may be more.
func (o *outboxTerm) round(ctx context.Context) (found bool, err error) {
	if o.pause.Left(time.Now()) > 0 {
		return false, nil
	}
	rows, whole, err := o.next(ctx)
	if err != nil || len(rows) == 0 {
		return false, err
	}
	if o.since() > forgetAfter/2 { // it was stopped, and another leader may have sent and deleted these rows
		return false, errNotLeader
	}
	out, failed := o.relay.send(ctx, rows, o.reports)
	if err := o.settle(ctx, out); err != nil {
		return false, err
	}
	for _, target := range out.full {
		o.full[target] = time.Now().Add(fullPause)
	}
	switch {
	case failed != nil && ctx.Err() != nil:
		return false, ctx.Err()
	case failed != nil:
		o.pause.Failed(time.Now())
		o.noteFailure(failed)
		o.horizon.high = 0
		return false, nil
	case out.why != nil:
		o.noteFailure(out.why)
	case len(o.full) == 0:
		o.forgetFailure()
	}
	o.pause.Succeeded()
	return !whole || len(out.sent)+len(out.refused) > 0, nil
}

// next reads the next rows. whole reports whether they are all that there are.
func (o *outboxTerm) next(ctx context.Context) (rows []row, whole bool, err error) {
	now := time.Now()
	var without []string
	for target, until := range o.full {
		if now.After(until) {
			delete(o.full, target)
			o.horizon.high = 0 // its rows were passed over
		} else {
			without = append(without, target)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if now.Sub(o.looked) < lookAgain && o.horizon.high > 0 {
		rows, err = read(ctx, o.db, o.horizon.high, without)
		if err != nil || len(rows) > 0 {
			o.horizon.passed(rows)
			return rows, false, err
		}
	}
	if now.Sub(o.swept) >= sweepInterval {
		o.swept, o.horizon.low = now, 0
	}
	if now.Sub(o.looked) >= lookAgain {
		o.looked = now
		if err := o.horizon.look(ctx, o.db); err != nil {
			return nil, false, err
		}
	}
	if rows, err = read(ctx, o.db, o.horizon.low, without); err != nil {
		return nil, false, err
	}
	o.horizon.read(rows, len(without) > 0)
	if len(rows) > 0 {
		o.setLag(rows[0].age)
	} else if len(without) == 0 {
		o.setLag(0)
	}
	return rows, len(rows) < batchRows, nil
}

// settle deletes the rows that were sent and moves those that were refused.
func (o *outboxTerm) settle(ctx context.Context, out outcome) error {
	if len(out.sent) > 0 {
		seqs, ids := make([]int64, len(out.sent)), make(map[string][]string)
		for i, row := range out.sent {
			seqs[i] = row.seq
			if row.topic == "" {
				ids[row.tenant] = append(ids[row.tenant], row.id)
			}
		}
		statement := "DELETE FROM quern.outbox WHERE seq = ANY ($1::bigint[])"
		if o.relay.config.Hold > 0 {
			statement = `WITH sent AS (` + statement + ` RETURNING *)
				INSERT INTO quern.outbox_held SELECT * FROM sent`
		}
		if _, err := exec(ctx, o.db, statement, seqs); err != nil {
			return err
		}
		o.relay.config.Metrics.RelayRows(o.relay.config.Name, "relayed", len(seqs))
		for tenant, ids := range ids {
			// If this fails, Redis remembers the IDs for longer.
			if err := o.tenant(tenant).ForgetOnce(ctx, ids, forgetAfter+o.relay.config.Hold); err != nil {
				o.relay.log.Debug("cannot shorten the memory of IDs", "error", err)
			}
		}
	}
	for _, refused := range out.refused {
		o.relay.log.Error("row refused", "seq", refused.seq, "error", refused.err)
		if _, err := exec(ctx, o.db, `WITH refused AS (DELETE FROM quern.outbox WHERE seq = $1 RETURNING *)
			INSERT INTO quern.outbox_refused SELECT *, $2 FROM refused`,
			refused.seq, refused.err.Error()); err != nil {
			return err
		}
		o.relay.config.Metrics.RelayRows(o.relay.config.Name, "refused", 1)
	}
	return nil
}

// count counts the rows, for operators.
func (o *outboxTerm) count(ctx context.Context) error {
	if time.Since(o.counted) < listen.RelayInterval {
		return nil
	}
	o.counted = time.Now()
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return o.db.Query(ctx, func(v postgres.Row) { o.setCounts(v.Int(0), v.Int(1)) }, `
		SELECT (SELECT count(*) FROM (SELECT FROM quern.outbox LIMIT $1) w),
		(SELECT count(*) FROM (SELECT FROM quern.outbox_refused LIMIT $1) f)`, maxCounted)
}

// purge deletes rows that were kept for long enough, in blocks.
func (o *outboxTerm) purge(ctx context.Context) error {
	if time.Since(o.purged) < purgeInterval {
		return nil
	}
	o.purged = time.Now()
	for table, kept := range map[string]struct {
		column string
		time.Duration
	}{
		"outbox_held": {"relayed", o.relay.config.Hold},
		"ended":       {"ended", o.relay.config.KeepEnded},
	} {
		if kept.Duration == 0 {
			continue // rows that a relay with --hold has kept
		}
		for deleted := int64(batchRows); deleted == batchRows; {
			var err error
			deleted, err = exec(ctx, o.db, fmt.Sprintf(`DELETE FROM quern.%[1]s WHERE ctid = ANY (ARRAY(
				SELECT ctid FROM quern.%[1]s WHERE %[2]s < clock_timestamp() - $1::interval LIMIT $2))`, table, kept.column),
				interval(kept.Duration), batchRows)
			if err != nil {
				return err
			}
		}
	}
	return nil
}
