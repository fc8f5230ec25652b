package relay

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/host/postgres"
	"github.com/quern-project/quern/host/postgres/postgrestest"
	"github.com/quern-project/quern/sdk/outbox"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
	"github.com/quern-project/quern/sdk/queue/worker"
)

// world is a database with an outbox, and a tenant.
type world struct {
	t      testing.TB
	server *postgrestest.Server
	url    string
	db     *postgres.Conn
	client *queue.Client
	redis  *queuetest.Server
}

func setup(t testing.TB) *world {
	t.Helper()
	return setupOn(t, postgrestest.Shared(t))
}

func setupOn(t testing.TB, server *postgrestest.Server) *world {
	t.Helper()
	w := &world{t: t, server: server, redis: queuetest.Shared(t)}
	w.url = w.server.Database(t)
	w.db = w.server.Connect(t, w.url)
	w.exec("DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET bytea_output = escape', current_database()); END $$") // for the relay's connections
	for range 2 {                                                                                                   // it can be repeated
		if err := Init(t.Context(), w.db); err != nil {
			t.Fatal(err)
		}
	}
	w.client = w.tenant(queuetest.Tenant())
	return w
}

func (w *world) tenant(name string) *queue.Client {
	w.t.Helper()
	client, err := queue.New(w.redis.URL(), queue.Config{Tenant: name})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = client.Close() })
	return client
}

