package peers

import (
	"context"
	stdjson "encoding/json"
	"fmt"
	"io"
	"log/slog" //nolint:depguard // River logs to nothing else
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// bestAsynq begins the name of Asynq with the concurrency that is best here for each workload.
const bestAsynq = "Asynq, best"

// goSystems are the queues in Go. Their workers run in this process, as they run in that of who uses them.
func goSystems(b *testing.B) []system {
	defaults := asynqPeer(runtime.NumCPU())
	name := fmt.Sprintf("Asynq, as it comes, %d at a time", runtime.NumCPU())
	first := system{name: name}
	first.measure[drainEmpty], first.measure[drainOrders] = defaults.drain(nothing, 20_000), defaults.drain(ordering, 20_000)
	first.measure[enqueueOne], first.measure[enqueueEight] = defaults.enqueue(1, 10_000), defaults.enqueue(producers, 40_000)
	first.measure[idle] = defaults.idle
	best := func(w workload) (best asynqPeer) { // by the median of three runs
		fastest := 0.0
		for _, concurrency := range []asynqPeer{8, slots, 4 * slots} {
			rates := make([]float64, 3)
			for i := range rates {
				rates[i] = concurrency.drain(w, 20_000)(b)[0]
			}
			if slices.Sort(rates); rates[1] > fastest {
				best, fastest = concurrency, rates[1]
			}
		}
		return best
	}
	empty, orders := best(nothing), best(ordering)
	second := system{name: fmt.Sprintf("%s, %d at a time, with JSON %d", bestAsynq, empty, orders)}
	second.measure[drainEmpty], second.measure[drainOrders] = empty.drain(nothing, 40_000), orders.drain(ordering, 40_000)
	systems := []system{first, second}
	if database := startPostgres(b); database != "" {
		migrateRiver(b, database)
		systems = append(systems, riverSystem(database))
	}
	return systems
}

// order is what guests in Go parse, too.
type order struct {
	ID       string `json:"id"`
	Customer struct {
		Name  string `json:"name"`
		Email string `json:"email"`
	} `json:"customer"`
	Lines []struct {
		SKU      string `json:"sku"`
		Title    string `json:"title"`
		Quantity int    `json:"quantity"`
		Price    int    `json:"price"`
		Weights  []int  `json:"weights"`
	} `json:"lines"`
	Paid   bool    `json:"paid"`
	Note   *string `json:"note"`
	Total  int     `json:"total"`
	Weight int     `json:"weight"`
}

// run is what a handler in Go does with a task.
func (w workload) run(parameters []byte) error {
	if w.name == nothing.name {
		return nil
	}
	var o order
	if err := stdjson.Unmarshal(parameters, &o); err != nil {
		return err
	}
	o.Total, o.Weight = 0, 0
	for _, l := range o.Lines {
		o.Total += l.Quantity * l.Price
		for _, weight := range l.Weights {
			o.Weight += l.Quantity * weight
		}
	}
	output, err := stdjson.Marshal(o)
	if err == nil && string(output) != w.output {
		err = fmt.Errorf("output %s, want %s", output, w.output)
	}
	return err
}

// ledger notes when each task was finished.
type ledger struct {
	next     atomic.Int64
	finished []float64
	done     chan struct{} // closed after the last one
}

func newLedger(tasks int) *ledger {
	return &ledger{finished: make([]float64, tasks), done: make(chan struct{})}
}

func (l *ledger) note() {
	n := int(l.next.Add(1))
	if n <= len(l.finished) { // a task may run twice
		l.finished[n-1] = float64(time.Now().UnixMicro()) / 1e6
	}
	if n == len(l.finished) {
		close(l.done)
	}
}

func (l *ledger) wait(b *testing.B) []float64 {
	b.Helper()
	select {
	case <-l.done:
		return l.finished
	case <-time.After(patience):
		b.Fatalf("%d of %d tasks are finished", l.next.Load(), len(l.finished))
		return nil
	}
}

// measureIdle enqueues one task after the other, and returns how long each waits until it has started, but the first, which waits
// for the worker.
func measureIdle(b *testing.B, tasks int, started <-chan time.Time, enqueue func() error) (waits []float64) {
	b.Helper()
	for range 1 + tasks {
		begun := time.Now()
		if err := enqueue(); err != nil {
			b.Fatal(err)
		}
		select {
		case at := <-started:
			waits = append(waits, milli(at.Sub(begun)))
		case <-time.After(patience):
			b.Fatal("a task does not start")
		}
	}
	return waits[1:]
}

// asynqPeer is a server of Asynq that runs as many tasks at a time. It keeps no results.
type asynqPeer int

// connect starts a Redis, and returns how to reach it. end ends it.
func (asynqPeer) connect(b *testing.B) (to asynq.RedisConnOpt, client *asynq.Client, end func()) {
	b.Helper()
	server := queuetest.Start(b)
	to, err := asynq.ParseRedisURI(server.URL())
	if err != nil {
		b.Fatal(err)
	}
	client = asynq.NewClient(to)
	return to, client, func() {
		_ = client.Close()
		server.Kill()
	}
}

// serve runs handle for each task until what it returns is called.
func (a asynqPeer) serve(b *testing.B, to asynq.RedisConnOpt, handle func(*asynq.Task) error) (end func()) {
	b.Helper()
	server := asynq.NewServer(to, asynq.Config{Concurrency: int(a), LogLevel: asynq.FatalLevel})
	if err := server.Start(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error { return handle(task) })); err != nil {
		b.Fatal(err)
	}
	return server.Shutdown
}

