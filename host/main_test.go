package host

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/quern-project/quern/host/postgres/postgrestest"
	"github.com/quern-project/quern/metrics"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// patience bounds what a test waits for.
const patience = 5 * time.Minute

// compiled is a compile cache that all tests share; set by TestMain.
var compiled string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	_ = flag.Set("test.parallel", "4") // many wait more than they compute; -parallel still counts
	var err error
	if compiled, err = os.MkdirTemp("", "host-test-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(compiled)
	code := queuetest.Main(m)
	postgrestest.End()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	return code
}

// node is a host under test with what belongs to it.
type node struct {
	*Host
	t        testing.TB
	ctx      context.Context
	client   *queue.Client // of the first tenant, on a connection of the test's own
	rdb      *redis.Client // that connection
	tenant   string        // the first one
	dir      string
	registry *prometheus.Registry
	engine   *runtime.Engine
	log      *logBuffer

	terminate, hurry context.CancelFunc
	ended            chan error
}

// settings are what tests vary.
type settings struct {
	Config
	server  *queuetest.Server // default: the shared one
	proxy   *queuetest.Proxy  // what stands between the host and the server
	distant *queuetest.Proxy  // the same for the last tenant alone, for whose answers the host waits long
	user    string            // as whom the host connects
	tenants []string          // default: one of the test's own
	lease   time.Duration
	answers time.Duration     // how long the host waits for Redis; default: answerTimeout
	dir     string            // default: a new folder
	guests  map[string][]byte // NAME (or TENANT/NAME) → module, there at the start
	yaml    map[string]string // NAME → manifest
	cpu     time.Duration     // the host's ceiling
	grants  *manifest.Grants
	engine  runtime.Config // default: with the cache of all tests
	hclog   hclog.Level    // default: debug
	idle    bool           // do not run
}

// answerTimeout is how long hosts under test wait for Redis, unless they ask for more: what is cut off should be short.
const answerTimeout = 500 * time.Millisecond

func start(t testing.TB, s settings) *node {
	t.Helper()
	if s.server == nil {
		s.server = queuetest.Shared(t)
	}
	if s.tenants == nil {
		s.tenants = []string{queuetest.Tenant()}
	}
	if s.dir == "" {
		s.dir = t.TempDir()
	}
	n := &node{
		t: t, tenant: s.tenants[0], dir: s.dir, registry: prometheus.NewRegistry(), rdb: s.server.Client(t),
		log: &logBuffer{}, ended: make(chan error, 1),
	}
	var cancel context.CancelFunc
	n.ctx, cancel = context.WithTimeout(context.Background(), 10*time.Minute)
	t.Cleanup(cancel)
	n.client = n.clientOf(n.tenant)
	for name, module := range s.guests {
		n.install(name, module)
	}
	for name, manifest := range s.yaml {
		n.write(name+".yaml", []byte(manifest))
	}
	n.Host = n.build(s)
	if !s.idle {
		n.run()
	}
	return n
}

// clientOf is a client of any tenant.
func (n *node) clientOf(tenant string) *queue.Client {
	n.t.Helper()
	client, err := queue.NewFromRedis(n.rdb, queue.Config{Tenant: tenant})
	if err != nil {
		n.t.Fatal(err)
	}
	return client
}

// connect makes the host's own connection.
func (s *settings) connect(t testing.TB) redis.UniversalClient {
	t.Helper()
	at := url.URL{Host: s.server.Addr()}
	if s.proxy != nil {
		at.Host = s.proxy.Addr()
	}
	if s.user != "" {
		at.User = url.UserPassword(s.user, s.user)
	}
	return connect(t, at, cmp.Or(s.answers, answerTimeout))
}