// relay runs a relay until stop or the end of the test.
func (w *world) relay(change func(*Config)) (stop func()) {
	w.t.Helper()
	address, err := postgres.Parse(w.url)
	if err != nil {
		w.t.Fatal(err)
	}
	config := Config{
		Database: address, Tenant: w.client.Tenant(), Tenants: map[string]*queue.Client{w.client.Tenant(): w.client},
		Logger: hclog.New(&hclog.LoggerOptions{Output: testWriter{w.t}, Level: hclog.Debug}),
	}
	if change != nil {
		change(&config)
	}
	r, err := New(config)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	stop = func() {
		cancel()
		<-done
	}
	w.t.Cleanup(stop)
	return stop
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(text []byte) (int, error) {
	w.t.Logf("%s", text)
	return len(text), nil
}

func (w *world) exec(statement string, args ...any) {
	w.t.Helper()
	if _, err := w.db.Exec(w.t.Context(), statement, args...); err != nil {
		w.t.Fatal(err)
	}
}

// value returns the first column of the first row of an answer.
func (w *world) value(statement string, args ...any) (text string) {
	w.t.Helper()
	if err := w.db.Query(w.t.Context(), func(v postgres.Row) { text = v.Text(0) }, statement, args...); err != nil {
		w.t.Fatal(err)
	}
	return text
}

func (w *world) depth(name string, status queue.Status) int64 {
	w.t.Helper()
	stats, err := manage.QueueOf(w.client.Queue(name)).Stats(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return stats.Depth[status]
}

// eventually waits until what returns want.
func (w *world) eventually(want string, what func() string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for got := what(); got != want; got = what() {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			w.t.Fatalf("%s, want %s", got, want)
		}
	}
}

func (w *world) waiting() string { return w.value("SELECT count(*) FROM quern.outbox") }

func TestOutbox(t *testing.T) {
	t.Parallel()
	testOutbox(t, setup(t))
}

// The relay works on a newer PostgreSQL.
func TestNewerPostgres(t *testing.T) {
	t.Parallel()
	testOutbox(t, setupOn(t, postgrestest.StartNewer(t)))
}

func testOutbox(t *testing.T, w *world) {
	w.relay(nil)
	w.exec(`INSERT INTO quern.outbox (id, queue, parameters) VALUES ('one', 'q', 'x'), ('bytes', 'q', '\xff00')`)
	w.exec(`INSERT INTO quern.outbox (id, queue, json, options) VALUES ('two', 'q', '{"a": 1.0}', '{"max_attempts": 3, "labels": {"a": "b"}, "priority": 7}')`)
	w.exec(`INSERT INTO quern.outbox (id, queue, options) VALUES ('late', 'q', '{"delay_seconds": 3600}')`)
	w.exec(`SELECT quern.enqueue('q', '{"n": 1}', '{"id": "called"}'), quern.enqueue_bytes('q', '\xfe', '{"id": "octets"}')`)
	w.eventually("0", w.waiting)
	for id, want := range map[string]string{"one": "x", "bytes": "\xff\x00", "two": `{"a": 1.0}`, "late": "", "called": `{"n": 1}`, "octets": "\xfe"} {
		task, err := w.client.Task(t.Context(), id)
		if err != nil || string(task.Parameters) != want {
			t.Errorf("%s: %+v, %v", id, task, err)
		}
	}
	if late := w.depth("q", queue.Scheduled); late != 1 {
		t.Errorf("%d tasks are scheduled, want 1", late)
	}
}

// What sdk/outbox writes becomes the same task as Queue.Enqueue makes.
func TestSDK(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.relay(nil)
	priority := 7
	spec := queue.Spec{Parameters: []byte("\xff\x00"), Options: queue.Options{
		ID: "one", Key: "k", Labels: map[string]string{"a": "b"}, Headers: map[string]string{"h": "v"}, Priority: &priority,
		Retry: queue.Retry{MaxAttempts: 3, Base: time.Second}, Timeout: time.Minute, Deadline: time.Now().Add(time.Hour).Round(time.Second),
	}}
	send := func(statement string, args []any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		w.exec(statement, args...)
	}
	send(outbox.Enqueue("q", spec, outbox.Options{Report: true}))
	send(outbox.Enqueue("q", queue.Spec{}, outbox.Options{Tenant: w.client.Tenant()}))
	send(outbox.Publish("t", []byte("x"), queue.PublishOptions{ID: "p", Attributes: map[string]string{"type": "y"}}, outbox.Options{}))
	w.eventually("0", w.waiting)
	spec.ID = "other"
	if _, err := w.client.Queue("q").EnqueueMany(t.Context(), []queue.Spec{spec}); err != nil {
		t.Fatal(err)
	}
	one, err := w.client.Task(t.Context(), "one")
	if err != nil {
		t.Fatal(err)
	}
	other, err := w.client.Task(t.Context(), "other")
	if err != nil {
		t.Fatal(err)
	}
	of := func(t *queue.Task) []any {
		return []any{t.Status, t.Parameters, t.Key, t.Labels, t.Headers, t.Priority, t.Retry, t.Timeout, t.Deadline}
	}
	if !reflect.DeepEqual(of(one), of(other)) {
		t.Errorf("%+v, want %+v", of(one), of(other))
	}
	if p, err := w.client.Publication(t.Context(), "p"); err != nil || p.Attributes["type"] != "y" || string(p.Payload) != "x" {
		t.Errorf("%+v, %v", p, err)
	}
	for name, err := range map[string]error{
		"queue":  third(outbox.Enqueue("a b", queue.Spec{}, outbox.Options{})),
		"option": third(outbox.Enqueue("q", queue.Spec{Options: queue.Options{Delay: -1}}, outbox.Options{})),
		"topic":  third(outbox.Publish("*", nil, queue.PublishOptions{}, outbox.Options{})),
	} {
		if !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
}

func third(_ string, _ []any, err error) error { return err }

// A transaction that is rolled back leaves no task, and rows of one transaction keep their order.
func TestOutboxTransactions(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.relay(nil)
	w.exec("BEGIN")
	w.exec(`INSERT INTO quern.outbox (id, queue) VALUES ('never', 'q')`)
	w.exec("ROLLBACK")
	other := w.server.Connect(t, w.url)
	slow := func(statement string) {
		t.Helper()
		if _, err := other.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	slow("BEGIN")
	slow(`INSERT INTO quern.outbox (id, queue) VALUES ('slow', 'slow')`) // has a lower seq than the next ones
	for i := range 100 {
		w.exec(`INSERT INTO quern.outbox (id, queue) VALUES ($1, 'q')`, fmt.Sprintf("t%d", i))
	}
	w.eventually("100", func() string { return fmt.Sprint(w.depth("q", queue.Pending)) })
	slow("COMMIT")
	w.eventually("1", func() string { return fmt.Sprint(w.depth("slow", queue.Pending)) })
	w.eventually("0", w.waiting)
	page, err := manage.QueueOf(w.client.Queue("q")).Page(t.Context(), manage.ListOptions{Status: queue.Pending, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	for i, task := range page.Tasks {
		if want := fmt.Sprintf("t%d", 99-i); task.ID != want && task.ID != fmt.Sprintf("t%d", i) {
			t.Fatalf("task %d is %s, want %s", i, task.ID, want)
		}
	}
	if _, err := w.client.Task(t.Context(), "never"); err == nil {
		t.Error("a row that was rolled back became a task")
	}
}

// A row that can be no task is parked and blocks nothing.
func TestRefused(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.relay(nil)
	if _, err := w.client.Queue("q").Enqueue(t.Context(), []byte("other"), queue.Options{ID: "taken"}); err != nil {
		t.Fatal(err)
	}
	for id, c := range map[string]struct{ columns, values, want string }{
		"taken":     {"queue, parameters", "'q', 'mine'", "another task has the ID"},
		"after":     {"queue, options", `'q', '{"after": ["nosuch"]}'`, "does not exist"},
		"tenant":    {"queue, tenant", "'q', 'nosuch'", "--tenants"},
		"option":    {"queue, options", `'q', '{"max_attemps": 3}'`, "max_attempts"},
		"time":      {"queue, options", `'q', '{"at": "yesterday"}'`, "at is of the JSON type string: write a number"},
		"notbefore": {"queue, options", `'q', '{"not_before": "yesterday"}'`, `unknown field "not_before"`},
		"type":      {"queue, options", `'q', '{"max_attempts": "3"}'`, "a whole number"},
		"report":    {"queue, options", `'q', '{"report": "yes"}'`, "true or false"},
		"noend":     {"topic, options", `'t', '{"report": true}'`, "a publication has no end"},
		"id":        {"queue, options", `'q', '{"id": "x"}'`, "column id"},
		"delivery":  {"queue", "'webhook.x'", "webhook."},
		"attribute": {"topic, options", `'t', '{"attribute": {}}'`, "attributes"},
	} {
		w.exec(fmt.Sprintf("INSERT INTO quern.outbox (id, %s) VALUES ('%s', %s)", c.columns, id, c.values))
		w.eventually("1", func() string {
			return w.value("SELECT count(*) FROM quern.outbox_refused WHERE id = $1", id)
		})
		if got := w.value("SELECT error FROM quern.outbox_refused WHERE id = $1", id); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", id, got, c.want)
		}
	}
	w.exec("INSERT INTO quern.outbox (id, queue) VALUES ('good', 'q')")
	w.eventually("0", w.waiting)
	if _, err := w.client.Task(t.Context(), "good"); err != nil {
		t.Error(err)
	}
	w.eventually("outbox alive true notified true refused 12 waiting 0 error", func() string { // as operators see it
		relays, err := listen.NewFleet(w.client).Relays(t.Context())
		if err != nil || len(relays) != 1 {
			return fmt.Sprint(relays, err)
		}
		r := relays[0]
		return strings.TrimSpace(fmt.Sprintf("%s alive %t notified %t refused %d waiting %d error %s", r.Table, r.Alive, r.Notified, r.Refused, r.Waiting, r.Error))
	})
	for _, wrong := range []string{ // the application learns at once
		"(queue, topic) VALUES ('q', 't')", "(id) VALUES ('x')", "(queue) VALUES ('a b')", "(queue, id) VALUES ('q', '..')",
		"(queue, parameters, json) VALUES ('q', 'a', '1')", "(queue, options) VALUES ('q', '[]')",
	} {
		if _, err := w.db.Exec(t.Context(), "INSERT INTO quern.outbox "+wrong); postgres.State(err) != "23514" {
			t.Errorf("%s: %v, want a violation of a check", wrong, err)
		}
	}
}

// Rows for a full queue wait, and hold up no other queue.
func TestFullQueue(t *testing.T) {
	t.Parallel()
	w := setup(t)
	full := w.client.Queue("full")
	if err := full.SetLimit(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	w.relay(nil)
	w.exec("INSERT INTO quern.outbox (queue) SELECT 'full' FROM generate_series(1, 3)")
	w.exec("INSERT INTO quern.outbox (queue) SELECT 'other' FROM generate_series(1, 10)")
	w.eventually("10", func() string { return fmt.Sprint(w.depth("other", queue.Pending)) })
	w.eventually("queue is full", func() string {
		return w.value("SELECT substring(error FROM 'queue is full') FROM quern.relays")
	})
	if err := full.SetLimit(t.Context(), 2); err != nil { // there is room for one more, though not for all that wait
		t.Fatal(err)
	}
	w.eventually("1", w.waiting)
	if err := full.SetLimit(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	w.eventually("0", w.waiting)
	if got := w.depth("full", queue.Pending); got != 3 {
		t.Errorf("%d tasks, want 3", got)
	}
}

// A transaction that has inserted and commits much later is relayed soon after, whatever has happened meanwhile.
func TestLateCommit(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.relay(nil)
	other := w.server.Connect(t, w.url)
	late := func(statement string) {
		t.Helper()
		if _, err := other.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	late("BEGIN")
	late("INSERT INTO quern.outbox (id, queue) VALUES ('late', 'late')")
	ticker := time.NewTicker(lookAgain / 4)
	defer ticker.Stop()
	for i := range 16 { // the leader looks several times
		w.exec("INSERT INTO quern.outbox (id, queue) VALUES ($1, 'q')", fmt.Sprintf("t%d", i))
		<-ticker.C
	}
	w.eventually("16", func() string { return fmt.Sprint(w.depth("q", queue.Pending)) })
	began := time.Now()
	late("COMMIT")
	w.eventually("1", func() string { return fmt.Sprint(w.depth("late", queue.Pending)) })
	if took := time.Since(began); took > sweepInterval/3 {
		t.Errorf("it took %s: only the sweep has found it", took)
	}
}

func TestPublication(t *testing.T) {
	t.Parallel()
	w := setup(t)
	if _, err := w.client.Subscribe(t.Context(), queue.Subscription{ID: "s", Topic: "orders.*", Queue: "s", Active: true}); err != nil {
		t.Fatal(err)
	}
	w.relay(nil)
	w.exec(`INSERT INTO quern.outbox (id, topic, json, options) VALUES ('p', 'orders.new', '{"n":1}', '{"attributes": {"type": "x"}}')`)
	w.eventually("0", w.waiting)
	if got := w.depth("s", queue.Pending); got != 1 {
		t.Errorf("%d tasks, want 1", got)
	}
	p, err := w.client.Publication(t.Context(), "p")
	if err != nil || p.Attributes["type"] != "x" || string(p.Payload) != `{"n":1}` {
		t.Errorf("%+v, %v", p, err)
	}
}

// A task that was relayed, ended and was purged is not enqueued once more when its row is seen again.
func TestOnce(t *testing.T) {
	t.Parallel()
	w := setup(t)
	stop := w.relay(func(c *Config) { c.Hold = time.Hour })
	w.exec("INSERT INTO quern.outbox (id, queue) VALUES ('one', 'q')")
	w.eventually("0", w.waiting)
	stop()
	if life := w.redis.Client(t).TTL(t.Context(), w.client.Tenant()+"_once_one").Val(); life < time.Minute {
		t.Errorf("the ID is remembered for %s", life)
	}
	q := w.client.Queue("q")
	if _, err := q.Cancel(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	if err := q.Delete(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	w.exec(`INSERT INTO quern.outbox OVERRIDING SYSTEM VALUE SELECT seq, id, queue, topic, parameters, json, options, tenant, created FROM quern.outbox_held`)
	w.relay(nil)
	w.eventually("0", w.waiting)
	if _, err := w.client.Task(t.Context(), "one"); !errors.Is(err, queue.ErrNoTask) {
		t.Errorf("the task is back: %v", err)
	}
}

// The ends of tasks with the option report can be read by SQL.
func TestReport(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.relay(nil)
	for _, id := range []string{"good", "bad", "cancelled", "none"} {
		w.exec("INSERT INTO quern.outbox (id, queue, options) VALUES ($1, 'q', jsonb_build_object('report', $1 <> 'none'))", id)
	}
	w.eventually("0", w.waiting)
	q := w.client.Queue("q")
	worked, stop := context.WithCancel(t.Context())
	defer stop()
	if _, err := q.Cancel(t.Context(), "cancelled"); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		done <- worker.Run(worked, w.client, "q", func(_ context.Context, task *queue.Task) ([]byte, error) {
			if task.ID == "bad" {
				return nil, errors.New("no such order\x00")
			}
			return []byte("\xff\x00done"), nil
		})
	}()
	w.eventually("3", func() string {
		if _, err := listen.NewFleet(w.client).Advance(t.Context()); err != nil { // no host runs here
			t.Fatal(err)
		}
		return w.value("SELECT count(*) FROM quern.ended")
	})
	for id, want := range map[string]string{
		"good":      `complete  ff00646f6e65  1`,
		"bad":       `failed error  no such order� 1`,
		"cancelled": `failed cancelled  cancelled before it ran 0`,
	} {
		if got := w.value(`SELECT concat(status, ' ', reason, ' ', encode(result, 'hex'), ' ', error, ' ', attempts) FROM quern.ended WHERE id = $1`, id); got != want {
			t.Errorf("%s: %q, want %q", id, got, want)
		}
	}
	stop()
	<-done
}

// Through a pooler, notifications do not arrive: the relay says so and looks each second. With the URL of the database
// itself beside, they arrive.
func TestPooler(t *testing.T) {
	t.Parallel()
	w := setup(t)
	direct := w.url
	w.url = w.server.Pooler(t)(w.url)
	notified := func() string { // once the lease was renewed
		return w.value("SELECT notified FROM quern.relays WHERE until > clock_timestamp() AND until > since + interval '7 seconds'")
	}
	stop := w.relay(nil)
	w.exec("INSERT INTO quern.outbox (id, queue) VALUES ('one', 'q')")
	w.eventually("0", w.waiting)
	w.eventually("f", notified)
	stop()
	w.relay(func(c *Config) {
		var err error
		if c.Direct, err = postgres.Parse(direct); err != nil {
			t.Fatal(err)
		}
	})
	w.eventually("t", notified)
	w.exec("INSERT INTO quern.outbox (id, queue) VALUES ('two', 'q')")
	w.eventually("0", w.waiting)
	if got := w.depth("q", queue.Pending); got != 2 {
		t.Errorf("%d tasks, want 2", got)
	}
}

// Whatever dies, each row becomes one task: relays, the database and Redis are killed while two relays run and a writer
// inserts.
func TestKills(t *testing.T) {
	t.Parallel()
	w := &world{t: t, server: postgrestest.Start(t), redis: queuetest.Start(t, "--appendonly", "yes", "--appendfsync", "always")}
	w.url = w.server.Database(t)
	w.db = w.server.Connect(t, w.url)
	if err := Init(t.Context(), w.db); err != nil {
		t.Fatal(err)
	}
	w.client = w.tenant(queuetest.Tenant())
	rows := 0
	insert := func() { // repeats what the death of the database has undone, as an application would
		for rows++; ; {
			db := w.reconnect()
			_, err := db.Exec(t.Context(), "INSERT INTO quern.outbox (id, queue) VALUES ($1, 'q') ON CONFLICT DO NOTHING", fmt.Sprintf("r%d", rows))
			if err == nil {
				return
			}
		}
	}
	stops := []func(){w.relay(nil), w.relay(nil)}
	for round := range 4 {
		for range 50 {
			insert()
		}
		switch round {
		case 0:
			stops[0]()
			stops[0] = w.relay(nil)
		case 1:
			w.redis.Restart(t)
		case 2:
			w.server.Restart(t)
		}
		for range 50 {
			insert()
		}
	}
	w.eventually("0", func() string {
		w.reconnect()
		return w.waiting()
	})
	if got := w.depth("q", queue.Pending); got != int64(rows) {
		t.Errorf("%d tasks of %d rows", got, rows)
	}
	if got := w.value("SELECT count(*) FROM quern.outbox_refused"); got != "0" {
		t.Errorf("%s rows are refused", got)
	}
}

// reconnect returns the connection, a new one if the database was restarted.
func (w *world) reconnect() *postgres.Conn {
	w.t.Helper()
	if _, err := w.db.Exec(w.t.Context(), "SELECT 1"); err != nil {
		w.db = w.server.Connect(w.t, w.url)
	}
	return w.db
}

// A role that inherits the rights of a tenant's role belongs to the tenant too. Owners and relays belong to none.
func TestTenantOfInheritedRole(t *testing.T) {
	t.Parallel()
	w := setup(t)
	roles := make(map[string]string)
	for _, name := range []string{"a", "b", "user_a", "user_ab", "relay", "plain"} {
		roles[name] = name + "_" + strings.ReplaceAll(queuetest.Tenant(), "-", "_")
		w.exec("CREATE ROLE " + roles[name])
	}
	for _, name := range []string{"a", "b", "plain"} {
		if err := GrantApplication(t.Context(), w.db, roles[name]); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a", "b"} {
		if err := GrantTenant(t.Context(), w.db, roles[name], name); err != nil {
			t.Fatal(err)
		}
	}
	if err := GrantRelay(t.Context(), w.db, roles["relay"]); err != nil {
		t.Fatal(err)
	}
	w.exec("INSERT INTO quern.tenants VALUES (4000000000::oid::regrole, 'c')") // of a role that was dropped
	w.exec("GRANT " + roles["a"] + " TO " + roles["user_a"] + ", " + roles["user_ab"] + ", " + roles["relay"])
	w.exec("GRANT " + roles["b"] + " TO " + roles["user_ab"])
	w.exec("INSERT INTO quern.outbox (queue, tenant) VALUES ('q', 'a'), ('q', 'b'), ('q', NULL)")
	for name, want := range map[string]string{"a": "a 1", "user_a": "a 1", "relay": "- 3", "plain": "- 3", "user_ab": "42501", "": "- 3"} {
		db := w.server.Connect(t, w.url)
		if name != "" {
			if _, err := db.Exec(t.Context(), "SET SESSION AUTHORIZATION "+roles[name]); err != nil {
				t.Fatal(err)
			}
		}
		got := ""
		err := db.Query(t.Context(), func(v postgres.Row) { got = v.Text(0) },
			"SELECT concat(coalesce(quern.my_tenant(), '-'), ' ', count(id)) FROM quern.outbox")
		if err != nil {
			got = postgres.State(err)
		}
		if got != want {
			t.Errorf("the role %q: %s, want %s: %v", name, got, want, err)
		}
	}
}

// The state of a source that has been silent for a week is removed, and no other. So are its reports, unless a source
// that is not silent relays the same table.
func TestSilentSourceForgotten(t *testing.T) {
	t.Parallel()
	w := setup(t)
	rdb, tenant := w.redis.Client(t), w.client.Tenant()
	day := float64(24 * 60 * 60)
	for name, days := range map[string]float64{"gone": 8, "renamed": 8, "silent": 6} {
		state := fmt.Sprintf(`{"name": %q, "reports": %[1]q, "told": %f}`, name, float64(time.Now().Unix())-days*day)
		reports := &redis.XAddArgs{Stream: tenant + "_reports_" + name, Values: []string{"task", "t"}}
		if err := errors.Join(rdb.HSet(t.Context(), tenant+"_relays", name, state).Err(), rdb.XAdd(t.Context(), reports).Err()); err != nil {
			t.Fatal(err)
		}
	}
	state := listen.RelayState{Name: "shop", Reports: "renamed"}
	if err := listen.NewRelayClient(w.client).Publish(t.Context(), state); err != nil {
		t.Fatal(err)
	}
	names, err := rdb.HKeys(t.Context(), tenant+"_relays").Result()
	slices.Sort(names)
	if err != nil || fmt.Sprint(names) != "[shop silent]" {
		t.Errorf("%v, %v", names, err)
	}
	streams, err := rdb.Keys(t.Context(), tenant+"_reports_*").Result()
	slices.Sort(streams)
	if want := fmt.Sprintf("[%[1]s_reports_renamed %[1]s_reports_silent]", tenant); err != nil || fmt.Sprint(streams) != want {
		t.Errorf("%v, %v, want %s", streams, err, want)
	}
}
