package relay

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

// source is the name of the outbox in quern.relays.
const source = "outbox"

// leader is one term of a relay as leader. Its connection belongs to one goroutine.
type leader struct {
	relay    *Relay
	db       *postgres.Conn
	notified atomic.Bool
	renewed  time.Time

	horizon horizon
	full    map[string]time.Time // until when the rows of a target are left out
	looked  time.Time            // when the leader last asked how far transactions have ended
	swept   time.Time            // when it last read from the beginning
	purged  time.Time
	pause   periodic.Pause // after failures of Redis
	failure string         // the last one, as it stands in quern.relays
}

// take waits until this relay has the lease.
func (l *leader) take(ctx context.Context) error {
	for {
		taken, err := l.exec(ctx, `
			INSERT INTO quern.relays AS r VALUES ($1, $2, clock_timestamp(), clock_timestamp() + $3, false)
			ON CONFLICT (source) DO UPDATE SET holder = excluded.holder, since = excluded.since,
			  until = excluded.until, notified = false, error = NULL
			WHERE r.until < clock_timestamp() OR r.until > clock_timestamp() + 2 * $3::interval -- its clock went back`,
			source, l.relay.holder, interval(lease))
		if err != nil {
			return err
		}
		if taken == 1 {
			l.renewed = time.Now()
			l.relay.log.Info("leads the outbox")
			l.relay.become("leads the outbox", nil)
			l.relay.config.Metrics.RelayLeads(l.relay.config.Name, true, false)
			return nil
		}
		l.relay.become("another relay leads", nil)
		if !periodic.Sleep(ctx, tryInterval) {
			return ctx.Err()
		}
	}
}

// renew extends the lease. If another relay has it, the error is errNotLeader.
func (l *leader) renew(ctx context.Context) error {
	if time.Since(l.renewed) < renewInterval {
		return nil
	}
	began := time.Now()
	n, err := l.exec(ctx, `UPDATE quern.relays SET until = clock_timestamp() + $3, notified = $4, error = $5
		WHERE source = $1 AND holder = $2`, source, l.relay.holder, interval(lease), l.notified.Load(), optional(l.failure))
	if err != nil {
		return err
	}
	if n == 0 {
		return errNotLeader
	}
	l.renewed = began
	return nil
}

// giveBack ends the lease, so that the next relay need not wait for its end. If it fails, the lease ends by itself.
func (l *leader) giveBack() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	db, err := l.relay.config.Database.Connect(ctx, "quern relay") // a statement that was cut off has closed l.db
	if err != nil {
		return
	}
	defer db.Close()
	_, _ = db.Exec(ctx, "UPDATE quern.relays SET until = clock_timestamp() WHERE source = $1 AND holder = $2", source,
		l.relay.holder)
}

// exec runs a statement with a bound.
func (l *leader) exec(ctx context.Context, statement string, args ...any) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return l.db.Exec(ctx, statement, args...)
}

