package relay

import (
	"context"
	_ "embed"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/host/postgres/postgrestest"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
	"github.com/quern-project/quern/sdk/queue/worker"
)

//go:embed testdata/raquel.py
var raquelDriver string

//go:embed testdata/raquel.c
var raquelGuest string

// raquel is a world with a table of Raquel, and a Python process with the real package.
type raquel struct {
	*world
	python *queuetest.Driver
}

func setupRaquel(t testing.TB) *raquel {
	t.Helper()
	return setupRaquelOn(t, setup(t))
}

func setupRaquelOn(t testing.TB, w *world) *raquel {
	t.Helper()
	r := &raquel{world: w}
	r.python = r.process()
	r.python.Do(nil, "create_all")
	return r
}

// process starts another Python process.
func (r *raquel) process() *queuetest.Driver {
	r.t.Helper()
	packages, err := filepath.Abs("../../build/raquel")
	if err == nil {
		_, err = os.Stat(packages)
	}
	if err != nil {
		runtimetest.Missing(r.t, "left out: there is no Raquel; `make deps-all` brings it")
	}
	return queuetest.StartDriver(r.t, "Raquel", raquelDriver, packages,
		strings.Replace(r.url, "postgres://", "postgresql+psycopg2://", 1))
}

// relayRaquel runs a relay of the table.
func (r *raquel) relayRaquel(change func(*Config)) (stop func()) {
	r.t.Helper()
	return r.relay(func(c *Config) {
		c.Raquel = &Raquel{Table: "jobs"}
		if change != nil {
			change(c)
		}
	})
}

// host runs a host that serves queues with the guest of these tests, until stop or the end of the test.
func (r *raquel) host(queues ...string) (stop func()) { return r.world.host(raquelGuest, queues...) }

func (r *raquel) enqueue(name, payload string, options map[string]any) (id string) {
	r.t.Helper()
	if options == nil {
		options = map[string]any{}
	}
	r.python.Do(&id, "enqueue", name, payload, options)
	return id
}

// row describes all of a row that does not differ from run to run.
func (r *raquel) row(id string) (text string) {
	r.t.Helper()
	err := r.db.Query(r.t.Context(), func(v postgres.Row) {
		text = fmt.Sprintf("%s attempts=%s error=%s trace=%s claimed=%s,%s finished=%s due=%s", v.Text(0), v.Text(1), v.Text(2), v.Text(3), v.Text(4), v.Text(5), v.Text(6), v.Text(7))
	}, `SELECT status, attempts, error, error_trace IS NOT NULL, claimed_by IS NOT NULL, claimed_at IS NOT NULL,
		finished_at IS NOT NULL, CASE WHEN status = 'failed' THEN 'finished + ' || round((scheduled_at - finished_at) / 10.0) * 10
		WHEN attempts > 1 THEN 'after retries' ELSE 'enqueued + ' || round((scheduled_at - enqueued_at) / 10000.0) * 10000 END FROM jobs WHERE id = $1`, id)
	if err != nil {
		r.t.Fatal(err)
	}
	return text
}

// raquelCases are ways in which rows end. A payload has a step for each attempt: see testdata/raquel.c. until is the
// beginning of the row at which the case ends.
var raquelCases = map[string]struct {
	payload string
	options map[string]any
	until   string
}{
	"Success":          {"0", nil, "success"},
	"NoPayload":        {"", nil, "success"},
	"Failed":           {"1 0 boom", map[string]any{"backoff_base": 60_000}, "failed attempts=1"},
	"FailedMin":        {"1 0 boom", map[string]any{"min_retry_delay": 90_000}, "failed attempts=1"},
	"FailedMax":        {"1 0 boom", map[string]any{"backoff_base": 90_000, "max_retry_delay": 70_000}, "failed attempts=1"},
	"FailedTwice":      {"1 0 first;1 0 second;0", map[string]any{"min_retry_delay": 1, "max_retry_delay": 1}, "success attempts=3"},
	"WithinAge":        {"0", map[string]any{"max_age": 60_000}, "success"},
	"Exhausted":        {"1 0 first;1 0 second;1 0 third", map[string]any{"max_retry_count": 3, "min_retry_delay": 1, "max_retry_delay": 20}, "exhausted"},
	"ExhaustedAtOnce":  {"1 0 boom", map[string]any{"max_retry_count": 1}, "exhausted"},
	"Rescheduled":      {"75 60000 later", nil, "queued attempts=1"},
	"RescheduledLeast": {"75 0 later", map[string]any{"min_retry_delay": 70_000}, "queued attempts=1"},
	"RescheduledLate":  {"75 80000 later", map[string]any{"age": 30_000}, "queued attempts=1"},
	"RescheduledAfter": {"1 0 boom;75 60000 later", map[string]any{"min_retry_delay": 1, "max_retry_delay": 1}, "queued attempts=2"},
	"SuccessAfter":     {"1 0 boom;0", map[string]any{"min_retry_delay": 1, "max_retry_delay": 1}, "success"},
	"Expired":          {"0", map[string]any{"age": 10_000, "max_age": 5000}, "expired"},
	"Delayed":          {"0", map[string]any{"delay": 300}, "success"},
}

