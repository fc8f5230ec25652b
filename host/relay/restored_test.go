package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/queuetest"
	"github.com/quern-project/quern/sdk/queue/worker"
)

// gone reports whether a task does not exist any more.
func (w *world) gone(task string) bool {
	_, err := w.client.Summary(w.t.Context(), task)
	return errors.Is(err, queue.ErrNoTask)
}

// empty waits until a queue has no tasks: those of lost rows are cancelled and deleted.
func (w *world) empty(name string) {
	w.t.Helper()
	w.eventually("0", func() string {
		return fmt.Sprint(w.depth(name, queue.Pending) + w.depth(name, queue.Started) + w.depth(name, queue.Failed))
	})
}

// A table that is emptied, and whose dump is loaded back, loses no row: claimed ones run again, also if another relay
// leads meanwhile.
func TestRaquelRestored(t *testing.T) {
	t.Parallel()
	for name, handover := range map[string]bool{"SameLeader": false, "OtherLeader": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &raquel{world: setup(t)}
			r.exec(raquelDocumented)
			r.host("q")
			stop := r.relayRaquel(nil)
			r.exec("INSERT INTO jobs (queue, payload) SELECT 'q', '0 600000' FROM generate_series(1, 8)")
			r.eventually("8", func() string { return r.value("SELECT count(*) FROM jobs WHERE status = 'claimed'") })
			r.eventually("true", func() string { return fmt.Sprint(r.depth("q", queue.Started) > 0) })
			r.exec("CREATE TABLE dump AS TABLE jobs")
			r.exec("TRUNCATE jobs")
			r.empty("q")
			if handover {
				stop()
				r.relayRaquel(nil)
			}
			r.exec("UPDATE dump SET payload = '0'")
			r.exec("INSERT INTO jobs TABLE dump")
			r.eventually("8", func() string { return r.value("SELECT count(*) FROM jobs WHERE status = 'success' AND attempts = 1") })
		})
	}
}

// So does a queue table of nsj-queue-lib.
func TestNsjRestored(t *testing.T) {
	t.Parallel()
	n := setupNsj(t, setup(t))
	n.host("p")
	n.nsjRelay(nil)
	n.exec("INSERT INTO fila (processo, payload) SELECT 'p', 'sleep 600000' FROM generate_series(1, 8)")
	n.eventually("8", func() string { return n.count("processando") })
	n.eventually("true", func() string { return fmt.Sprint(n.depth("p", queue.Started) > 0) })
	n.exec("CREATE TABLE dump AS TABLE fila")
	n.exec("TRUNCATE fila")
	n.empty("p")
	n.exec("UPDATE dump SET payload = 'return x'")
	n.exec("INSERT INTO fila TABLE dump")
	n.eventually("8", func() string { return n.count("sucesso") })
	if got := n.value("SELECT count(*) FROM fila"); got != "8" {
		t.Errorf("%s rows, want 8", got)
	}
}

// A row that is back before its task has stopped runs again after that.
func TestRaquelRestoredBeforeStop(t *testing.T) {
	t.Parallel()
	r := &raquel{world: setup(t)}
	r.exec(raquelDocumented)
	began, stopped, end, again := make(chan struct{}), make(chan struct{}), make(chan struct{}), false
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- worker.Run(ctx, r.client, "q", func(ctx context.Context, _ *queue.Task) ([]byte, error) {
			if again {
				return nil, nil
			}
			again = true
			close(began)
			<-ctx.Done()
			close(stopped)
			<-end
			return nil, ctx.Err()
		})
	}()
	r.relayRaquel(nil)
	id := r.insert("0")
	<-began
	r.exec("CREATE TABLE dump AS TABLE jobs")
	r.exec("TRUNCATE jobs")
	<-stopped
	r.exec("INSERT INTO jobs TABLE dump")
	r.eventually("t", func() string { // it is adopted, and its claim renewed
		return r.value("SELECT j.claimed_at > d.claimed_at FROM jobs j JOIN dump d USING (id)")
	})
	close(end)
	r.eventually("success 1", func() string { return r.state(id) })
	stop()
	<-done
}

// A dump that has a row as claimed, which was given back since, is no cancel of this row either, also if another relay
// leads meanwhile.
func TestRaquelRestoredAfterGivenBack(t *testing.T) {
	t.Parallel()
	r := &raquel{world: setup(t)}
	r.exec(raquelDocumented)
	_, stop := r.listener("q")
	end := r.relayRaquel(nil)
	id := r.insert("0")
	r.eventually("1", func() string { return fmt.Sprint(r.depth("q", queue.Pending)) })
	r.exec("CREATE TABLE dump AS TABLE jobs")
	stop()
	r.eventually("queued 0 true", func() string { return fmt.Sprint(r.state(id), " ", r.gone("raquel-"+id+"-0")) })
	end()
	r.exec("DELETE FROM jobs")
	r.exec("INSERT INTO jobs TABLE dump")
	r.relayRaquel(nil)
	r.host("q")
	r.eventually("success 1", func() string { return r.state(id) })
}