// relayAll relays rows until ctx ends or the lease is lost. wake tells of new rows.
//
//	asleep ── a notification, a second, a row found ──▶ awake ── awakeFor without a row ──▶ asleep
func (l *leader) relayAll(ctx context.Context, wake <-chan struct{}) error {
	awake := &awakeLocker{address: l.relay.config.Direct}
	defer awake.release()
	var last time.Time // when a row was last found
	for {
		if err := l.renew(ctx); err != nil {
			return err
		}
		found, err := l.round(ctx)
		switch {
		case err != nil:
			return err
		case found:
			last = time.Now()
		}
		if err := l.purge(ctx); err != nil {
			return err
		}
		if time.Since(last) <= awakeFor && l.notified.Load() {
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
		if left := l.pause.Left(time.Now()); left > 0 {
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
func (l *leader) round(ctx context.Context) (found bool, err error) {
	if l.pause.Left(time.Now()) > 0 {
		return false, nil
	}
	rows, whole, err := l.next(ctx)
	if err != nil || len(rows) == 0 {
		return false, err
	}
	if time.Since(l.renewed) > forgetAfter/2 { // it was stopped, and another leader may have sent and deleted these rows
		return false, errNotLeader
	}
	out, failed := l.relay.send(ctx, rows)
	if err := l.settle(ctx, out); err != nil {
		return false, err
	}
	for _, target := range out.full {
		l.full[target] = time.Now().Add(fullPause)
	}
	switch {
	case failed != nil && ctx.Err() != nil:
		return false, ctx.Err()
	case failed != nil:
		l.pause.Failed(time.Now())
		l.fail(failed)
		l.horizon.high = 0
		return false, nil
	case out.why != nil:
		l.fail(out.why)
	case len(l.full) == 0:
		l.failure = ""
	}
	l.pause.Succeeded()
	return !whole || len(out.sent)+len(out.refused) > 0, nil
}

// fail notes and logs a failure, once.
func (l *leader) fail(err error) {
	if text := err.Error(); text != l.failure {
		l.failure = text
		l.relay.log.Warn("rows wait", "error", err)
	}
	l.relay.config.Metrics.RelayFailed(l.relay.config.Name)
}

// next reads the next rows. whole reports whether they are all that there are.
func (l *leader) next(ctx context.Context) (rows []row, whole bool, err error) {
	now := time.Now()
	var without []string
	for target, until := range l.full {
		if now.After(until) {
			delete(l.full, target)
			l.horizon.high = 0 // its rows were passed over
		} else {
			without = append(without, target)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if now.Sub(l.looked) < lookAgain && l.horizon.high > 0 {
		rows, err = read(ctx, l.db, l.horizon.high, without)
		if err != nil || len(rows) > 0 {
			l.horizon.passed(rows)
			return rows, false, err
		}
	}
	if now.Sub(l.swept) >= sweepInterval {
		l.swept, l.horizon.low = now, 0
	}
	if now.Sub(l.looked) >= lookAgain {
		l.looked = now
		if err := l.horizon.look(ctx, l.db); err != nil {
			return nil, false, err
		}
	}
	if rows, err = read(ctx, l.db, l.horizon.low, without); err != nil {
		return nil, false, err
	}
	l.horizon.read(rows, len(without) > 0)
	if len(rows) > 0 {
		l.relay.config.Metrics.RelayLag(l.relay.config.Name, rows[0].age)
	} else if len(without) == 0 {
		l.relay.config.Metrics.RelayLag(l.relay.config.Name, 0)
	}
	return rows, len(rows) < batchRows, nil
}

// settle deletes the rows that were sent and moves those that were refused.
func (l *leader) settle(ctx context.Context, out outcome) error {
	if len(out.sent) > 0 {
		seqs, ids := make([]int64, len(out.sent)), make(map[string][]string)
		for i, row := range out.sent {
			seqs[i] = row.seq
			if row.topic == "" {
				ids[row.tenant] = append(ids[row.tenant], row.id)
			}
		}
		statement := "DELETE FROM quern.outbox WHERE seq = ANY ($1::bigint[])"
		if l.relay.config.Hold > 0 {
			statement = `WITH sent AS (` + statement + ` RETURNING *)
				INSERT INTO quern.outbox_held SELECT * FROM sent`
		}
		if _, err := l.exec(ctx, statement, seqs); err != nil {
			return err
		}
		l.relay.config.Metrics.RelayRows(l.relay.config.Name, "relayed", len(seqs))
		for tenant, ids := range ids {
			fleet := listen.NewFleet(l.relay.client(tenant))
			// If this fails, Redis remembers the IDs for longer.
			if err := fleet.ForgetOnce(ctx, ids, forgetAfter+l.relay.config.Hold); err != nil {
				l.relay.log.Debug("cannot shorten the memory of IDs", "error", err)
			}
		}
	}
	for _, refused := range out.refused {
		l.relay.log.Error("row refused", "seq", refused.seq, "error", refused.err)
		if _, err := l.exec(ctx, `WITH refused AS (DELETE FROM quern.outbox WHERE seq = $1 RETURNING *)
			INSERT INTO quern.outbox_refused SELECT *, $2 FROM refused`,
			refused.seq, refused.err.Error()); err != nil {
			return err
		}
		l.relay.config.Metrics.RelayRows(l.relay.config.Name, "refused", 1)
	}
	return nil
}

// purge deletes rows that were kept for long enough, in blocks.
func (l *leader) purge(ctx context.Context) error {
	if time.Since(l.purged) < purgeInterval {
		return nil
	}
	l.purged = time.Now()
	for table, kept := range map[string]struct {
		column string
		time.Duration
	}{
		"outbox_held": {"relayed", l.relay.config.Hold},
		"ended":       {"ended", l.relay.config.KeepEnded},
	} {
		if kept.Duration == 0 {
			continue // rows that a relay with --hold has kept
		}
		for deleted := int64(batchRows); deleted == batchRows; {
			var err error
			deleted, err = l.exec(ctx, fmt.Sprintf(`DELETE FROM quern.%[1]s WHERE ctid = ANY (ARRAY(
				SELECT ctid FROM quern.%[1]s WHERE %[2]s < clock_timestamp() - $1::interval LIMIT $2))`, table, kept.column),
				interval(kept.Duration), batchRows)
			if err != nil {
				return err
			}
			if err := l.renew(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

var errNoTables = errors.New("the database has no outbox: make it with `quern database init`")

// checkVersion returns an error if the database has no tables of Quern, or those of another version.
func checkVersion(ctx context.Context, db *postgres.Conn) error {
	version := int64(-1)
	err := db.Query(ctx, func(v postgres.Row) { version = v.Int(0) }, "SELECT version FROM quern.version")
	switch state := postgres.State(err); {
	case state == "3F000" || state == "42P01": // no schema, no table
		return errNoTables
	case state == "42501":
		return fmt.Errorf("%w: give the role its rights with `quern database init --grant-relay ROLE`", err)
	case err != nil:
		return err
	case version < 0:
		return errors.New("the table quern.version is empty: INSERT INTO quern.version VALUES (1)")
	case version != schemaVersion:
		return fmt.Errorf("the database has version %d of quern's tables, and this program needs %d: %s", version, schemaVersion,
			"run `quern database init` of the newer program, or update this program")
	}
	return nil
}

func interval(d time.Duration) string { return fmt.Sprintf("%f seconds", d.Seconds()) }

// optional returns nil, which is NULL, for "".
func optional(text string) any {
	if text == "" {
		return nil
	}
	return text
}
