package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

// term is one term of a relay as the leader of its source. It holds a lease in quern.relays, by the database's clock.
type term struct {
	relay    *Relay
	tenants  map[string]*listen.RelayClient
	notified atomic.Bool // notifications arrive

	mu      sync.Mutex
	renewed time.Time         // guarded by mu: when the lease was last extended
	failure string            // guarded by mu: the last one, until it is over
	state   listen.RelayState // guarded by mu: what the source has told about itself
}

// errNotLeader ends a term whose lease went to another relay.
var errNotLeader = errors.New("another relay leads")

// lead waits for the lease, and relays for as long as the relay has it.
func (r *Relay) lead(ctx context.Context) error {
	db, err := r.connect(ctx, "")
	if err != nil {
		return err
	}
	defer db.Close()
	if err := r.check(ctx, db); err != nil {
		return err
	}
	t := &term{relay: r, tenants: make(map[string]*listen.RelayClient)}
	for tenant, client := range r.config.Tenants {
		t.tenants[tenant] = listen.NewRelayClient(client)
	}
	if err := t.take(ctx, db); err != nil {
		return err
	}
	defer t.giveBack()
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error { return t.keep(ctx, db) })
	work.Go(func() error { return t.publish(ctx) })
	work.Go(func() error { return r.source.relay(ctx, t) })
	return work.Wait()
}

// check returns an error if the database lacks tables of Quern, or those of the source.
func (r *Relay) check(ctx context.Context, db *postgres.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if err := checkVersion(ctx, db); err != nil {
		return err
	}
	if err := checkTables(ctx, db, initRemedy, "relays"); err != nil {
		return err
	}
	return r.source.check(ctx, db)
}

// take waits until this relay has the lease.
func (t *term) take(ctx context.Context, db *postgres.Conn) error {
	name := t.relay.source.name()
	for {
		began := time.Now()
		taken, err := exec(ctx, db, `
			INSERT INTO quern.relays AS r VALUES ($1, $2, clock_timestamp(), clock_timestamp() + $3, false)
			ON CONFLICT (source) DO UPDATE SET holder = excluded.holder, since = excluded.since,
			  until = excluded.until, notified = false, error = NULL
			WHERE r.until < clock_timestamp() OR r.until > clock_timestamp() + 2 * $3::interval -- its clock went back`,
			name, t.relay.holder, interval(lease))
		if err != nil {
			return err
		}
		if taken == 1 {
			t.renewed = began
			if !t.relay.failing {
				t.relay.log.Info("leads " + name)
			}
			t.relay.become("leads "+name, nil)
			t.setNotified(false)
			return nil
		}
		t.relay.become("another relay leads", nil)
		if !periodic.Sleep(ctx, tryInterval) {
			return ctx.Err()
		}
	}
}

// keep renews the lease until ctx ends. The error is errNotLeader if another relay has it.
func (t *term) keep(ctx context.Context, db *postgres.Conn) error {
	first := time.Now()
	for periodic.Sleep(ctx, renewInterval) {
		began := time.Now()
		if t.relay.failing && began.Sub(first) > lease {
			t.relay.failing = false
			t.relay.log.Info("leads " + t.relay.source.name())
		}
		n, err := exec(ctx, db, `UPDATE quern.relays SET until = clock_timestamp() + $3, notified = $4, error = $5
			WHERE source = $1 AND holder = $2`,
			t.relay.source.name(), t.relay.holder, interval(lease), t.notified.Load(), optional(t.lastFailure()))
		if err != nil {
			return err
		}
		if n == 0 {
			return errNotLeader
		}
		t.mu.Lock()
		t.renewed = began
		t.mu.Unlock()
	}
	return ctx.Err()
}

// giveBack ends the lease, so that the next relay need not wait for its end. If it fails, the lease ends by itself.
func (t *term) giveBack() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	db, err := t.relay.connect(ctx, "") // a statement that was cut off has closed the other one
	if err != nil {
		return
	}
	defer db.Close()
	_, _ = db.Exec(ctx, "UPDATE quern.relays SET until = clock_timestamp() WHERE source = $1 AND holder = $2",
		t.relay.source.name(), t.relay.holder)
}

// publish publishes the state of the source in each tenant, until ctx ends.
func (t *term) publish(ctx context.Context) error {
	began := float64(time.Now().UnixMilli()) / 1000
	for {
		t.mu.Lock()
		state := t.state
		state.Error = t.failure
		t.mu.Unlock()
		state.Name, state.Table, state.Leader = t.relay.config.Name, t.relay.source.name(), t.relay.holder
		state.Since, state.Notified = began, t.notified.Load()
		for _, tenant := range t.tenants {
			if err := tenant.Publish(ctx, state); err != nil {
				t.relay.log.Debug("cannot publish the state of the relay", "error", err)
			}
		}
		if !periodic.Sleep(ctx, listen.RelayInterval) {
			return ctx.Err()
		}
	}
}

