package host

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/quern-project/quern/metrics"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func TestMain(m *testing.M) {
	code := queuetest.Main(m)
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// node is a host under test with what belongs to it.
type node struct {
	*Host
	t        *testing.T
	ctx      context.Context
	client   *queue.Client // of the first tenant
	rdb      *redis.Client
	dir      string
	registry *prometheus.Registry
	log      *logBuffer

	terminate, hurry context.CancelFunc
	ended            chan error
}

// settings are what tests vary.
type settings struct {
	Config
	url     string   // default: the shared server
	tenants []string // default: one of the test's own
	lease   time.Duration
	dir     string            // default: a new folder
	guests  map[string][]byte // queue (or TENANT/queue) → module, there at the start
	timeout time.Duration
	idle    bool // do not run
}

func start(t *testing.T, s settings) *node {
	t.Helper()
	if s.url == "" {
		s.url = queuetest.Shared(t).URL()
	}
	if s.tenants == nil {
		s.tenants = []string{queuetest.Tenant()}
	}
	if s.dir == "" {
		s.dir = t.TempDir()
	}
	options, err := redis.ParseURL(s.url)
	if err != nil {
		t.Fatal(err)
	}
	options.MaxRetries = -1
	n := &node{
		t: t, dir: s.dir, registry: prometheus.NewRegistry(), rdb: redis.NewClient(options),
		log: &logBuffer{}, ended: make(chan error, 1),
	}
	t.Cleanup(func() { _ = n.rdb.Close() })
	var cancel context.CancelFunc
	n.ctx, cancel = context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	var clients []*queue.Client
	for _, tenant := range s.tenants {
		client, err := queue.NewFromRedis(n.rdb, queue.Config{Tenant: tenant, Lease: s.lease})
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, client)
	}
	n.client = clients[0]
	for name, module := range s.guests {
		n.install(name, module)
	}
	n.Host = n.build(clients, s)
	if !s.idle {
		n.run()
	}
	return n
}

func (n *node) build(clients []*queue.Client, s settings) *Host {
	n.t.Helper()
	s.Config.Logger = hclog.New(&hclog.LoggerOptions{Output: n.log, Level: hclog.Debug, DisableTime: true})
	m, err := metrics.New(n.registry, metrics.Config{Version: "test"})
	if err != nil {
		n.t.Fatal(err)
	}
	engine, err := runtime.New(n.ctx, runtime.Config{})
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = engine.Close(context.Background()) })
	tenants := make([]string, len(clients))
	for i, client := range clients {
		tenants[i] = client.Tenant()
	}
	directory, err := plugins.New(engine, plugins.Config{
		Dir: n.dir, Tenants: tenants, MaxMemory: s.Memory, MaxTimeout: s.timeout, Logger: s.Config.Logger, Observer: m,
	})
	if err != nil {
		n.t.Fatal(err)
	}
	h, err := New(clients, directory, m, s.Config)
	if err != nil {
		n.t.Fatal(err)
	}
	return h
}

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
		case <-time.After(30 * time.Second):
			n.t.Error("the host did not end")
		}
		if n.t.Failed() {
			n.t.Logf("log of the host:\n%s", n.log)
		}
	})
}

// stop ends the host as SIGTERM does and returns when it has ended.
func (n *node) stop() {
	n.t.Helper()
	n.terminate()
	select {
	case err := <-n.ended:
		n.ended <- err
	case <-n.ctx.Done():
		n.t.Fatal("the host did not end")
	}
}

// install puts a module into the plugin directory in one step.
func (n *node) install(name string, module []byte) {
	n.t.Helper()
	file := filepath.Join(n.dir, name+".wasm")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(file+".new", module, 0o644); err != nil {
		n.t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) enqueue(queueName, parameters string, options queue.Options) string {
	n.t.Helper()
	id, err := n.client.Queue(queueName).Enqueue(n.ctx, []byte(parameters), options)
	if err != nil {
		n.t.Fatal(err)
	}
	return id
}

func (n *node) wait(id string) *queue.Task {
	n.t.Helper()
	task, err := n.client.Wait(n.ctx, id)
	if err != nil {
		n.t.Fatal(err)
	}
	return task
}

// eventually waits for a condition, looking every few milliseconds.
func (n *node) eventually(what string, condition func() bool) {
	n.t.Helper()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for !condition() {
		select {
		case <-ticker.C:
		case <-n.ctx.Done():
			n.t.Fatalf("never: %s", what)
		}
	}
}

func (n *node) status(id string) queue.Status {
	n.t.Helper()
	task, err := n.client.Task(n.ctx, id)
	if err != nil {
		n.t.Fatal(err)
	}
	return task.Status
}

func (n *node) depth(queueName string) map[queue.Status]int64 {
	n.t.Helper()
	stats, err := n.client.Queue(queueName).Stats(n.ctx)
	if err != nil {
		n.t.Fatal(err)
	}
	return stats.Depth
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
