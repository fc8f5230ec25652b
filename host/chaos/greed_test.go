package chaos

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/bundle"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

//go:embed testdata/greedy.c
var greedySource string

const (
	greedyTenant   = "greedy"
	greedyManifest = `limits: {memory: 32MiB}
retry: {max_attempts: 1}
capabilities: {publish: {topics: [greedy], after: call}}
`
	// greedyMemory is what the host gives to all, and maxResident how much its process may have at most.
	greedyMemory = "512MiB"
	maxResident  = 1 << 30
	// maxDelay is the p99 of another tenant's tasks that the test takes however fast they are alone: those who send the requests have
	// the same processors. On two cores the bodies alone, sent to a program that only reads them, brought it to 31 ms.
	maxDelay = 100 * time.Millisecond
)

// greed is one way in which a tenant makes a host hold memory. It goes on until ctx ends.
type greed struct {
	*fleet
	client *queue.Client // of the greedy tenant
	admin  string        // the address of the API
	slow   string        // the address of a server that takes its time
	folder string        // of the tenant's plugins
	module []byte
	body   []byte   // for operations that take a list
	carry  [][]byte // modules that carry much
}

// TestGreed has one tenant take memory in every way that there is, all at once: the host stays within what it was given, and short
// tasks of another tenant go on.
func TestGreed(t *testing.T) {
	beside(t)
	own := queuetest.Start(t) // what the greedy tenant costs its Redis is nobody else's
	f := newFleet(t, settings{
		hosts: 1, concurrency: 8, lease: 10 * time.Second, grace: time.Second, patience: 5 * time.Minute,
		tenants:   []string{tenant, greedyTenant},
		arguments: []string{"--memory", greedyMemory, "--admin", "127.0.0.1:0", "--tenant-redis", greedyTenant + "=redis://" + own.Addr()},
	})
	alone := f.neighbours("before")

	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		sleep(r.Context(), 300*time.Millisecond)
	}))
	t.Cleanup(slow.Close)
	client, err := queue.NewFromRedis(own.Client(t), queue.Config{Tenant: greedyTenant})
	if err != nil {
		t.Fatal(err)
	}
	g := &greed{
		fleet: f, client: client, slow: slow.URL,
		folder: filepath.Join(f.plugins, greedyTenant), module: runtimetest.BuildCHandler(t, greedySource),
	}
	f.eventually("the API listens", func() bool { g.admin = f.hosts[0].process().api(); return g.admin != "" })
	g.prepare()
	ctx, stop := context.WithCancel(f.ctx)
	var ways sync.WaitGroup
	end := func() { stop(); ways.Wait() }
	t.Cleanup(end)
	for name, way := range map[string]func(ctx context.Context){
		"guests": g.guests, "publications": g.publish, "bodies": g.send, "lists": g.list, "plugins": g.load, "names": g.name,
	} {
		ways.Go(func() {
			rounds := 0
			for sleep(ctx, 100*time.Millisecond) {
				way(ctx)
				rounds++
			}
			t.Logf("%s: %d rounds", name, rounds)
		})
	}
	beside := f.neighbours("beside")
	for i := range repeats() {
		beside = append(beside, f.neighbours(fmt.Sprintf("beside-%d", i))...)
	}
	slices.Sort(beside)
	end()
	resident, err := f.hosts[0].process().peakMemory()
	g.fail(err)
	t.Logf("peak of resident memory %d MiB; alone: median %s, p99 %s; beside: median %s, p99 %s",
		resident>>20, percentile(alone, 50), percentile(alone, 99), percentile(beside, 50), percentile(beside, 99))
	if resident > maxResident {
		t.Errorf("want at most %d MiB", maxResident>>20)
	}
	if full && percentile(beside, 99) > max(maxDelay, maxSlower*percentile(alone, 99)) {
		t.Errorf("want at most %d times, or %s", maxSlower, maxDelay)
	}
	f.leave()
}

// repeats is how often the neighbours' tasks run again: the ways need some time to meet.
func repeats() int {
	if full {
		return 20
	}
	return 0
}

func (g *greed) fail(err error) {
	g.t.Helper()
	if err != nil {
		g.t.Fatal(err)
	}
}