func (a asynqPeer) drain(w workload, tasks int) func(b *testing.B) []float64 {
	return func(b *testing.B) []float64 {
		to, client, end := a.connect(b)
		defer end()
		task := asynq.NewTask(w.name, []byte(w.parameters))
		produce(b, producers, 1, tasks, func(int) error {
			_, err := client.Enqueue(task)
			return err
		})
		ledger := newLedger(tasks)
		defer a.serve(b, to, func(task *asynq.Task) error {
			if err := w.run(task.Payload()); err != nil {
				return err
			}
			ledger.note()
			return nil
		})()
		return rate(ledger.wait(b))
	}
}

func (a asynqPeer) enqueue(producers, tasks int) func(b *testing.B) []float64 {
	return func(b *testing.B) []float64 {
		_, client, end := a.connect(b)
		defer end()
		task := asynq.NewTask(nothing.name, []byte(nothing.parameters))
		return produce(b, producers, 1, tasks, func(int) error {
			_, err := client.Enqueue(task)
			return err
		})
	}
}

func (a asynqPeer) idle(b *testing.B) []float64 {
	to, client, end := a.connect(b)
	defer end()
	started := make(chan time.Time)
	defer a.serve(b, to, func(*asynq.Task) error {
		started <- time.Now()
		return nil
	})()
	return measureIdle(b, 20, started, func() error {
		_, err := client.Enqueue(asynq.NewTask(nothing.name, []byte(nothing.parameters)))
		return err
	})
}

// startPostgres starts a PostgreSQL for the length of the benchmark, and returns its URL: "" if there is none
// on this machine. It forgets the last commits if the machine crashes, as all others here do.
func startPostgres(b *testing.B) (url string) {
	b.Helper()
	program, err := exec.LookPath("postgres")
	if err != nil { // Debian's is in no PATH
		found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
		program = strings.Join(found[:min(1, len(found))], "")
	}
	if program == "" {
		fmt.Fprintln(os.Stderr, "bench-peers: what needs PostgreSQL is left out: there is none here; on Debian: apt-get install postgresql")
		return ""
	}
	if program, err = filepath.EvalSymlinks(program); err != nil {
		b.Fatal(err)
	}
	folder, err := os.MkdirTemp("", "peers-postgres") // which PostgreSQL's user may enter, unlike that of the benchmark
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = os.RemoveAll(folder) })
	as := &syscall.SysProcAttr{}
	if os.Geteuid() == 0 { // PostgreSQL does not run as root
		as.Credential = &syscall.Credential{Uid: 65534, Gid: 65534, NoSetGroups: true}
		if err := os.Chown(folder, 65534, 65534); err != nil {
			b.Fatal(err)
		}
	}
	initialize := exec.Command(filepath.Join(filepath.Dir(program), "initdb"), "--pgdata", folder, "--auth=trust", "--username=peer")
	initialize.SysProcAttr, initialize.Dir = as, folder
	if said, err := initialize.CombinedOutput(); err != nil {
		b.Fatalf("initdb: %v\n%s", err, said)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	_ = listener.Close()
	serve := exec.Command(program, "-D", folder, "-p", strconv.Itoa(port), "-c", "listen_addresses=127.0.0.1",
		"-c", "unix_socket_directories=", "-c", "synchronous_commit=off", "-c", "shared_buffers=512MB")
	serve.SysProcAttr, serve.Dir = as, folder
	startWorker(b, serve)
	url = fmt.Sprintf("postgres://peer@127.0.0.1:%d/postgres", port)
	pool := connectPostgres(b, url)
	defer pool.Close()
	ticker, deadline := time.NewTicker(lookInterval), time.After(time.Minute)
	defer ticker.Stop()
	for pool.Ping(b.Context()) != nil {
		select {
		case <-ticker.C:
		case <-deadline:
			b.Fatal("PostgreSQL does not answer")
		}
	}
	return url
}

