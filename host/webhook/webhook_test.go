package webhook_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/quern-project/quern/host/trace"
	"github.com/quern-project/quern/host/trace/tracetest"
	"github.com/quern-project/quern/host/webhook"
	"github.com/quern-project/quern/metrics"
	"github.com/quern-project/quern/runtime/egress"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "8") // they wait more than they compute; -parallel still counts
	code := queuetest.Main(m)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			println(err.Error())
			code = 1
		}
	}
	os.Exit(code)
}

// world is a tenant with a runner and a server that answers as the test says.
type world struct {
	*queue.Client
	t      *testing.T
	ctx    context.Context
	server *httptest.Server
	stop   func() // ends the runner
	sent   *commands

	mu       sync.Mutex
	requests []request
	answer   func(w http.ResponseWriter, r request)
}

type request struct {
	*http.Request
	body []byte
}

var secrets = map[string]string{
	"webhook.old": "whsec_" + base64.StdEncoding.EncodeToString([]byte("0123456789abcdef01234567")),
	"webhook.new": "whsec_" + base64.StdEncoding.EncodeToString([]byte("abcdefghijklmnopqrstuvwx")),
	"webhook.key": "Bearer s3cret", "webhook.bad": "???",
}

func setup(t *testing.T, change func(*webhook.Config)) *world {
	t.Helper()
	w := idle(t)
	w.start(change)
	return w
}

// idle is a world without a runner yet.
func idle(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	rdb, sent := queuetest.Shared(t).Client(t), &commands{}
	rdb.AddHook(sent)
	client, err := queue.NewFromRedis(rdb, queue.Config{Tenant: queuetest.Tenant(), Lease: 2 * time.Second})
	check(t, err)
	t.Cleanup(func() { _ = client.Close() })
	check(t, listen.Prepare(ctx, client))
	w := &world{Client: client, t: t, ctx: ctx, sent: sent, answer: func(http.ResponseWriter, request) {}}
	w.server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got := request{r, body}
		w.mu.Lock()
		w.requests = append(w.requests, got)
		answer := w.answer
		w.mu.Unlock()
		answer(rw, got)
	}))
	t.Cleanup(w.server.Close)
	return w
}

func (w *world) start(change func(*webhook.Config)) {
	w.t.Helper()
	sender := egress.New(egress.Config{Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, MaxResponse: 64 << 10, Truncate: true, MaxConns: 100})
	w.t.Cleanup(sender.Close)
	m, err := metrics.New(prometheus.NewRegistry(), metrics.Config{})
	check(w.t, err)
	config := webhook.Config{HTTP: sender, Metrics: m, Secret: func(name string) ([]byte, error) {
		value, ok := secrets[name]
		if !ok {
			return nil, fmt.Errorf("%w: as a host says it", service.ErrNotFound)
		}
		return []byte(value), nil
	}}
	if change != nil {
		change(&config)
	}
	run, end := context.WithCancel(context.WithoutCancel(w.ctx))
	done := make(chan struct{})
	go func() { defer close(done); webhook.New(w.Client, config).Run(run, run) }()
	moved := make(chan struct{})
	go func() { defer close(moved); w.move(run) }()
	w.stop = func() { end(); <-done; <-moved }
	w.t.Cleanup(w.stop)
}

// move does what hosts do for tasks that are due.
func (w *world) move(ctx context.Context) {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		queues, _ := w.Queues(ctx)
		for name := range queues {
			_, _ = listen.NewFleet(w.Client).EnqueueDue(ctx, name)
		}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) answers(answer func(rw http.ResponseWriter, r request)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = answer
}

func (w *world) seen() []request {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.requests)
}

func (w *world) subscribe(id string, hook queue.Webhook, retry queue.Retry) {
	w.t.Helper()
	if hook.URL == "" {
		hook.URL = w.server.URL + "/hook"
	}
	_, err := w.Subscribe(w.ctx, queue.Subscription{ID: id, Topic: "orders", Webhook: &hook, Retry: retry})
	check(w.t, err)
}

func (w *world) publish(payload string) {
	w.t.Helper()
	_, err := w.Publish(w.ctx, "orders", []byte(payload), queue.PublishOptions{Attributes: map[string]string{"type": "made"}})
	check(w.t, err)
}