// A row ends as Raquel's own worker leaves it: this test runs each case with the worker first.
func TestRaquelEnds(t *testing.T) {
	t.Parallel()
	r := setupRaquel(t)
	r.host("q")
	want := make(map[string]string)
	ids := make(map[string]string)
	for name, c := range raquelCases {
		ids[name] = r.enqueue("python", c.payload, c.options)
	}
	r.python.Do(nil, "work", "python", 0.01, 60_000)
	for name, c := range raquelCases {
		r.eventually(c.until, func() string { return r.row(ids[name])[:len(c.until)] })
		want[name] = r.row(ids[name])
		t.Logf("%s: %s", name, want[name])
	}
	r.relayRaquel(nil)
	for name, c := range raquelCases {
		ids[name] = r.enqueue("q", c.payload, c.options)
	}
	for name, c := range raquelCases {
		r.eventually(c.until, func() string { return r.row(ids[name])[:len(c.until)] })
		// A handler in C leaves no trace of an error.
		if got := r.row(ids[name]); got != strings.Replace(want[name], "trace=t", "trace=f", 1) {
			t.Errorf("%s: %s, want %s", name, got, want[name])
		}
	}
}

// state returns the status and the attempts of a row.
func (r *raquel) state(id string) string {
	return r.value("SELECT concat_ws(' ', status, attempts) FROM jobs WHERE id = $1", id)
}

// by returns state, and who has claimed the row: python, dead, or the tenant.
func (r *raquel) by(id string) string {
	return r.state(id) + " " + strings.Replace(r.value("SELECT claimed_by FROM jobs WHERE id = $1", id), "quern:"+r.client.Tenant(), "quern", 1)
}

func (r *raquel) running(id string) bool {
	task, err := r.client.Summary(r.t.Context(), id)
	return err == nil && task.Status == queue.Started
}

// A client of Raquel reads what becomes of its jobs, and cancels those that wait.
func TestRaquelClient(t *testing.T) {
	t.Parallel()
	r := setupRaquel(t)
	r.relayRaquel(nil)
	r.host("q")
	late := r.enqueue("q", "0", map[string]any{"delay": 3_600_000})
	done := r.enqueue("q", "0", nil)
	failed := r.enqueue("q", "1 0 boom", map[string]any{"min_retry_delay": 90_000})
	runs := r.enqueue("q", "0 600000", nil)
	r.eventually("success 1", func() string { return r.state(done) })
	r.eventually("failed 1", func() string { return r.state(failed) })
	r.eventually("true", func() string { return fmt.Sprint(r.running("raquel-" + runs + "-0")) })
	for id, want := range map[string]bool{late: true, failed: true, done: false, runs: false} {
		var cancelled bool
		if r.python.Do(&cancelled, "cancel", id); cancelled != want {
			t.Errorf("cancel of %s: %t", r.state(id), cancelled)
		}
	}
	var job struct {
		Status, Error string
		Attempts      int
	}
	if r.python.Do(&job, "get", failed); job.Status != "cancelled" || job.Attempts != 1 || job.Error != "boom" {
		t.Errorf("%+v", job)
	}
	var stats map[string]int
	r.python.Do(&stats, "stats", "q")
	if want := map[string]int{"queued": 0, "claimed": 1, "success": 1, "failed": 0, "expired": 0, "exhausted": 0, "cancelled": 2}; !maps.Equal(stats, want) {
		t.Errorf("%v, want %v", stats, want)
	}
	if _, err := r.client.Queue("q").Cancel(t.Context(), "raquel-"+runs+"-0"); err != nil {
		t.Fatal(err)
	}
	r.eventually("cancelled 0 quern", func() string { return r.by(runs) })
}