// migrateRiver makes River's tables.
func migrateRiver(b *testing.B, database string) {
	b.Helper()
	pool := connectPostgres(b, database)
	defer pool.Close()
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err == nil {
		_, err = migrator.Migrate(b.Context(), rivermigrate.DirectionUp, nil)
	}
	if err != nil {
		b.Fatal(err)
	}
}

func connectPostgres(b *testing.B, url string) *pgxpool.Pool {
	b.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		b.Fatal(err)
	}
	config.MaxConns = 2 * producers
	pool, err := pgxpool.NewWithConfig(b.Context(), config)
	if err != nil {
		b.Fatal(err)
	}
	return pool
}

// riverWorkers are River's workers, which take so many tasks at once. It is the best of those tried.
const riverWorkers = 2000

// riverArgs are the parameters of a task of River.
type riverArgs struct {
	Text string `json:"text"`
}

func (riverArgs) Kind() string { return "task" }

// riverPeer is River with a PostgreSQL.
type riverPeer struct{ database string }

func riverSystem(database string) system {
	r := riverPeer{database}
	s := system{name: fmt.Sprintf("River, %d workers", riverWorkers)}
	s.measure[drainEmpty], s.measure[drainOrders] = r.drain(nothing, 50_000), r.drain(ordering, 40_000)
	s.measure[enqueueOne], s.measure[enqueueEight] = r.enqueue(1, 1, 5000), r.enqueue(producers, 1, 20_000)
	s.measure[enqueueBulk] = r.enqueue(1, bulk, 10*bulk)
	s.measure[idle] = r.idle
	return s
}

// with runs measure with a client and an empty table.
func (r riverPeer) with(b *testing.B, handle func(parameters []byte) error, measure func(*river.Client[pgx.Tx]) []float64) []float64 {
	b.Helper()
	return r.working(b, func(_ context.Context, job *river.Job[riverArgs]) error { return handle([]byte(job.Args.Text)) }, measure)
}

// working is with for workers that need the job.
func (r riverPeer) working(b *testing.B, work func(ctx context.Context, job *river.Job[riverArgs]) error, measure func(*river.Client[pgx.Tx]) []float64) []float64 {
	b.Helper()
	pool := connectPostgres(b, r.database)
	defer pool.Close()
	if _, err := pool.Exec(b.Context(), "TRUNCATE river_job"); err != nil {
		b.Fatal(err)
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(work))
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Logger:        slog.New(slog.NewTextHandler(io.Discard, nil)),
		FetchCooldown: river.FetchCooldownMin,
		Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: riverWorkers}},
		Workers:       workers,
	})
	if err != nil {
		b.Fatal(err)
	}
	return measure(client)
}

// started runs measure while the client works.
func started(b *testing.B, client *river.Client[pgx.Tx], measure func() []float64) []float64 {
	b.Helper()
	if err := client.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	result := measure()
	if err := client.Stop(b.Context()); err != nil {
		b.Fatal(err)
	}
	return result
}

func (r riverPeer) drain(w workload, tasks int) func(b *testing.B) []float64 {
	return func(b *testing.B) []float64 {
		ledger := newLedger(tasks)
		handle := func(parameters []byte) error {
			if err := w.run(parameters); err != nil {
				return err
			}
			ledger.note()
			return nil
		}
		return r.with(b, handle, func(client *river.Client[pgx.Tx]) []float64 {
			for chunk := range slices.Chunk(slices.Repeat([]river.InsertManyParams{{Args: riverArgs{w.parameters}}}, tasks), bulk) {
				if _, err := client.InsertManyFast(b.Context(), chunk); err != nil {
					b.Fatal(err)
				}
			}
			return started(b, client, func() []float64 { return rate(ledger.wait(b)) })
		})
	}
}

func (r riverPeer) enqueue(producers, together, tasks int) func(b *testing.B) []float64 {
	return func(b *testing.B) []float64 {
		args := riverArgs{nothing.parameters}
		return r.with(b, func([]byte) error { return nil }, func(client *river.Client[pgx.Tx]) []float64 {
			return produce(b, producers, together, tasks, func(tasks int) (err error) {
				if tasks == 1 {
					_, err = client.Insert(b.Context(), args, nil)
				} else {
					_, err = client.InsertManyFast(b.Context(), slices.Repeat([]river.InsertManyParams{{Args: args}}, tasks))
				}
				return err
			})
		})
	}
}

func (r riverPeer) idle(b *testing.B) []float64 {
	begun := make(chan time.Time)
	handle := func([]byte) error {
		begun <- time.Now()
		return nil
	}
	return r.with(b, handle, func(client *river.Client[pgx.Tx]) []float64 {
		return started(b, client, func() []float64 {
			return measureIdle(b, 100, begun, func() error {
				_, err := client.Insert(b.Context(), riverArgs{nothing.parameters}, nil)
				return err
			})
		})
	})
}