// task is the only delivery of a subscription, when it is finished.
func (w *world) task(subscription string) *queue.Task {
	w.t.Helper()
	var ids []*queue.Task
	w.eventually("there is a delivery", func() bool {
		var err error
		ids, err = manage.New(w.Client).Queue("webhook."+subscription).List(w.ctx, manage.ListOptions{Limit: 10})
		return err == nil && len(ids) == 1
	})
	task, err := w.Wait(w.ctx, ids[0].ID)
	check(w.t, err)
	return task
}

func (w *world) eventually(what string, condition func() bool) {
	w.t.Helper()
	require.Eventually(w.t, condition, 2*time.Minute, 5*time.Millisecond, what)
}

var fast = queue.Retry{MaxAttempts: 3, Base: time.Millisecond, Min: time.Millisecond}

// The request has the payload and what signs it, by all secrets; the response is the result.
func TestDelivery(t *testing.T) {
	w := setup(t, nil)
	w.answers(func(rw http.ResponseWriter, _ request) {
		rw.Header().Set("X-Seen", "yes")
		rw.WriteHeader(http.StatusAccepted)
		_, _ = rw.Write([]byte(strings.Repeat("x", 100_000)))
	})
	w.subscribe("s", queue.Webhook{
		Method: "PUT", Headers: map[string]string{"X-Own": "1"}, SecretHeaders: map[string]string{"Authorization": "webhook.key"}, Secrets: []string{"webhook.old", "webhook.new"},
	}, queue.Retry{})
	w.publish(`{"id":7}`)
	task := w.task("s")
	var result webhook.Answer
	check(t, json.Unmarshal(task.Result, &result))
	if task.Status != queue.Complete || result.Status != http.StatusAccepted || len(result.Body) != 64<<10 || result.Headers["X-Seen"][0] != "yes" || task.Plugin != webhook.PluginName {
		t.Errorf("%s, %d, %d bytes, %v", task.Status, result.Status, len(result.Body), result.Headers)
	}
	r := w.seen()[0]
	header := func(name, want string) {
		t.Helper()
		if got := r.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	header("Webhook-Id", task.ID)
	header("X-Own", "1")
	header("Quern-Topic", "orders")
	header("Quern-Publication", task.Headers["quern-publication"])
	if task.Headers["quern-publication"] == "" {
		t.Error("the task has no publication")
	}
	header("Authorization", "Bearer s3cret")
	header("Content-Type", "application/json")
	header("Ce-Type", "made")
	if r.Method != "PUT" || r.URL.Path != "/hook" || string(r.body) != `{"id":7}` {
		t.Errorf("%s %s %s", r.Method, r.URL, r.body)
	}
	if signed := strings.Fields(r.Header.Get("Webhook-Signature")); len(signed) != 2 || !strings.HasPrefix(signed[0], "v1,") || signed[0] == signed[1] {
		t.Errorf("signatures %q", signed)
	}
	if second, err := strconv.ParseInt(r.Header.Get("Webhook-Timestamp"), 10, 64); err != nil || time.Since(time.Unix(second, 0)).Abs() > time.Minute {
		t.Errorf("timestamp %q", r.Header.Get("Webhook-Timestamp"))
	}
}

// A destination that asks one delivery for a pause gets none of the others meanwhile.
func TestHeldDestination(t *testing.T) {
	const places = 5
	w := setup(t, func(c *webhook.Config) { c.Destination = places })
	all := make(chan struct{})
	var n atomic.Int64
	w.answers(func(rw http.ResponseWriter, _ request) {
		if n.Add(1) == places {
			close(all)
		}
		<-all
		rw.Header().Set("Retry-After", "3600")
		rw.WriteHeader(http.StatusTooManyRequests)
	})
	w.subscribe("s", queue.Webhook{}, fast)
	for range 4 * places {
		w.publish("x")
	}
	w.eventually("they were put off", func() bool {
		stats, err := manage.New(w.Client).Queue("webhook.s").Stats(w.ctx)
		return err == nil && stats.Depth[queue.Scheduled] == places
	})
	well := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer well.Close()
	w.subscribe("well", queue.Webhook{URL: well.URL}, fast)
	w.publish("x")
	if task := w.task("well"); task.Status != queue.Complete || n.Load() != places {
		t.Errorf("%s; %d requests", task.Status, n.Load())
	}
}

// A date in Retry-After is read by the clock of the server, which may be another one than the host's.
func TestRetryAfterDate(t *testing.T) {
	w := setup(t, nil)
	theirs := time.Now().Add(-30 * 24 * time.Hour)
	w.answers(func(rw http.ResponseWriter, _ request) {
		rw.Header().Set("Date", theirs.UTC().Format(http.TimeFormat))
		rw.Header().Set("Retry-After", theirs.Add(30*time.Minute).UTC().Format(http.TimeFormat))
		rw.WriteHeader(http.StatusTooManyRequests)
	})
	w.subscribe("s", queue.Webhook{}, fast)
	w.publish("x")
	var wait time.Duration
	w.eventually("it is put off", func() bool {
		tasks, err := manage.New(w.Client).Queue("webhook.s").List(w.ctx, manage.ListOptions{Status: queue.Scheduled})
		if err != nil || len(tasks) != 1 {
			return false
		}
		wait = tasks[0].ETA.Sub(tasks[0].Updated)
		return true
	})
	if wait < 29*time.Minute || wait > 31*time.Minute {
		t.Errorf("it waits %s, want 30 minutes", wait)
	}
}

// What becomes of a delivery follows from the status.
func TestAnswers(t *testing.T) {
	w := setup(t, nil)
	for name, hook := range map[string]queue.Webhook{
		"retried": {}, "never": {}, "limited": {}, "final": {Final: true}, "later": {Final: true}, "expected": {Expect: []int{302}},
	} {
		hook.URL = w.server.URL + "/" + name
		w.subscribe(name, hook, fast)
	}
	counts := map[string]*atomic.Int64{}
	answers := map[string][]int{"retried": {500, 302, 204}, "never": {500}, "limited": {429, 429, 503, 200}, "final": {404}, "later": {408, 200}, "expected": {200, 302}}
	for name := range answers {
		counts[name] = &atomic.Int64{}
	}
	w.answers(func(rw http.ResponseWriter, r request) {
		name := strings.TrimPrefix(r.URL.Path, "/")
		n := int(counts[name].Add(1)) - 1
		status := answers[name][min(n, len(answers[name])-1)]
		if status == 429 || status == 503 {
			rw.Header().Set("Retry-After", "0")
		}
		rw.WriteHeader(status)
	})
	w.publish("x")
	for name, want := range map[string]struct {
		status   queue.Status
		attempts int
		says     string
	}{
		"retried": {queue.Complete, 3, `"status":204`}, "never": {queue.Failed, 3, "500 Internal Server Error"}, "limited": {queue.Complete, 1, `"status":200`},
		"final": {queue.Failed, 1, "404 Not Found"}, "later": {queue.Complete, 2, `"status":200`}, "expected": {queue.Complete, 2, `"status":302`},
	} {
		task := w.task(name)
		if task.Status != want.status || task.Attempts != want.attempts || !strings.Contains(string(task.Result)+task.Error, want.says) {
			t.Errorf("%s: %s after %d attempts: %s%s", name, task.Status, task.Attempts, task.Result, task.Error)
		}
	}
}

// A server that is gone ends the subscription, and says so.
func TestGone(t *testing.T) {
	w := setup(t, nil)
	w.answers(func(rw http.ResponseWriter, _ request) { rw.WriteHeader(http.StatusGone) })
	w.subscribe("s", queue.Webhook{}, fast)
	w.publish("x")
	if task := w.task("s"); task.Status != queue.Failed || task.Attempts != 1 {
		t.Errorf("%s after %d attempts", task.Status, task.Attempts)
	}
	w.eventually("switched off", func() bool {
		s, err := w.Subscription(w.ctx, "s")
		return err == nil && !s.Active && strings.Contains(s.Reason, "410 Gone")
	})
}

// A pause with a reason lets deliveries that wait go on; those of a server that is gone wait until it is resumed.
func TestPauseWithAReason(t *testing.T) {
	w := setup(t, nil)
	w.subscribe("s", queue.Webhook{}, fast)
	check(t, w.Queue("webhook.s").Pause(w.ctx))
	w.publish("x")
	change := func(active bool, reason string) {
		t.Helper()
		_, err := w.ChangeSubscription(w.ctx, "s", func(s *queue.Subscription) error { s.Active, s.Reason = active, reason; return nil })
		check(t, err)
	}
	change(false, "as somebody wanted")
	check(t, w.Queue("webhook.s").Resume(w.ctx))
	if task := w.task("s"); task.Status != queue.Complete {
		t.Errorf("%s: %s", task.Status, task.Error)
	}
	change(false, queue.ReasonGone)
	w.eventually("the listener leaves with its last webhook", func() bool {
		nodes, err := listen.NewFleet(w.Client).Nodes(w.ctx)
		return err == nil && len(nodes) == 0
	})
	change(true, "")
	w.publish("y")
	w.eventually("both are delivered", func() bool { return len(w.seen()) == 2 })
}

// The server of an old URL that is gone does not switch off the webhook that has another one by now.
func TestGoneAndMoved(t *testing.T) {
	w := setup(t, nil)
	moved := make(chan struct{})
	w.answers(func(rw http.ResponseWriter, r request) {
		if r.URL.Path == "/hook" {
			<-moved
			rw.WriteHeader(http.StatusGone)
		}
	})
	w.subscribe("s", queue.Webhook{}, fast)
	w.publish("x")
	w.eventually("it runs", func() bool { return len(w.seen()) == 1 })
	_, err := w.ChangeSubscription(w.ctx, "s", func(s *queue.Subscription) error { s.Webhook.URL = w.server.URL + "/new"; return nil })
	check(t, err)
	close(moved)
	if task := w.task("s"); task.Status != queue.Failed {
		t.Errorf("%s", task.Status)
	}
	if s, err := w.Subscription(w.ctx, "s"); err != nil || !s.Active {
		t.Errorf("%+v, %v", s, err)
	}
}

// A delivery that cannot be settled, because a key is damaged, is sent once and settled when somebody has repaired it.
func TestDamagedQueue(t *testing.T) {
	w := setup(t, nil)
	rdb := queuetest.Shared(t).Client(t)
	complete := w.Tenant() + "_complete_tasks_webhook.s"
	w.answers(func(http.ResponseWriter, request) { rdb.Set(w.ctx, complete, "of another type", 0) })
	w.subscribe("s", queue.Webhook{}, fast)
	w.publish("x")
	w.eventually("it runs", func() bool { return len(w.seen()) == 1 })
	start, err := w.Clock(w.ctx)
	check(t, err)
	w.eventually("the lease was audited twice", func() bool {
		now, err := w.Clock(w.ctx)
		return err == nil && now.Sub(start) > 2*queue.DefaultLease+time.Second
	})
	check(t, rdb.Del(w.ctx, complete).Err())
	if task := w.task("s"); task.Status != queue.Complete || len(w.seen()) != 1 {
		t.Errorf("%s after %d requests", task.Status, len(w.seen()))
	}
}

// commands counts what a client sends.
type commands struct{ n atomic.Int64 }

func (c *commands) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *commands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { c.n.Add(1); return next(ctx, cmd) }
}