// Hosts and workers of Raquel share a table: each row runs once, and a change of the leader changes nothing.
func TestRaquelShared(t *testing.T) {
	t.Parallel()
	r := setupRaquel(t)
	r.host("q")
	const rows = 600
	r.exec(`INSERT INTO jobs (id, queue, payload, status, enqueued_at, scheduled_at, attempts)
		SELECT gen_random_uuid(), 'q', '0 2', 'queued', 0, n, 0 FROM generate_series(1, $1) n`, rows)
	stop := r.relayRaquel(nil)
	r.python.Do(nil, "work", "q", 0.01, 60_000)
	for n := range 3 {
		r.eventually("t", func() string {
			return r.value("SELECT count(*) > $1 FROM jobs WHERE status = 'success'", (n+1)*rows/5)
		})
		stop()
		stop = r.relayRaquel(nil)
	}
	r.eventually(fmt.Sprint(rows), func() string { return r.value("SELECT count(*) FROM jobs WHERE status = 'success' AND attempts = 1") })
	var python []string
	r.python.Do(&python, "get_worked")
	hosts := int(r.depth("q", queue.Complete))
	if t.Logf("%d in Python, %d in hosts", len(python), hosts); len(python)+hosts != rows || len(python) == 0 || hosts == 0 {
		t.Errorf("%d in Python and %d in hosts, want %d together, and some in each", len(python), hosts, rows)
	}
}