// connect connects to a server or proxy as a host does, and waits for an answer so long.
func connect(t testing.TB, at url.URL, within time.Duration) redis.UniversalClient {
	t.Helper()
	at.Scheme, at.Path = "redis", "/0"
	at.RawQuery = url.Values{"read_timeout": {within.String()}, "write_timeout": {within.String()}}.Encode()
	rdb, err := queue.ConnectBounded(at.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// Ready tells why the host is not ready; nil if it is.
func (n *node) Ready() error {
	_, err := n.Host.Ready()
	return err
}

func (n *node) build(s settings) *Host {
	n.t.Helper()
	if s.hclog == hclog.NoLevel {
		s.hclog = hclog.Debug
	}
	s.Logger = hclog.New(&hclog.LoggerOptions{Output: n.log, Level: s.hclog})
	rdb := s.connect(n.t)
	clients := make([]*queue.Client, len(s.tenants))
	for i, tenant := range s.tenants {
		if s.distant != nil && i == len(s.tenants)-1 {
			rdb = connect(n.t, url.URL{Host: s.distant.Addr()}, patience)
		}
		var err error
		if clients[i], err = queue.NewFromRedis(rdb, queue.Config{Tenant: tenant, Lease: s.lease}); err != nil {
			n.t.Fatal(err)
		}
		n.t.Cleanup(func() { _ = clients[i].Close() })
	}
	m, err := metrics.New(n.registry, metrics.Config{Version: "test"})
	if err != nil {
		n.t.Fatal(err)
	}
	n.engine = openEngine(n.t, s.engine)
	if s.Cache == nil {
		s.Cache = n.engine
	}
	h, err := New(clients, openDirectory(n.t, n.engine, n.dir, s, m), m, s.Config)
	if err != nil {
		n.t.Fatal(err)
	}
	return h
}

func openEngine(t testing.TB, config runtime.Config) *runtime.Engine {
	t.Helper()
	config.CacheDir = cmp.Or(config.CacheDir, compiled)
	engine, err := runtime.New(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close(context.Background()) })
	return engine
}

func openDirectory(t testing.TB, engine *runtime.Engine, dir string, s settings, observer plugins.Observer) *plugins.Directory {
	t.Helper()
	directory, err := plugins.New(engine, plugins.Config{
		Dir: dir, Tenants: s.tenants, MaxMemory: s.Memory, Grants: s.grants, Logger: s.Logger, Observer: observer,
		Ceilings: manifest.Ceilings{}.With(runtime.Limits{CPU: s.cpu}, "--max-cpu"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return directory
}

// session is another session of the first tenant, which does only what it is told.
func (n *node) session(client *queue.Client) *session {
	t := n.tenants[n.tenant]
	return newSession(client, &n.common, t, func() map[string]string { return n.about(t) })
}

// samples are what the metrics show of the queues.
func (n *node) samples() ([]metrics.QueueSample, error) {
	return n.Host.samples(n.ctx)
}

// current is the session of the first tenant.
func (n *node) current() *session { return n.tenants[n.tenant].session.Load() }

// run starts the host; the test's end stops it.
func (n *node) run() {
	var ctx, hurry context.Context
	ctx, n.terminate = context.WithCancel(context.Background())
	hurry, n.hurry = context.WithCancel(context.Background())
	go func() { n.ended <- n.Run(ctx, hurry) }()
	n.t.Cleanup(func() {
		n.terminate()
		n.hurry()
		select {
		case err := <-n.ended:
			if err != nil {
				n.t.Errorf("host ended: %v", err)
			}
		case <-time.After(patience):
			n.t.Error("the host did not end")
		}
		if n.t.Failed() {
			n.t.Logf("log of the host:\n%s", n.log.tail(20_000))
		}
	})
}

// stop ends the host as SIGTERM does and returns what Run returned.
func (n *node) stop() error {
	n.t.Helper()
	n.terminate()
	return n.end()
}

// end waits for the end of the host.
func (n *node) end() error {
	n.t.Helper()
	select {
	case err := <-n.ended:
		n.ended <- nil // for the test's end
		return err
	case <-n.ctx.Done():
		n.t.Fatal("the host did not end")
		return nil
	}
}

// install puts a module into the plugin directory in one step.
func (n *node) install(name string, module []byte) { n.write(name+".wasm", module) }

func (n *node) write(name string, content []byte) {
	n.t.Helper()
	file := filepath.Join(n.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(file+".new", content, 0o644); err != nil {
		n.t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		n.t.Fatal(err)
	}
}

// remove takes a module out of the plugin directory.
func (n *node) remove(name string) {
	n.t.Helper()
	if err := os.Remove(filepath.Join(n.dir, name+".wasm")); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) enqueue(queueName, parameters string) string {
	n.t.Helper()
	return n.enqueueAs(queueName, parameters, queue.Options{})
}

func (n *node) enqueueAs(queueName, parameters string, options queue.Options) string {
	n.t.Helper()
	id, err := n.client.Queue(queueName).Enqueue(n.ctx, []byte(parameters), options)
	if err != nil {
		n.t.Fatal(err)
	}
	return id
}

// enqueueMany enqueues tasks with the same parameters, or each with its number where they hold %d.
func (n *node) enqueueMany(queueName string, count int, parameters string) []string {
	n.t.Helper()
	specs := make([]queue.Spec, count)
	for i := range specs {
		specs[i].Parameters = []byte(strings.ReplaceAll(parameters, "%d", fmt.Sprint(i)))
	}
	receipts, err := n.client.Queue(queueName).EnqueueMany(n.ctx, specs)
	if err != nil {
		n.t.Fatal(err)
	}
	ids := make([]string, count)
	for i, receipt := range receipts {
		ids[i] = receipt.ID
	}
	return ids
}

func (n *node) task(id string) *queue.Task {
	n.t.Helper()
	task, err := n.client.Task(n.ctx, id)
	if err != nil {
		n.t.Fatal(err)
	}
	return task
}

func (n *node) wait(id string) *queue.Task {
	n.t.Helper()
	task, err := n.client.Wait(n.ctx, id)
	if err != nil {
		n.t.Fatal(err)
	}
	return task
}

// eventually waits for a condition.
func (n *node) eventually(what string, condition func() bool) {
	n.t.Helper()
	require.Eventually(n.t, condition, patience, 5*time.Millisecond, what)
}

// serving waits until the host has registered for the queues.
func (n *node) serving(queues ...string) {
	n.t.Helper()
	for _, name := range queues {
		n.eventually("serving "+name, func() bool { return n.log.has("serving queue: ", "queue="+name) })
	}
}

func (n *node) stats(queueName string) manage.Stats {
	n.t.Helper()
	stats, err := manage.New(n.client).Queue(queueName).Stats(n.ctx)
	if err != nil {
		n.t.Fatal(err)
	}
	return stats
}

// count waits until the queue holds so many tasks of the status.
func (n *node) count(queueName string, status queue.Status, want int64) {
	n.t.Helper()
	n.eventually(fmt.Sprintf("%d tasks of %s %s", want, queueName, status), func() bool {
		count, err := manage.New(n.client).Queue(queueName).Count(n.ctx, status)
		return err == nil && count == want
	})
}

// depth is what the queue holds, without the states that hold nothing.
func (n *node) depth(queueName string) map[queue.Status]int64 {
	n.t.Helper()
	depth := n.stats(queueName).Depth
	maps.DeleteFunc(depth, func(_ queue.Status, count int64) bool { return count == 0 })
	return depth
}

// listener is the ID by which the host is known.
func (n *node) listener() string {
	n.t.Helper()
	ids := n.listeners()
	if len(ids) != 1 {
		n.t.Fatalf("%d listeners: %v", len(ids), ids)
	}
	return ids[0]
}

func (n *node) listeners() []string {
	n.t.Helper()
	nodes, err := listen.NewFleet(n.client).Nodes(n.ctx)
	if err != nil {
		n.t.Fatal(err)
	}
	var ids []string
	for _, node := range nodes {
		if node.Kind == listen.KindQuern {
			ids = append(ids, node.ID)
		}
	}
	return ids
}

// gone checks that nothing in Redis speaks of listeners any more, and that nothing is held.
func (n *node) gone(queues ...string) {
	n.t.Helper()
	if ids := n.listeners(); len(ids) != 0 {
		n.t.Errorf("nodes are left: %v", ids)
	}
	for _, pattern := range []string{"reserved_tasks_*", "started_tasks_*", "listeners_*", "node_*"} {
		keys, err := n.rdb.Keys(n.ctx, n.tenant+"_"+pattern).Result()
		if err != nil {
			n.t.Fatal(err)
		}
		if len(keys) > 0 {
			n.t.Errorf("keys are left: %v", keys)
		}
	}
	counts, err := n.client.Queues(n.ctx)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, name := range queues {
		if counts[name] != 0 {
			n.t.Errorf("queue %s counts %d listeners, want 0", name, counts[name])
		}
	}
}

// ranOnce checks that no task was run a second time. A run that was given back before it began does not count.
func (n *node) ranOnce(ids []string, others ...*node) {
	n.t.Helper()
	again, released := 0.0, 0.0
	for _, id := range ids {
		again += float64(n.task(id).Run - 1)
	}
	for _, host := range append(others, n) {
		released += host.metric("quern_tasks_total", "outcome", "released")
	}
	if again > released {
		n.t.Errorf("%v runs more than tasks, of which %v were given back", again, released)
	}
}

// counted waits until a metric has the value: clients may see a task's end before its host has counted it.
func (n *node) counted(want float64, name string, labels ...string) {
	n.t.Helper()
	n.eventually(fmt.Sprintf("%s%v is %v", name, labels, want), func() bool { return n.metric(name, labels...) == want })
}

// metric sums the values of a family's series that have the labels, given as name and value in turn; 0 if there is none.
func (n *node) metric(name string, labels ...string) float64 {
	n.t.Helper()
	families, err := n.registry.Gather()
	if err != nil {
		n.t.Fatal(err)
	}
	sum, found := 0.0, false
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		found = true
		for _, series := range family.GetMetric() {
			has := make(map[string]string)
			for _, label := range series.GetLabel() {
				has[label.GetName()] = label.GetValue()
			}
			matches := true
			for pair := range slices.Chunk(labels, 2) {
				matches = matches && has[pair[0]] == pair[1]
			}
			if matches {
				sum += series.GetCounter().GetValue() + series.GetGauge().GetValue() + float64(series.GetHistogram().GetSampleCount())
			}
		}
	}
	if !found {
		n.t.Errorf("no family %s", name)
	}
	return sum
}

// scrape is what Prometheus gets.
func (n *node) scrape() string {
	n.t.Helper()
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(n.registry, promhttp.HandlerOpts{}).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if answer.Code != http.StatusOK {
		n.t.Fatalf("scrape: %d, %s", answer.Code, answer.Body)
	}
	return answer.Body.String()
}

// logBuffer keeps a log that is written and read at once.
type logBuffer struct {
	mu   sync.Mutex
	text []byte
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text = append(b.text, p...)
	return len(p), nil
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.text)
}

func (b *logBuffer) tail(n int) string {
	text := b.String()
	return text[max(0, len(text)-n):]
}

// has tells whether one line has all the texts.
func (b *logBuffer) has(texts ...string) bool { return b.lines(texts...) > 0 }

// linesOf are the lines that have all the texts.
func (b *logBuffer) linesOf(texts ...string) (lines []string) {
	for line := range strings.Lines(b.String()) {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
			lines = append(lines, line)
		}
	}
	return lines
}

// lines counts the lines that have all the texts.
func (b *logBuffer) lines(texts ...string) int { return len(b.linesOf(texts...)) }

// times are when the lines were written that have all the texts, in whole milliseconds.
func (b *logBuffer) times(t testing.TB, texts ...string) (times []time.Time) {
	t.Helper()
	for _, line := range b.linesOf(texts...) {
		text, _, _ := strings.Cut(line, " ")
		written, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		times = append(times, written)
	}
	return times
}