// prepare gives the tenant a plugin, a webhook, a subscription whose filter looks everywhere, and large schedules.
func (g *greed) prepare() {
	g.t.Helper()
	g.fail(os.Mkdir(g.folder, 0o700))
	g.fail(os.WriteFile(filepath.Join(g.folder, "greedy.yaml"), []byte(greedyManifest), 0o600))
	g.fail(os.WriteFile(filepath.Join(g.folder, "greedy.wasm"), g.module, 0o600))
	id, err := g.client.Queue("greedy").Enqueue(g.ctx, []byte("nothing"), queue.Options{})
	g.fail(err)
	_, err = g.client.Wait(g.ctx, id)
	g.fail(err)
	hook := &queue.Webhook{URL: g.slow, Body: queue.WebhookCloudEvent}
	for _, s := range []queue.Subscription{
		{ID: "hook", Topic: "hooked", Webhook: hook},
		{ID: "filter", Topic: "greedy", Queue: "sink", Filter: queue.Filter{Data: map[string]any{"": 1, "/x": 1, "/0/x": 1}}},
	} {
		_, err := g.client.Subscribe(g.ctx, s)
		g.fail(err)
	}
	for i := range 500 {
		_, err := g.client.PutSchedule(g.ctx, queue.Schedule{
			ID: fmt.Sprintf("s%d", i), Queue: "sink", Cron: "0 0 1 1 *", Parameters: bytes.Repeat([]byte{1}, 64<<10),
		}, false)
		g.fail(err)
	}
	g.body = []byte(`{"tasks":[` + strings.Repeat(`{},`, 5<<20) + `{}]}`)
	for i := range 8 {
		module, err := bundle.Append(g.module, map[string][]byte{"/zeros": bytes.Repeat([]byte{byte(i)}, 60<<20)})
		g.fail(err)
		g.carry = append(g.carry, module)
	}
}

// guests runs the plugin in all its manners.
func (g *greed) guests(ctx context.Context) {
	q := g.client.Queue("greedy")
	large, err := q.Enqueue(ctx, []byte("output"), queue.Options{})
	if err != nil {
		return
	}
	var ids []string
	for i := range 32 {
		options, manner := queue.Options{}, []string{"publish", "checkpoint", "read"}[i%3]
		if manner == "read" {
			options.After = []string{large}
		}
		if id, err := q.Enqueue(ctx, []byte(manner), options); err == nil {
			ids = append(ids, id)
		}
	}
	for _, id := range ids {
		_, _ = g.client.Wait(ctx, id)
	}
	_, _ = manage.QueueOf(q).Purge(ctx, listen.PurgeOptions{})
}

// publish has large payloads delivered to a slow server.
func (g *greed) publish(ctx context.Context) {
	payload := bytes.Repeat([]byte("\x01x"), 8<<20)
	for range 8 {
		_, _ = g.client.Publish(ctx, "hooked", payload[:rand.IntN(len(payload))], queue.PublishOptions{})
	}
	until(ctx, func() bool { return g.pending(queue.WebhookQueues+"hook") == 0 })
}

func (g *greed) pending(name string) int64 {
	n, _ := manage.New(g.client).Queue(name).Count(g.ctx, queue.Pending)
	return n
}

// send sends large and small bodies to the API, as many at a time as it takes.
func (g *greed) send(ctx context.Context) {
	small := g.body[:60<<10]
	var requests sync.WaitGroup
	for i := range 32 {
		body := small
		if i%4 == 0 {
			body = g.body
		}
		for _, path := range []string{"queues/sink/tasks/batch", "queues/sink/events", "topics/greedy/publications"} {
			requests.Go(func() { g.do(ctx, http.MethodPost, path, body) })
		}
	}
	requests.Wait()
}

func (g *greed) do(ctx context.Context, method, path string, body []byte) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+g.admin+"/v1/tenants/"+greedyTenant+"/"+path, bytes.NewReader(body))
	if err != nil {
		g.t.Error(err)
		return
	}
	r.Header.Set("Content-Type", "application/json")
	if response, err := http.DefaultClient.Do(r); err == nil {
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
	}
}

// list reads long lists, as many at a time as the API allows.
func (g *greed) list(ctx context.Context) {
	var requests sync.WaitGroup
	for range 16 {
		for _, path := range []string{"schedules?limit=1", "schedules", "tasks?limit=1000", "queues", "subscriptions"} {
			requests.Go(func() { g.do(ctx, http.MethodGet, path, nil) })
		}
	}
	requests.Wait()
}

// load puts plugins into the tenant's folder that carry, name and describe more than there is memory for.
func (g *greed) load(ctx context.Context) {
	for i, module := range g.carry {
		g.write(fmt.Sprintf("carries%d.wasm", i), module)
	}
	bomb := "name: bomb\ntests:\n- &m {" + strings.Repeat("a: 1, ", 20_000) + "}\n" + strings.Repeat("- *m\n", 5000)
	g.write("bomb.yaml", []byte(bomb))
	g.write("bomb.wasm", g.module)
	sleep(ctx, 5*time.Second)
}

func (g *greed) write(name string, data []byte) {
	if err := os.WriteFile(filepath.Join(g.folder, name), data, 0o600); err != nil {
		g.t.Error(err)
	}
}

// name makes queues without end.
func (g *greed) name(ctx context.Context) {
	for i := range 1000 {
		_, _ = g.client.Queue(fmt.Sprintf("name-%d-%d", time.Now().UnixNano(), i)).Enqueue(ctx, nil, queue.Options{})
	}
}