// tenant returns the client of a tenant; "" is the tenant of rows that name none.
func (t *term) tenant(name string) *listen.RelayClient {
	return t.tenants[cmp.Or(name, t.relay.config.Tenant)]
}

// setLag records the age of the oldest row that waits; 0 if none waits.
func (t *term) setLag(age time.Duration) {
	t.relay.config.Metrics.RelayLag(t.relay.config.Name, age)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state.Lag = age.Seconds()
}

// setReports records the name of the source's reports.
func (t *term) setReports(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state.Reports = name
}

// setCounts records how many rows wait, and how many could be no task. maxCounted bounds both.
func (t *term) setCounts(waiting, refused int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state.Waiting, t.state.Refused = waiting, refused
}

// since returns how long ago the lease was extended.
func (t *term) since() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Since(t.renewed)
}

// setNotified records whether notifications arrive.
func (t *term) setNotified(notified bool) {
	t.notified.Store(notified)
	t.relay.config.Metrics.RelayLeads(t.relay.config.Name, true, notified)
}

// lastFailure returns what stands in quern.relays: the last failure, or else why a row is parked; "" for none.
func (t *term) lastFailure() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return cmp.Or(t.failure, t.state.Parked)
}

// noteFailure counts a failure. It logs one that differs from the last.
func (t *term) noteFailure(err error) {
	t.relay.config.Metrics.RelayFailed(t.relay.config.Name)
	t.mu.Lock()
	defer t.mu.Unlock()
	if text := err.Error(); text != t.failure {
		t.failure = text
		t.relay.log.Warn("rows wait", "error", err)
	}
}

// setParked records why a row is parked; "" if none is.
func (t *term) setParked(why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state.Parked = why
}

// forgetFailure forgets the last failure.
func (t *term) forgetFailure() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.failure = ""
}

// listen calls came for the notifications of a channel, until ctx ends. While the database cannot be reached by the
// direct URL, the source looks for rows by itself.
func (t *term) listen(ctx context.Context, channel string, came func()) error {
	logged := "" // the last error since notifications arrived
	for {
		err := t.listenOnce(ctx, channel, came)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if t.notified.Load() {
			logged = ""
		}
		t.setNotified(false)
		if err != nil {
			t.relay.config.Metrics.RelayFailed(t.relay.config.Name)
			if text := err.Error(); text != logged {
				logged = text
				t.relay.log.Warn("cannot listen for new rows, so they wait for up to a second; trying again", "error", err)
			}
		}
		if !periodic.Sleep(ctx, tryInterval) {
			return ctx.Err()
		}
	}
}

// listenOnce passes on notifications until its connection fails, or ctx ends.
func (t *term) listenOnce(ctx context.Context, channel string, came func()) error {
	conn, err := t.relay.config.Direct.Connect(ctx, "quern relay, listening")
	if err != nil {
		return err
	}
	defer conn.Close()
	notified, err := canListen(ctx, conn, channel)
	if err != nil {
		return err
	}
	if !notified {
		t.relay.log.Warn("notifications do not arrive, so new rows wait for up to a second: a pooler swallows them; "+
			"give the URL without the pooler as direct", "database", t.relay.config.Direct.String())
		<-ctx.Done()
		return nil
	}
	t.setNotified(true)
	for ctx.Err() == nil {
		if err := beat(ctx, conn); err != nil {
			return err
		}
		waiting, cancel := context.WithTimeout(ctx, renewInterval)
		notified, err := conn.Wait(waiting)
		cancel()
		if err != nil && ctx.Err() == nil {
			return err
		}
		if notified {
			came()
		}
	}
	return nil
}

// beat finds out whether the connection still leads to the database: one that a failover has cut may stay open.
func beat(ctx context.Context, conn *postgres.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, lease/2)
	defer cancel()
	_, err := conn.Exec(ctx, "SELECT 1")
	return err
}

// canListen listens, and reports whether notifications arrive.
func canListen(ctx context.Context, conn *postgres.Conn, channel string) (bool, error) {
	if _, err := exec(ctx, conn, "LISTEN "+channel); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return conn.OwnSession(ctx)
}

// databaseError is an error of the database, and not of Redis.
type databaseError struct {
	error
	row bool // see ofRow
}

func (e databaseError) Unwrap() error { return e.error }

// exec runs a statement with a bound.
func exec(ctx context.Context, db *postgres.Conn, statement string, args ...any) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	return db.Exec(ctx, statement, args...)
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
