package chaos

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/host/postgres/postgrestest"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// database is a PostgreSQL whose outbox the hosts relay.
type database struct {
	server  *postgrestest.Server
	url     string
	sources string // the hosts' --sources
}

// newDatabase starts a PostgreSQL with an outbox.
func newDatabase(t testing.TB) *database {
	t.Helper()
	d := &database{server: postgrestest.Start(t), sources: filepath.Join(t.TempDir(), "sources.yaml")}
	d.url = d.server.Database(t)
	if said, err := exec.Command(program, "database", "init", "--postgres", d.url).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	if err := errors.Join(
		os.WriteFile(d.sources, []byte("- {name: shop, postgres: {file: shop.url}, tenants: ["+tenant+"]}\n"), 0o600),
		os.WriteFile(filepath.Join(filepath.Dir(d.sources), "shop.url"), []byte(d.url), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	return d
}

// suffer ends the server, and starts it again.
func (d *database) suffer(ctx context.Context, t testing.TB, one fault) error {
	if one.kind == databaseEnded {
		if err := syscall.Kill(d.server.PID(), syscall.SIGINT); err != nil { // a fast shutdown: it ends sessions
			return err
		}
		if !until(ctx, func() bool { return !listens(d.server.Addr()) }) {
			return fmt.Errorf("it did not end: %w", ctx.Err())
		}
	}
	d.server.Kill()
	if sleep(ctx, one.length) {
		d.server.Restart(t)
	}
	return nil
}

// application inserts orders into the outbox, each in a transaction of its own.
type application struct {
	address *postgres.Address
	db      *postgres.Conn // nil while the database is away
}

// insert repeats an order until the database has answered that it is committed. An order whose answer did not come may
// have two rows then, and makes one task nevertheless.
func (a *application) insert(ctx context.Context, o order) (repeats int, err error) {
	options := "{}"
	if o.delay > 0 {
		options = fmt.Sprintf(`{"delay_seconds": %g}`, o.delay.Seconds())
	}
	for ; ; repeats++ {
		if err = a.try(ctx, "INSERT INTO quern.outbox (id, queue, parameters, options) VALUES ($1, $2, $3, $4::jsonb || '{\"report\": true}')",
			o.id, o.queue, o.spec().Parameters, options); err == nil {
			return repeats, nil
		}
		if !sleep(ctx, 50*time.Millisecond) {
			return repeats, fmt.Errorf("insert %s: %w, last: %w", o.id, ctx.Err(), err)
		}
	}
}

func (a *application) try(ctx context.Context, statement string, args ...any) (err error) {
	if a.db == nil {
		if a.db, err = a.address.Connect(ctx, "shop"); err != nil {
			return err
		}
	}
	if _, err = a.db.Exec(ctx, statement, args...); err != nil {
		a.db.Close()
		a.db = nil
	}
	return err
}

// Each order that an application inserts becomes one task with one final state, and the database learns the state. Meanwhile
// the database, Redis and hosts are killed. One of the hosts leads the relay.
func TestRows(t *testing.T) {
	beside(t)
	rows, length, rest := 150, 5*time.Second, 2*time.Second
	s := settings{hosts: 3, concurrency: 16, lease: 2 * time.Second, grace: time.Second, patience: 3 * time.Minute}
	if full {
		rows, length, rest = 10_000, time.Minute, 8*time.Second
		s.concurrency, s.patience = 48, 10*time.Minute
	}
	seed := newSeed(t)
	s.database = newDatabase(t)
	sorts := append(slices.DeleteFunc(slices.Clone(victims(t)), func(sort string) bool { return sort == producersVictim }), databaseVictim)
	plan := newPlan(seed, s, sorts, length, rest/2, rest)
	orders := newOrders(newRandom(seed, 104), rows)
	t.Logf("QUERN_CHAOS_SEED=%d:", seed)
	for _, one := range plan {
		t.Log(one)
		length = max(length, one.at+one.length)
	}
	f := newFleet(t, s)
	through := newProxy(t, f.address.addr())
	p := newProducers(f, through) // for the report; the application needs no Redis

	begun := time.Now()
	inserted := make(chan error, 1)
	go func() { inserted <- f.insert(orders, length, p) }()
	f.suffer(plan, through)
	if err := <-inserted; err != nil {
		t.Fatal(err)
	}
	f.settled(len(orders))
	took := time.Since(begun)
	l := f.audit(orders)
	l.rows()
	t.Logf("\n%s", l.report(seed, p, took))
	l.complain()
	f.leave()
}

// insert inserts orders at an even pace.
func (f *fleet) insert(orders []order, length time.Duration, p *producers) error {
	address, err := postgres.Parse(f.database.url)
	if err != nil {
		return err
	}
	a := &application{address: address}
	defer func() {
		if a.db != nil {
			a.db.Close()
		}
	}()
	begun := time.Now()
	for i, o := range orders {
		sleep(f.ctx, time.Until(begun.Add(length*time.Duration(i)/time.Duration(len(orders)))))
		repeats, err := a.insert(f.ctx, o)
		if p.repeats.Add(int64(repeats)); err != nil {
			return err
		}
	}
	return nil
}

// rows holds the database against the orders: no row waits or is refused, and the end of each task can be read.
func (l *ledger) rows() {
	f := l.fleet
	f.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var waiting, refused int64
	var why string
	ends := map[string]string{}
	db := f.database.server.Connect(f.t, f.database.url)
	defer db.Close()
	look := func() bool {
		err := errors.Join(
			db.Query(ctx, func(v postgres.Row) { waiting, refused = v.Int(0), v.Int(1) },
				"SELECT (SELECT count(*) FROM quern.outbox), (SELECT count(*) FROM quern.outbox_refused)"),
			db.Query(ctx, func(v postgres.Row) { why = v.Text(0) }, "SELECT error FROM quern.outbox_refused LIMIT 1"),
			db.Query(ctx, func(v postgres.Row) { ends[v.Text(0)] = v.Text(1) }, "SELECT id, status FROM quern.ended"))
		return err == nil && waiting == 0 && len(ends) >= len(l.orders)
	}
	if !until(ctx, look) || refused > 0 {
		l.blame("%d rows wait, %d are refused (%s), and %d of %d ends were written", waiting, refused, why, len(ends), len(l.orders))
	}
	for id, o := range l.orders {
		if want := manners[o.manner].status; ends[id] != string(want) {
			l.blame("the database has %q as the end of task %s (%s), want %s", ends[id], id, o.manner, want)
		}
	}
}

//go:embed testdata/book.c
var bookSource string

// bookManifest lets a task fail as often as the coin falls.
const bookManifest = `name: book
queues: [books]
limits: {memory: 1MiB, input: 4KiB, output: 4KiB}
retry: {max_attempts: 1000, base: 50ms, min: 50ms, max: 500ms}
capabilities: {sql: [{database: shop, access: rw}], enqueue: {queues: [alpha]}}
`

// A handler that changes a database and fails half of the time afterwards changes it exactly once for each task, and enqueues one child,
// whatever dies: hosts, the database, Redis.
func TestBooks(t *testing.T) {
	beside(t)
	rows, length, rest := 100, 5*time.Second, 2*time.Second
	s := settings{hosts: 3, concurrency: 16, lease: 2 * time.Second, grace: time.Second, patience: 4 * time.Minute}
	if full {
		rows, length, rest = 5_000, time.Minute, 8*time.Second
		s.concurrency, s.patience = 48, 10*time.Minute
	}
	seed := newSeed(t)
	s.database = newDatabase(t)
	db := s.database.server.Connect(t, s.database.url)
	defer db.Close()
	secrets := t.TempDir()
	_, made := db.Exec(t.Context(), "CREATE TABLE bookings (task text NOT NULL)")
	if err := errors.Join(made, os.Mkdir(filepath.Join(secrets, tenant), 0o700),
		os.WriteFile(filepath.Join(secrets, tenant, "database.shop"), []byte(s.database.url), 0o600)); err != nil {
		t.Fatal(err)
	}
	s.arguments = []string{"--secrets", secrets}
	plan := newPlan(seed, s, []string{hostVictims, redisVictim, databaseVictim}, length, rest/2, rest)
	t.Logf("QUERN_CHAOS_SEED=%d:", seed)
	for _, one := range plan {
		t.Log(one)
		length = max(length, one.at+one.length)
	}
	f := newFleet(t, s)
	f.put("book", bookManifest, runtimetest.BuildCHandler(t, bookSource))
	f.serve("books")

	orders := make([]order, rows)
	for i := range orders {
		orders[i] = order{id: fmt.Sprintf("book-%05d", i), queue: "books", manner: "ok"}
	}
	through := newProxy(t, f.address.addr())
	p := newProducers(f, through)
	enqueued := make(chan error, 1)
	go func() {
		enqueued <- func() error {
			for i, o := range orders {
				sleep(f.ctx, length/time.Duration(rows))
				spec := queue.Spec{Parameters: []byte(o.id), Options: queue.Options{ID: o.id}}
				if err := p.insist(f.ctx, func() error {
					_, err := p.client.Queue("books").EnqueueMany(f.ctx, []queue.Spec{spec})
					return err
				}); err != nil {
					return fmt.Errorf("enqueue order %d: %w", i, err)
				}
			}
			return nil
		}()
	}()
	f.suffer(plan, through)
	if err := <-enqueued; err != nil {
		t.Fatal(err)
	}
	f.settled(2*rows, "books")

	db = s.database.server.Connect(t, s.database.url)
	var all, different int64
	if err := db.Query(f.ctx, func(v postgres.Row) { all, different = v.Int(0), v.Int(1) },
		"SELECT count(*), count(DISTINCT task) FROM bookings"); err != nil || all != int64(rows) || different != all {
		t.Errorf("%d bookings of %d tasks, want %d: %v", all, different, rows, err)
	}
	for _, name := range []string{"books", "alpha"} { // the tasks, and a child of each
		stats, err := manage.New(f.client).Stats(f.ctx, name)
		if err != nil || stats[0].Depth[queue.Complete] != int64(rows) {
			t.Errorf("%s: %v, want %d complete: %v", name, stats[0].Depth, rows, err)
		}
	}
	f.leave()
}