// A row in hand whose number of attempts or ID somebody changes runs again, as what it is now.
func TestRaquelChangedInHand(t *testing.T) {
	t.Parallel()
	r := &raquel{world: setup(t)}
	r.exec(raquelDocumented)
	r.host("q")
	r.relayRaquel(nil)
	first, second := r.insert("0 600000"), r.insert("0 600000")
	tasks := []string{"raquel-" + first + "-0", "raquel-" + second + "-0"}
	for _, task := range tasks {
		r.eventually("true", func() string { return fmt.Sprint(r.running(task)) })
	}
	r.exec("UPDATE jobs SET attempts = 7, payload = '0' WHERE id = $1", first)
	other := r.value("UPDATE jobs SET id = gen_random_uuid(), payload = '0' WHERE id = $1 RETURNING id", second)
	r.eventually("success 8", func() string { return r.state(first) })
	r.eventually("success 1", func() string { return r.state(other) })
	for _, task := range tasks {
		r.eventually("true", func() string { return fmt.Sprint(r.gone(task)) })
	}
}

// claims returns the claims of a new term, whose steps a test takes by itself.
func (w *world) claims(config Config, report string) *claims {
	w.t.Helper()
	address, err := postgres.Parse(w.url)
	if err != nil {
		w.t.Fatal(err)
	}
	client := cmp.Or(config.Tenants[w.client.Tenant()], w.client)
	config.Database, config.Tenant = address, client.Tenant()
	config.Tenants = map[string]*queue.Client{client.Tenant(): client}
	relay, err := New(config)
	if err != nil {
		w.t.Fatal(err)
	}
	return newClaims(&term{
		relay: relay, tenants: map[string]*listen.RelayClient{client.Tenant(): listen.NewRelayClient(client)}, renewed: time.Now(),
	}, report, time.Hour, nil)
}

// claims returns claims on the table fila.
func (n *nsjWorld) claims(client *queue.Client) *claims {
	n.t.Helper()
	table := newNsjTable(Nsj{Table: "fila"})
	if err := table.check(n.t.Context(), n.db); err != nil {
		n.t.Fatal(err)
	}
	l := n.world.claims(Config{Nsj: &Nsj{Table: "fila"}, Tenants: map[string]*queue.Client{client.Tenant(): client}}, table.report)
	l.rows = newNsjRows(table, n.server.Connect(n.t, n.url), n.server.Connect(n.t, n.url), l)
	return l
}

// claims returns claims on the table jobs.
func (r *raquel) claims() *claims {
	r.t.Helper()
	table := &raquelTable{Raquel: Raquel{Table: "jobs"}}
	if err := table.check(r.t.Context(), r.db); err != nil {
		r.t.Fatal(err)
	}
	l := r.world.claims(Config{Raquel: &table.Raquel}, table.report)
	l.rows = newRaquelRows(table, r.server.Connect(r.t, r.url), l)
	return l
}