func (c *commands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { c.n.Add(1); return next(ctx, cmds) }
}

// A queue that Redis refuses, because a key is damaged, is tried again at leisure, and served when somebody has repaired it; so is
// one of which Redis has lost the listeners.
func TestRefusedQueue(t *testing.T) {
	w := setup(t, nil)
	rdb := queuetest.Shared(t).Client(t)
	listeners, pending := w.Tenant()+"_listeners_webhook.s", w.Tenant()+"_pending_tasks_webhook.s"
	check(t, rdb.Set(w.ctx, listeners, "of another type", 0).Err())
	w.subscribe("s", queue.Webhook{}, fast)
	w.eventually("it is there", func() bool {
		nodes, err := listen.NewFleet(w.Client).Nodes(w.ctx)
		return err == nil && len(nodes) == 1 && strings.Contains(nodes[0].About["queues"], "webhook.s")
	})
	check(t, rdb.Del(w.ctx, listeners).Err())
	w.eventually("the queue is served", func() bool { return rdb.SCard(w.ctx, listeners).Val() == 1 })
	check(t, rdb.Set(w.ctx, pending, "of another type", 0).Err())
	check(t, rdb.Publish(w.ctx, w.Tenant()+"_channel_webhook.s", "").Err())
	begun, sent := time.Now(), w.sent.n.Load()
	w.eventually("it was tried for a while", func() bool { return time.Since(begun) > 2*time.Second })
	if rate := float64(w.sent.n.Load()-sent) / time.Since(begun).Seconds(); rate > 500 { // move sends 150, a session that spins thousands
		t.Errorf("%.0f commands a second", rate)
	}
	check(t, rdb.Del(w.ctx, pending, listeners).Err())
	w.eventually("the queue is served again", func() bool { return rdb.SCard(w.ctx, listeners).Val() == 1 })
	w.publish("x")
	if task := w.task("s"); task.Status != queue.Complete {
		t.Errorf("%s", task.Status)
	}
}