// What a dead worker has claimed runs in a host after a minute, but nothing that a worker still runs.
func TestRaquelDeadWorker(t *testing.T) {
	t.Parallel()
	r := setupRaquel(t)
	r.host("q")
	dead, alive := r.enqueue("q", "0", nil), r.enqueue("q", "0", nil)
	for range 2 {
		r.python.Do(nil, "claim", "q")
	}
	lock := r.server.Connect(t, r.url) // a worker holds one while it runs a job
	for _, statement := range []string{"BEGIN", "SELECT FROM jobs WHERE id = '" + alive + "' FOR UPDATE"} {
		if _, err := lock.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	r.relayRaquel(nil)
	marker := func() {
		t.Helper()
		id := r.enqueue("q", "0", nil)
		r.eventually("success 1", func() string { return r.state(id) })
	}
	marker()
	if got := r.by(dead); got != "claimed 0 dead" {
		t.Errorf("within a minute: %s", got)
	}
	r.exec("UPDATE jobs SET claimed_at = claimed_at - 60000 WHERE id = $1", dead)
	r.eventually("success 1 quern", func() string { return r.by(dead) })
	if _, err := lock.Exec(t.Context(), "UPDATE jobs SET claimed_at = claimed_at - 60000 WHERE id = $1", alive); err != nil {
		t.Fatal(err)
	}
	marker()
	if got := r.by(alive); got != "claimed 0 dead" {
		t.Errorf("a row that a worker runs: %s", got)
	}
	if _, err := lock.Exec(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	r.eventually("success 1 quern", func() string { return r.by(alive) })
}

// While no relay runs, workers take what it has claimed; the relay that comes back cancels the tasks of these rows.
func TestRaquelLostRow(t *testing.T) {
	t.Parallel()
	r := setupRaquel(t)
	r.host("q")
	r.relayRaquel(nil)
	id := r.enqueue("q", "0 600000", nil)
	task := "raquel-" + id + "-0"
	r.eventually("true", func() string { return fmt.Sprint(r.running(task)) })
	r.exec("UPDATE jobs SET claimed_by = 'python', claimed_at = claimed_at + 1 WHERE id = $1", id) // as a worker would
	r.eventually("true", func() string { return fmt.Sprint(r.gone(task)) })
	// The worker dies, and the row comes back without an attempt: the task that was cancelled does not count.
	r.exec("UPDATE jobs SET payload = '0' WHERE id = $1", id)
	r.exec("UPDATE jobs SET claimed_at = claimed_at - 60000 WHERE id = $1", id)
	r.eventually("success 1 quern", func() string { return r.by(id) })
}

// Rows that no host runs are given back, so that workers of Raquel run them.
func TestRaquelGivesBack(t *testing.T) {
	t.Parallel()
	r := setupRaquel(t)
	stop := r.host("q", "paused")
	stopRelay := r.relayRaquel(nil)
	r.enqueue("q", "0", nil)
	r.eventually("1", func() string { return fmt.Sprint(r.depth("q", queue.Complete)) })
	if err := r.client.Queue("paused").Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	waits := r.enqueue("paused", "0", nil)
	stopRelay()
	stop()
	// The relay claimed this row before the host ended.
	id := r.enqueue("q", "0", nil)
	r.exec("UPDATE jobs SET status = 'claimed', claimed_by = $2, claimed_at = 1 WHERE id = $1", id, "quern:"+r.client.Tenant())
	r.relayRaquel(nil)
	r.eventually("queued 0", func() string { return r.state(id) })
	if got := r.state(waits); got != "queued 0" {
		t.Errorf("a row of a paused queue: %s", got)
	}
	r.python.Do(nil, "work", "q", 0.01, 60_000)
	r.eventually("success 1 python", func() string { return r.by(id) })
}

// When a queue takes no more, rows are given back, but not one whose task runs already.
func TestRaquelFullKeepsRunning(t *testing.T) {
	t.Parallel()
	r := setupRaquel(t)
	r.host("q")
	stop := r.relayRaquel(nil)
	id := r.enqueue("q", "0 3000", nil)
	task := "raquel-" + id + "-0"
	r.eventually("true", func() string { return fmt.Sprint(r.running(task)) })
	before, err := r.client.Summary(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	stop()
	if err := r.client.Queue("q").SetLimit(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	for range 10 { // an earlier leader has claimed them, and the next one enqueues them with the running one
		r.enqueue("q", "0", nil)
	}
	r.exec("UPDATE jobs SET status = 'claimed', claimed_by = $1, claimed_at = 1 WHERE status = 'queued'", "quern:"+r.client.Tenant())
	r.relayRaquel(nil)
	r.eventually("success 1", func() string { return r.state(id) })
	r.eventually("11", func() string { return r.value("SELECT count(*) FROM jobs WHERE status = 'success'") })
	if after, err := r.client.Summary(t.Context(), task); err != nil || !after.Created.Equal(before.Created) {
		t.Errorf("the task was cancelled and made anew: %+v, %v", after, err)
	}
}

// insert inserts a job by SQL, as Raquel's documentation shows, and returns its ID.
func (r *raquel) insert(payload string, more ...string) string {
	r.t.Helper()
	names, values := "queue, status, payload", "'q', 'queued', '"+payload+"'"
	for _, one := range more {
		name, value, _ := strings.Cut(one, "=")
		names, values = names+", "+name, values+", "+value
	}
	return r.value("INSERT INTO jobs (id, " + names + ") VALUES (gen_random_uuid(), " + values + ") RETURNING id")
}

// raquelDocumented makes the table of Raquel's documentation.
const raquelDocumented = `CREATE TABLE jobs (
		id UUID PRIMARY KEY DEFAULT gen_random_uuid(), queue TEXT NOT NULL DEFAULT 'default', payload TEXT,
		status TEXT NOT NULL DEFAULT 'queued', max_age INTEGER, max_retry_count INTEGER, min_retry_delay INTEGER,
		max_retry_delay INTEGER, backoff_base INTEGER,
		enqueued_at BIGINT NOT NULL DEFAULT extract(epoch FROM now()) * 1000,
		scheduled_at BIGINT NOT NULL DEFAULT extract(epoch FROM now()) * 1000, attempts INTEGER NOT NULL DEFAULT 0,
		error TEXT, error_trace TEXT, claimed_by TEXT, claimed_at BIGINT, finished_at BIGINT)`

// The table of Raquel's documentation has types and defaults of its own. Options that are NULL count as Raquel's
// defaults; its own worker cannot retry such a row.
func TestRaquelDocumentedTable(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.exec(raquelDocumented)
	r := setupRaquelOn(t, w)
	r.host("q")
	r.relayRaquel(nil)
	ids := map[string]string{ // by status, attempts, and milliseconds until the next attempt
		"success 1": r.insert("0"), "failed 5 32000": r.insert("1 0 boom", "attempts=4"),
		"failed 13 8192000":    r.insert("1 0 boom", "attempts=12"),
		"failed 1001 43200000": r.insert("1 0 boom", "attempts=1000"), "exhausted 1": r.insert("1 0 boom", "max_retry_count=0"),
		"expired 0": r.insert("0", "max_age=1", "scheduled_at=1"),
	}
	for want, id := range ids {
		r.eventually(want, func() string {
			return r.value(`SELECT concat_ws(' ', status, attempts, CASE WHEN status = 'failed' THEN scheduled_at - finished_at END)
				FROM jobs WHERE id = $1`, id)
		})
	}
	var job struct{ Status string }
	if r.python.Do(&job, "get", ids["success 1"]); job.Status != "success" {
		t.Errorf("the client reads %q", job.Status)
	}
}

// Ends that Raquel's worker does not know.
func TestRaquelOtherEnds(t *testing.T) {
	t.Parallel()
	r := setupRaquel(t)
	r.host("q")
	r.relayRaquel(nil)
	fatal := r.enqueue("q", "65 0 never", nil)
	trapped := r.enqueue("q", "1000", map[string]any{"backoff_base": 90_000})
	asked := r.enqueue("q", "1 70000 boom", nil)
	r.eventually("exhausted 1", func() string { return r.state(fatal) })
	r.eventually("failed 1", func() string { return r.state(trapped) })
	r.eventually("failed 1", func() string { return r.state(asked) })
	for id, want := range map[string]string{
		fatal:   "exhausted attempts=1 error=never trace=f claimed=t,t finished=t due=enqueued + 0",
		asked:   "failed attempts=1 error=boom trace=f claimed=t,t finished=t due=finished + 70000",
		trapped: "failed attempts=1 error=unreachable (",
	} {
		if got := r.row(id); !strings.HasPrefix(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if trace := r.value("SELECT error_trace FROM jobs WHERE id = $1", trapped); trace == "" {
		t.Error("a trap leaves no trace")
	}

	// max_age is over before a listener of the queue begins.
	late := r.enqueue("slow", "0", map[string]any{"max_age": 3000})
	r.listener("slow")
	r.eventually("expired 0", func() string { return r.state(late) })
}

// A worker in Go can reject a task; then others may claim the row at once.
func TestRaquelRejected(t *testing.T) {
	t.Parallel()
	r := setupRaquel(t)
	r.python.Do(nil, "enqueue", "python", "reject", map[string]any{})
	r.python.Do(nil, "one", "python")
	want := r.row(r.value("SELECT id FROM jobs"))
	listener, _ := r.listener("q")
	stop := r.relayRaquel(nil)
	id := r.enqueue("q", "0", nil)
	task, err := listener.Listen(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.client.Queue("q").Pause(t.Context()); err != nil { // so that the row is not claimed again
		t.Fatal(err)
	}
	if err := worker.NewProcessor(r.client, task).Reject(t.Context(), "not here"); err != nil {
		t.Fatal(err)
	}
	r.eventually("queued 1", func() string { return r.state(id) })
	stop()
	if got := r.row(id); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// listener registers a worker in Go for a queue, which runs nothing by itself, until stop or the end of the test.
func (w *world) listener(name string) (listener *worker.Listener, stop func()) {
	w.t.Helper()
	listener, err := worker.NewListener(w.t.Context(), w.client, name)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = listener.Run(ctx)
	}()
	stop = func() {
		cancel()
		<-done
		_ = listener.Close(context.Background())
	}
	w.t.Cleanup(stop)
	return listener, stop
}

// cutCancel makes the answer of the next cancel of a task lost.
func cutCancel(proxy *queuetest.Proxy, name, task string) {
	proxy.CutReplies(1, fmt.Sprintf("$%d\r\n%s\r\n$%d\r\n%s\r\n", len(name), name, len(task), task))
}

// A row whose task was cancelled, but without an answer, is given back like others.
func TestRaquelCancelUnanswered(t *testing.T) {
	t.Parallel()
	r := setupRaquel(t)
	proxy := queuetest.NewProxy(t, r.redis)
	_, stop := r.listener("q")
	r.relayRaquel(func(c *Config) { c.Tenants = map[string]*queue.Client{c.Tenant: r.through(proxy)} })
	id := r.enqueue("q", "0", nil)
	r.eventually("1", func() string { return fmt.Sprint(r.depth("q", queue.Pending)) })
	cutCancel(proxy, "q", "raquel-"+id+"-0")
	stop()
	r.eventually("queued 0 0", func() string { return r.state(id) + fmt.Sprint(" ", r.depth("q", queue.Pending)) })
	if proxy.Cuts() != 1 {
		t.Errorf("%d answers were lost, want 1", proxy.Cuts())
	}
	r.host("q")
	r.eventually("success 1", func() string { return r.state(id) })
}

// through returns a client of the tenant through a proxy.
func (w *world) through(proxy *queuetest.Proxy) *queue.Client {
	w.t.Helper()
	client, err := queue.New(proxy.URL(), queue.Config{Tenant: w.client.Tenant()})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = client.Close() })
	return client
}

// While the database or Redis is away, rows wait; no end is lost. A task that Redis has lost runs again.
func TestRaquelOutage(t *testing.T) {
	t.Parallel()
	w := &world{t: t, server: postgrestest.Start(t), redis: queuetest.Start(t)}
	w.url = w.server.Database(t)
	w.db = w.server.Connect(t, w.url)
	if err := Init(t.Context(), w.db); err != nil {
		t.Fatal(err)
	}
	w.client = w.tenant(queuetest.Tenant())
	r := setupRaquelOn(t, w)
	r.host("q")
	r.relayRaquel(nil)
	before := r.enqueue("q", "0 2000", nil)
	r.eventually("true", func() string { return fmt.Sprint(r.running("raquel-" + before + "-0")) })
	r.server.Restart(t)
	r.reconnect()
	r.python = r.process() // its own connections are broken
	r.eventually("success 1", func() string { return r.state(before) })
	lost := r.enqueue("q", "0 10000", nil)
	r.eventually("true", func() string { return fmt.Sprint(r.running("raquel-" + lost + "-0")) })
	r.redis.Kill() // and all that it had
	during := r.enqueue("q", "0", nil)
	r.redis.Restart(t)
	r.eventually("success 1", func() string { return r.state(during) })
	r.eventually("success 1", func() string { return r.state(lost) })
}

// The relay works through a pooler.
func TestRaquelPooler(t *testing.T) {
	t.Parallel()
	r := setupRaquel(t)
	r.host("q")
	r.url = r.server.Pooler(t)(r.url)
	r.relayRaquel(nil)
	id := r.enqueue("q", "0", nil)
	r.eventually("success 1", func() string { return r.state(id) })
}

// The relay works on a newer PostgreSQL.
func TestRaquelNewer(t *testing.T) {
	t.Parallel()
	r := setupRaquelOn(t, setupOn(t, postgrestest.StartNewer(t)))
	if err := InitRaquel(t.Context(), r.db, "jobs"); err != nil {
		t.Fatal(err)
	}
	r.host("q")
	r.relayRaquel(nil)
	id := r.enqueue("q", "1 0 boom;0", map[string]any{"min_retry_delay": 1, "max_retry_delay": 1})
	r.eventually("success 2", func() string { return r.state(id) })
}

// A queue that takes no more leaves the rest of its rows to workers of Raquel, and a row that can be no task ends.
func TestRaquelRefused(t *testing.T) {
	t.Parallel()
	r := setupRaquel(t)
	r.listener("q")
	if err := r.client.Queue("q").SetLimit(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		r.enqueue("q", "0", nil)
	}
	r.relayRaquel(nil)
	r.eventually("3", func() string { return r.value("SELECT count(*) FROM jobs WHERE status = 'claimed'") })
	large := r.value(`INSERT INTO jobs (id, queue, payload, status, enqueued_at, scheduled_at, attempts)
		VALUES (gen_random_uuid(), 'other', repeat('x', 64 * 1024 * 1024 + 1), 'queued', 0, 0, 0) RETURNING id`)
	r.listener("other")
	r.eventually("exhausted 1", func() string { return r.state(large) })
	if got := r.value("SELECT error FROM jobs WHERE id = $1", large); got != "the payload has 67108865 bytes: a task may have 64MiB" {
		t.Error(got)
	}
}

// A partitioned table is refused, because no index can be made on it beside writers.
func TestRaquelPartitioned(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.exec("CREATE TABLE jobs (id uuid, queue text) PARTITION BY LIST (queue)")
	if err := InitRaquel(t.Context(), w.db, "jobs"); err == nil || !strings.Contains(err.Error(), "jobs is partitioned") {
		t.Error(err)
	}
}