// claimAll inserts rows for the queue p, claims them, and enqueues their tasks.
func (n *nsjWorld) claimAll(l *claims, count int) (tasks []string) {
	n.t.Helper()
	n.exec("INSERT INTO fila (processo) SELECT 'p' FROM generate_series(1, $1)", count)
	l.queue("p").served = true
	if _, _, err := l.rows.claim(n.t.Context(), true); err != nil {
		n.t.Fatal(err)
	}
	if err := l.send(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
	if len(l.hand) != count {
		n.t.Fatalf("%d rows in hand, want %d", len(l.hand), count)
	}
	return slices.Sorted(maps.Keys(l.hand))
}

// A task that the relay cancels before it runs is deleted at once, without its report: the leader that reads the report
// may be another one. The relay then takes no cancel of somebody else for its own.
func TestCancelledDeleted(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(n *nsjWorld, l *claims) error{
		"Lost": func(n *nsjWorld, l *claims) error {
			n.exec("DELETE FROM fila")
			return l.holdAll(n.t.Context())
		},
		"GivenBack": func(n *nsjWorld, l *claims) error {
			return l.giveBack(n.t.Context(), slices.Collect(maps.Values(l.hand)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := setupNsj(t, setup(t))
			l := n.claims(n.client)
			tasks := n.claimAll(l, 3)
			if err := leave(n, l); err != nil {
				t.Fatal(err)
			}
			for _, task := range tasks {
				if !n.gone(task) {
					t.Errorf("the task %s is still there", task)
				}
			}
			if len(l.hand)+len(l.lost)+len(l.stopped) != 0 {
				t.Errorf("in hand %v, lost %v, stopped %v", l.hand, l.lost, l.stopped)
			}
		})
	}
}

// A lost row whose task has ended is no cancel of the relay.
func TestLostAfterEnd(t *testing.T) {
	t.Parallel()
	n := setupNsj(t, setup(t))
	l := n.claims(n.client)
	task := n.claimAll(l, 1)[0]
	if _, err := n.client.Queue("p").Cancel(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	n.exec("DELETE FROM fila")
	if err := l.holdAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(l.lost)+len(l.stopped) != 0 {
		t.Errorf("lost %v, stopped %v", l.lost, l.stopped)
	}
}

// While Redis is away, rows that are lost cost one wait for it, however many they are. Their tasks are cancelled and
// deleted when Redis is back.
func TestLostWhileRedisAway(t *testing.T) {
	t.Parallel()
	n := setupNsj(t, setup(t))
	proxy := queuetest.NewProxy(t, n.redis)
	l := n.claims(n.through(proxy))
	tasks := n.claimAll(l, 50)
	proxy.Refuse()
	n.exec("DELETE FROM fila WHERE id % 2 = 0")
	if err := l.holdAll(t.Context()); !queue.IsUnavailable(err) {
		t.Fatalf("%v, want an error of Redis", err)
	}
	if len(l.hand) != 25 || len(l.lost) != 25 {
		t.Errorf("%d rows in hand, %d lost, want 25 and 25", len(l.hand), len(l.lost))
	}
	l.pause.Shortest, l.pause.Longest = time.Hour, time.Hour
	l.pause.Failed(time.Now())
	n.exec("DELETE FROM fila")
	if err := l.holdAll(t.Context()); err != nil { // it does not ask Redis
		t.Fatal(err)
	}
	proxy.Pass()
	n.eventually("<nil>", func() string { return fmt.Sprint(l.stopLost(t.Context())) })
	for _, task := range tasks {
		if !n.gone(task) {
			t.Errorf("the task %s is still there", task)
		}
	}
}

// forge inserts rows that look as if a relay had them in hand.
func (n *nsjWorld) forge(count int) {
	n.t.Helper()
	n.exec(`INSERT INTO fila (id, processo, status, mensagem) SELECT n, 'p', 'processando', 'Quern: nsj-fila-' || n || '-abc'
		FROM generate_series(1, $1::int) n`, count)
}

// locks returns how many advisory locks sessions hold in the database.
func (n *nsjWorld) locks() string {
	return n.value(`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
}

// A new leader locks the rows of the earlier one also while Redis is away, so that no worker tries them again.
func TestNsjAdoptedWhileRedisAway(t *testing.T) {
	t.Parallel()
	n := setupNsj(t, setup(t))
	proxy := queuetest.NewProxy(t, n.redis)
	proxy.Refuse()
	n.forge(3)
	n.nsjRelay(func(c *Config) { c.Tenants = map[string]*queue.Client{c.Tenant: n.through(proxy)} })
	n.eventually("3", n.locks)
}

// A leader takes over as many rows as it may have in hand, and no more: each is a lock.
func TestNsjAdoptBounded(t *testing.T) {
	t.Parallel()
	n := setupNsj(t, setup(t))
	n.forge(maxInHand + 100)
	l := n.claims(n.client)
	for range 2 {
		if err := l.rows.(*nsjRows).adopt(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := n.locks(); len(l.hand) != maxInHand || got != fmt.Sprint(maxInHand) {
			t.Errorf("%d rows in hand and %s locks, want %d", len(l.hand), got, maxInHand)
		}
	}
}

// The same for a table of Raquel: each claim is in the relay's memory.
func TestRaquelAdoptBounded(t *testing.T) {
	t.Parallel()
	r := &raquel{world: setup(t)}
	r.exec(raquelDocumented)
	r.exec("INSERT INTO jobs (status, claimed_by, claimed_at) SELECT 'claimed', $1, 0 FROM generate_series(1, $2)",
		raquelOwner+r.client.Tenant(), maxAdopted+100)
	l := r.claims()
	for _, want := range []string{"true <nil>", "false <nil>"} {
		some, err := l.rows.(*raquelRows).adopt(t.Context())
		if got := fmt.Sprint(some, " ", err); got != want || len(l.hand) != maxAdopted {
			t.Errorf("%s with %d rows in hand, want %s with %d", got, len(l.hand), want, maxAdopted)
		}
	}
}

// A row whose claim cannot be renewed is tried again after the time that is configured.
func TestRaquelRenewedAgain(t *testing.T) {
	t.Parallel()
	r := &raquel{world: setup(t)}
	r.exec(raquelDocumented)
	r.exec("INSERT INTO jobs (status, claimed_by, claimed_at) VALUES ('claimed', $1, 0)", raquelOwner+r.client.Tenant())
	r.forbid("jobs", "true")
	l := r.claims()
	l.wait = time.Hour
	if _, err := l.rows.(*raquelRows).adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := time.Now()
	if err := l.holdAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range l.hand {
		if c.renewAt.Before(before.Add(l.wait)) {
			t.Errorf("tried again in %s, want %s", time.Until(c.renewAt), l.wait)
		}
	}
	if len(l.hand) != 1 {
		t.Errorf("%d rows in hand, want 1", len(l.hand))
	}
}