// Tasks that the listener holds of a queue without a webhook are given back, and the runner goes on.
func TestHeldWithoutAWebhook(t *testing.T) {
	w := setup(t, nil)
	w.subscribe("s", queue.Webhook{}, fast)
	w.subscribe("other", queue.Webhook{}, fast)
	var listener string
	w.eventually("it is there", func() bool {
		nodes, err := listen.NewFleet(w.Client).Nodes(w.ctx)
		if err == nil && len(nodes) == 1 && strings.Contains(nodes[0].About["queues"], "webhook.s") {
			listener = nodes[0].ID
		}
		return listener != ""
	})
	rdb := queuetest.Shared(t).Client(t)
	check(t, w.Queue("webhook.s").Pause(w.ctx))
	w.publish("x")
	// The queue stays registered, because a key of it has another type, while its webhook goes.
	listeners := w.Tenant() + "_listeners_webhook.s"
	check(t, rdb.Rename(w.ctx, listeners, listeners+"_away").Err())
	check(t, rdb.Set(w.ctx, listeners, "of another type", 0).Err())
	check(t, w.Unsubscribe(w.ctx, "s"))
	check(t, rdb.LMove(w.ctx, w.Tenant()+"_pending_tasks_webhook.s", w.Tenant()+"_reserved_tasks_webhook.s_"+listener, "RIGHT", "LEFT").Err())
	w.eventually("it is given back", func() bool {
		n, err := rdb.LLen(w.ctx, w.Tenant()+"_pending_tasks_webhook.s").Result()
		return err == nil && n == 1
	})
	if task := w.task("other"); task.Status != queue.Complete {
		t.Errorf("another one: %s", task.Status)
	}
}

// What can not be sent fails for good or is tried again, and says what to do.
func TestErrDelivery(t *testing.T) {
	w := setup(t, nil)
	for id, hook := range map[string]queue.Webhook{
		"private": {URL: "http://10.0.0.1/"}, "bad": {Secrets: []string{"webhook.bad"}},
		"refused": {URL: "http://127.0.0.1:1/"},
	} {
		w.subscribe(id, hook, queue.Retry{MaxAttempts: 1})
	}
	w.publish("x")
	for id, want := range map[string]string{
		"private": "--allow-networks", "bad": "openssl rand -base64 32", "refused": ": unavailable: connect: connection refused",
	} {
		if task := w.task(id); task.Status != queue.Failed || !strings.Contains(task.Error, want) {
			t.Errorf("%s: %s %s, want %q", id, task.Status, task.Error, want)
		}
	}
	if n := len(w.seen()); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

// TestMissingSecret: a delivery whose secret is not there yet is put off, without counting an attempt.
func TestMissingSecret(t *testing.T) {
	ends := make(chan webhook.Ended, 10)
	w := setup(t, func(c *webhook.Config) { c.Ended = func(e webhook.Ended) { ends <- e } })
	w.subscribe("missing", queue.Webhook{Secrets: []string{"webhook.none"}}, queue.Retry{MaxAttempts: 1, MaxReschedules: 1})
	w.publish("x")
	task := w.task("missing")
	want := "put off 1 times (max_reschedules): not found: the host has no secret webhook.none: start it with --secrets DIR, and put the secret into the file DIR/" + w.Tenant() + "/webhook.none"
	if task.Reschedules != 1 || task.Attempts > 1 || task.Status != queue.Failed || !strings.HasPrefix(task.Failure().Message, want) {
		t.Errorf("%s, %d attempts, put off %d times: %s, want %s", task.Status, task.Attempts, task.Reschedules, task.Failure().Message, want)
	}
	if first, second := <-ends, <-ends; first.PutOffs != 1 || !first.Again || second.PutOffs != 0 || second.Again {
		t.Errorf("it ended with %+v, then with %+v", first, second)
	}
	if n := len(w.seen()); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

// A destination that fails again and again is switched off: its deliveries wait, lose no attempt, and others are delivered. When
// a delivery finds that it is back, all of them are.
func TestBreaker(t *testing.T) {
	w := setup(t, func(c *webhook.Config) { c.Off, c.Destination = 200*time.Millisecond, 5 })
	sick := func(rw http.ResponseWriter, _ request) { rw.WriteHeader(http.StatusInternalServerError) }
	w.answers(sick)
	w.subscribe("sick", queue.Webhook{}, queue.Retry{MaxAttempts: 1})
	const count = 60
	for range count {
		w.publish("x")
	}
	off := func() string {
		nodes, err := listen.NewFleet(w.Client).Nodes(w.ctx)
		if err != nil || len(nodes) != 1 || nodes[0].Kind != listen.KindWebhook {
			return ""
		}
		return nodes[0].About["destinations_off"]
	}
	w.eventually("switched off", func() bool { return strings.Contains(off(), w.server.URL) })
	well := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer well.Close()
	w.subscribe("well", queue.Webhook{URL: well.URL}, fast)
	w.publish("x")
	if task := w.task("well"); task.Status != queue.Complete {
		t.Errorf("%s: %s", task.Status, task.Error)
	}
	w.answers(func(http.ResponseWriter, request) {})
	var depth map[queue.Status]int64
	w.eventually("all have ended", func() bool {
		stats, err := manage.New(w.Client).Queue("webhook.sick").Stats(w.ctx)
		depth = stats.Depth
		return err == nil && depth[queue.Failed]+depth[queue.Complete] == count+1
	})
	if failed := depth[queue.Failed]; failed < 10 || failed > 40 { // ten, those under way with the tenth, and some that tried it
		t.Errorf("%v", depth)
	}
	w.eventually("switched on", func() bool { return off() == "[]" })
	w.answers(sick)
	for range count {
		w.publish("x")
	}
	w.eventually("switched off again", func() bool { return strings.Contains(off(), w.server.URL) })
	check(t, w.Unsubscribe(w.ctx, "sick"))
	w.eventually("what no webhook names is none that is off", func() bool { return off() == "[]" })
}

// A delivery whose host died while it ran is made again, with the same webhook-id and without a lost attempt.
func TestHostDied(t *testing.T) {
	w := idle(t)
	w.subscribe("s", queue.Webhook{}, fast)
	w.publish("x")
	dead := listen.New(w.Client)
	check(t, dead.Join(w.ctx))
	check(t, dead.Register(w.ctx, "webhook.s"))
	reply := dead.Reserve(w.ctx, []listen.ReserveRequest{{Queue: "webhook.s", Count: 1, Start: true, Plugin: webhook.PluginName}})[0]
	if reply.Err != nil || len(reply.Tasks) != 1 {
		t.Fatalf("%+v", reply)
	}
	w.start(nil)
	w.eventually("a host takes its task", func() bool {
		gone, _, _, err := listen.NewFleet(w.Client).Leases(w.ctx)
		if err != nil || !slices.Contains(gone, dead.ID()) {
			return false
		}
		taken, err := listen.NewFleet(w.Client).Reclaim(w.ctx, dead.ID(), 3)
		return err == nil && taken.Returned == 1
	})
	task := w.task("s")
	if seen := w.seen(); task.Status != queue.Complete || task.Attempts != 1 || task.Crashes != 1 || len(seen) != 1 || seen[0].Header.Get("Webhook-Id") != reply.Tasks[0].ID {
		t.Errorf("%s after %d attempts and %d crashes, %d requests", task.Status, task.Attempts, task.Crashes, len(seen))
	}
}

// A runner that ends gives back what outlasts the grace period, and leaves; a cancelled delivery stops.
func TestEnd(t *testing.T) {
	w := setup(t, func(c *webhook.Config) { c.Grace = time.Millisecond })
	release := make(chan struct{})
	w.answers(func(_ http.ResponseWriter, r request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	defer close(release)
	w.subscribe("s", queue.Webhook{}, queue.Retry{})
	w.publish("a")
	w.eventually("it runs", func() bool { return len(w.seen()) == 1 })
	ids, err := manage.New(w.Client).Queue("webhook.s").List(w.ctx, manage.ListOptions{Limit: 10})
	check(t, err)
	if _, err := w.Queue("webhook.s").Cancel(w.ctx, ids[0].ID); err != nil {
		t.Fatal(err)
	}
	if task, err := w.Wait(w.ctx, ids[0].ID); err != nil || task.Reason != queue.ReasonCancelled {
		t.Errorf("%+v, %v", task, err)
	}
	w.publish("b")
	w.eventually("it runs", func() bool { return len(w.seen()) == 2 })
	w.stop()
	stats, err := manage.New(w.Client).Queue("webhook.s").Stats(w.ctx)
	check(t, err)
	nodes, err := listen.NewFleet(w.Client).Nodes(w.ctx)
	if err != nil || len(nodes) != 0 || stats.Depth[queue.Pending] != 1 || stats.Depth[queue.Started] != 0 {
		t.Errorf("%v, %v, %v", stats.Depth, nodes, err)
	}
}

// A delivery that Redis hands out again while it runs, after a failover to a replica that lagged, is stopped before the new one begins.
func TestOneRunOfADelivery(t *testing.T) {
	w := setup(t, func(c *webhook.Config) { c.Grace = time.Hour })
	given := make(chan struct{}) // closed when the server sees that nobody waits for the first answer: perhaps after the second request
	w.answers(func(_ http.ResponseWriter, r request) {
		if len(w.seen()) == 1 {
			<-r.Context().Done()
			close(given)
			return
		}
		select {
		case <-given:
		case <-time.After(2 * time.Minute):
			t.Error("two requests at a time")
		}
	})
	w.subscribe("s", queue.Webhook{}, queue.Retry{})
	w.publish("a")
	w.eventually("it runs", func() bool { return len(w.seen()) == 1 })
	ids, err := manage.New(w.Client).Queue("webhook.s").List(w.ctx, manage.ListOptions{Limit: 10})
	check(t, err)
	task, err := w.Task(w.ctx, ids[0].ID)
	check(t, err)
	prefix := w.Tenant() + "_"
	_, err = queuetest.Shared(t).Client(t).TxPipelined(w.ctx, func(p redis.Pipeliner) error {
		p.HSet(w.ctx, prefix+"task_"+task.ID, "status", "pending", "run", 0)
		p.LRem(w.ctx, prefix+"reserved_tasks_webhook.s_"+task.Node, 0, task.ID)
		p.LPush(w.ctx, prefix+"pending_tasks_webhook.s", task.ID)
		p.Publish(w.ctx, prefix+"channel_webhook.s", "")
		return nil
	})
	check(t, err)
	if task, err := w.Wait(w.ctx, task.ID); err != nil || task.Status != queue.Complete || len(w.seen()) != 2 {
		t.Errorf("%+v, %v, after %d requests", task, err, len(w.seen()))
	}
	w.stop() // though the grace is an hour
}

// A request belongs to the trace of its task; with a tracer to its own span there.
func TestDeliveryTrace(t *testing.T) {
	const id, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	for _, traced := range []bool{false, true} {
		t.Run(fmt.Sprint(traced), func(t *testing.T) {
			collector := tracetest.Start(t)
			var tracer *trace.Tracer
			if traced {
				var err error
				tracer, err = trace.New(t.Context(), trace.Config{Endpoint: collector.GRPC})
				check(t, err)
			}
			w := setup(t, func(c *webhook.Config) { c.Tracer = tracer })
			w.answers(func(rw http.ResponseWriter, _ request) { rw.WriteHeader(http.StatusTeapot) })
			w.subscribe("s", queue.Webhook{Final: true}, queue.Retry{})
			_, err := w.Publish(w.ctx, "orders", nil, queue.PublishOptions{Traceparent: "00-" + id + "-" + parent + "-01", Tracestate: "a=1"})
			check(t, err)
			w.task("s")
			w.stop()
			check(t, tracer.Shutdown(w.ctx))
			of := parent
			if traced {
				spans := collector.Wait(t, "receive webhook.s", "process webhook.s", "run webhook", "POST", "settle webhook.s")
				process, post := spans["process webhook.s"], spans["POST"]
				if spans["receive webhook.s"].Parent != parent || post.Parent != spans["run webhook"].ID || !post.Failed || !process.Failed ||
					process.About["quern.outcome"] != "failed" || process.About["error.type"] != "error" || process.About["messaging.client.id"] == "" {
					t.Errorf("%+v", spans)
				}
				of = post.ID
			}
			if got := w.seen()[0].Header; got.Get("Traceparent") != "00-"+id+"-"+of+"-01" || got.Get("Tracestate") != "a=1" {
				t.Errorf("the request had %v, want a child of %s", got, of)
			}
		})
	}
}

// What deliveries end as is counted by minute, as other tasks are.
func TestDeliveriesByMinute(t *testing.T) {
	w := setup(t, nil)
	w.answers(func(rw http.ResponseWriter, r request) {
		if string(r.body) == "bad" {
			rw.WriteHeader(http.StatusBadRequest)
		}
	})
	w.subscribe("s", queue.Webhook{}, queue.Retry{MaxAttempts: 1})
	for _, payload := range []string{"good", "good", "bad"} {
		w.publish(payload)
	}
	w.eventually("they end", func() bool {
		stats, err := manage.New(w.Client).Queue("webhook.s").Stats(w.ctx)
		return err == nil && stats.Depth[queue.Complete] == 2 && stats.Depth[queue.Failed] == 1
	})
	w.stop() // which writes the counts
	minutes, err := manage.New(w.Client).Minutes(w.ctx, "webhook.s", 5)
	check(t, err)
	var complete, failed int64
	for _, m := range minutes {
		complete, failed = complete+m.Complete, failed+m.Failed
	}
	if versions, err := manage.New(w.Client).Versions(w.ctx); complete != 2 || failed != 1 || len(versions) > 0 || err != nil {
		t.Errorf("%d complete, %d failed, versions %v, %v", complete, failed, versions, err)
	}
}

// A pause that a server asks of one host holds in the fleet, until the subscription has another server.
func TestHeldInTheFleet(t *testing.T) {
	w := setup(t, nil)
	w.answers(func(rw http.ResponseWriter, _ request) {
		rw.Header().Set("Retry-After", "3600")
		rw.WriteHeader(http.StatusTooManyRequests)
	})
	w.subscribe("s", queue.Webhook{}, fast)
	w.publish("first")
	depth := func(status queue.Status) int64 {
		stats, err := manage.New(w.Client).Queue("webhook.s").Stats(w.ctx)
		check(t, err)
		return stats.Depth[status]
	}
	w.eventually("it was put off", func() bool { return depth(queue.Scheduled) == 1 })
	w.stop()
	w.publish("second")
	w.start(nil) // another host
	well := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer well.Close()
	w.subscribe("well", queue.Webhook{URL: well.URL}, fast)
	w.publish("third")
	check(t, w.Queue("webhook.s").Hold(w.ctx, time.Second)) // a shorter one changes nothing
	if task := w.task("well"); task.Status != queue.Complete || len(w.seen()) != 1 || depth(queue.Pending) != 2 {
		t.Errorf("%s; %d requests, %d wait", task.Status, len(w.seen()), depth(queue.Pending))
	}
	_, err := w.ChangeSubscription(w.ctx, "s", func(s *queue.Subscription) error { s.Webhook.URL = well.URL; return nil })
	check(t, err)
	w.eventually("they are delivered elsewhere", func() bool { return depth(queue.Complete) == 2 })
}

// However many webhooks a tenant has, only so many have series of their own in the metrics; what others deliver is counted together, and
// those that are gone make room.
func TestManyWebhooksInMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := metrics.New(registry, metrics.Config{})
	check(t, err)
	w := setup(t, func(c *webhook.Config) { c.Metrics, c.MaxQueues = m, 3 })
	queues := func() (names []string) {
		families, err := registry.Gather()
		check(t, err)
		for _, family := range families {
			for _, series := range family.GetMetric() {
				for _, label := range series.GetLabel() {
					if label.GetName() == "queue" && label.GetValue() != "" && !slices.Contains(names, label.GetValue()) {
						names = append(names, label.GetValue())
					}
				}
			}
		}
		return names
	}
	for i := range 20 {
		w.subscribe(fmt.Sprint("s", i), queue.Webhook{}, fast)
	}
	w.publish("x")
	w.eventually("all are delivered", func() bool { return len(w.seen()) == 20 })
	if names := queues(); len(names) != 4 || !slices.Contains(names, "webhook.*") {
		t.Errorf("%d queues have series: %v", len(names), names)
	}
	for i := range 20 {
		check(t, w.Unsubscribe(w.ctx, fmt.Sprint("s", i)))
	}
	w.subscribe("new", queue.Webhook{}, fast)
	w.eventually("a new one has series", func() bool { return slices.Contains(queues(), "webhook.new") })
	if names := queues(); len(names) > 4 {
		t.Errorf("%d queues have series: %v", len(names), names)
	}
}
