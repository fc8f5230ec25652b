package page_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/hashicorp/go-hclog"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/quern-project/quern/host/api"
	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/host/upkeep"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func TestMain(m *testing.M) {
	_ = flag.Set("test.parallel", "6") // they wait more than they compute; -parallel still counts
	queuetest.Exit(m, func() {
		if browser.close != nil {
			browser.close()
		}
		_ = os.RemoveAll(programs)
	})
}

// browser is one Chromium for all tests; each has a window of its own, with cookies and storage of its own.
var browser struct {
	once  sync.Once
	ctx   context.Context
	close func()
	err   error
}

// patience is how long a test waits for what must happen.
const patience = 2 * time.Minute

// world is a server for a tenant of its own, and a window for its page.
type world struct {
	*queue.Client
	ctx    context.Context // of the test
	window context.Context // chromedp's handle, which ends with the test
	base   string          // the page's address
	rdb    redis.UniversalClient
	config api.Config
	stop   func() // ends the server
	dead   string // the queue of dead letters

	mu    sync.Mutex
	wrong []string // what the browser complained of; guarded by mu
}

// setup serves a tenant until the test ends. change may alter the configuration.
func setup(t *testing.T, change ...func(*api.Config)) *world {
	t.Helper()
	t.Parallel()
	return serve(t, queuetest.Shared(t).URL(), change...)
}

// setupViewer is setup with access by tokens. It returns the token of the viewer vera.
func setupViewer(t *testing.T) (w *world, token string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	token, lines, err := api.NewToken("vera", api.Viewer, nil, time.Hour)
	must(t, err)
	must(t, os.WriteFile(file, []byte("tokens:\n"+lines), 0o600))
	return setup(t, func(c *api.Config) {
		c.Access, err = api.LoadAccess(file, hclog.NewNullLogger())
		must(t, err)
	}), token
}

func serve(t *testing.T, url string, change ...func(*api.Config)) *world {
	t.Helper()
	program, err := exec.LookPath("chromium")
	if err != nil {
		runtimetest.Missing(t, "left out, there is no chromium: run make deps-all")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	t.Cleanup(cancel)
	rdb, err := queue.Connect(url)
	must(t, err)
	t.Cleanup(func() { _ = rdb.Close() })
	tenant := queuetest.Tenant()
	client, err := queue.NewFromRedis(rdb, queue.Config{Tenant: tenant, Lease: 10 * time.Minute})
	must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	w := &world{Client: client, ctx: ctx, rdb: rdb}
	config := api.Config{Clients: []*queue.Client{client}, Stores: map[string]*kv.Store{tenant: kv.New(rdb, tenant)}, Logger: hclog.NewNullLogger()}
	for _, alter := range change {
		alter(&config)
	}
	w.config = config
	w.base = "http://" + w.listen(t, "127.0.0.1:0") + config.BasePath + "/"
	w.openWindow(t, program)
	return w
}

// listen serves on an address until the test or w.stop ends it.
func (w *world) listen(t *testing.T, address string) string {
	t.Helper()
	server, err := api.Listen(address, w.config)
	must(t, err)
	running, stop := context.WithCancel(context.WithoutCancel(w.ctx))
	ended := make(chan error, 1)
	go func() { ended <- server.Run(running) }()
	w.stop = sync.OnceFunc(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	t.Cleanup(w.stop)
	return server.Addr()
}

func (w *world) openWindow(t *testing.T, program string) {
	t.Helper()
	browser.once.Do(func() {
		options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(program), chromedp.NoSandbox)
		allocator, closeAllocator := chromedp.NewExecAllocator(context.Background(), options...)
		var closeBrowser context.CancelFunc
		browser.ctx, closeBrowser = chromedp.NewContext(allocator)
		browser.close = func() { closeBrowser(); closeAllocator() }
		browser.err = chromedp.Do(browser.ctx)
	})
	if browser.err != nil {
		t.Fatalf("start Chromium: %v", browser.err)
	}
	window, closeWindow := chromedp.NewContext(browser.ctx, chromedp.WithNewBrowserContext())
	t.Cleanup(closeWindow)
	w.window = window
	must(t, chromedp.Listen(window, func(event any) {
		w.mu.Lock()
		defer w.mu.Unlock()
		switch event := event.(type) {
		case *runtime.EventExceptionThrown:
			text := event.ExceptionDetails.Text
			if thrown := event.ExceptionDetails.Exception; thrown != nil {
				text += " " + thrown.Description
			}
			w.wrong = append(w.wrong, text)
		case *log.EventEntryAdded: // a refusal of the policy, for one
			if event.Entry.Level == log.EntryLevelError && event.Entry.Source != log.EntrySourceNetwork {
				w.wrong = append(w.wrong, event.Entry.Text)
			}
		}
	}))
	t.Cleanup(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, text := range w.wrong {
			t.Errorf("the browser complains: %s", text)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// do runs actions in the window. If they do not succeed in time, the failure shows what is there.
func (w *world) do(t *testing.T, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	ctx, cancel := context.WithTimeout(w.window, patience)
	defer cancel()
	err := chromedp.Do(ctx, actions...)
	for err != nil && ctx.Err() == nil && strings.Contains(err.Error(), "Cannot find context with specified id") {
		err = chromedp.Do(ctx, actions...) // a navigation replaced the document between two steps of an action
	}
	if err != nil {
		t.Fatalf("%v; the page shows:\n%s", err, evaluate[string](t, w, `document.body.innerText`))
	}
}

// goTo opens a place below the tenant, and waits for its heading.
func (w *world) goTo(t *testing.T, place, heading string) {
	t.Helper()
	w.do(t, chromedp.Navigate(w.base+"#/"+w.Tenant()+place))
	w.until(t, fmt.Sprintf(`document.querySelector("h1")?.innerText === %s && !document.querySelector("main").ariaBusy`, quoted(heading)))
}

// until waits until an expression of JavaScript is true.
func (w *world) until(t *testing.T, expression string) {
	t.Helper()
	w.do(t, chromedp.Poll[chromedp.Void](expression, chromedp.WithPollingInterval(50*time.Millisecond), chromedp.WithPollingTimeout(0)))
}

// see waits until the page shows all of these texts.
func (w *world) see(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		w.until(t, fmt.Sprintf(`document.body.innerText.includes(%s)`, quoted(text)))
	}
}

// press clicks buttons or links of the open dialog, or else of the page, one after the other.
func (w *world) press(t *testing.T, labels ...string) {
	t.Helper()
	for _, label := range labels {
		w.until(t, fmt.Sprintf(`(() => {
			const scope = document.querySelector("dialog[open]") ?? document;
			const found = [...scope.querySelectorAll("button, a")].find((one) => one.innerText === %s && one.checkVisibility() && !one.disabled);
			found?.click();
			return Boolean(found);
		})()`, quoted(label)))
	}
}

// eventually waits until something is so in Redis.
func (w *world) eventually(t *testing.T, what string, is func() (bool, error)) {
	t.Helper()
	require.Eventually(t, func() bool {
		ok, err := is()
		must(t, err)
		return ok
	}, patience, 5*time.Millisecond, what)
}

// evaluate is the value of an expression of JavaScript.
func evaluate[T any](t *testing.T, w *world, expression string) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(w.window, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	must(t, err)
	return value
}

func quoted(text string) string {
	quoted, _ := json.Marshal(text) // always can be
	return string(quoted)
}

func (w *world) enqueue(t *testing.T, name, parameters string, options queue.Options) string {
	t.Helper()
	id, err := w.Queue(name).Enqueue(w.ctx, []byte(parameters), options)
	must(t, err)
	return id
}

// node is a listener that is alive until the test ends, with these plugins, and listens to queues.
func (w *world) node(t *testing.T, plugins []upkeep.PluginInfo, queues ...string) *listen.Node {
	t.Helper()
	node := listen.New(w.Client)
	must(t, node.Join(w.ctx))
	for _, name := range queues {
		must(t, node.Register(w.ctx, name))
	}
	published, err := json.Marshal(plugins)
	must(t, err)
	_, err = node.Renew(w.ctx, map[string]string{"plugins": string(published), "slots": "8", "slots_in_use": "1", "version": "1.2.3", "memory": "1"})
	must(t, err)
	return node
}

// run starts the oldest task of a queue, and settles it unless settle is nil.
func (w *world) run(t *testing.T, node *listen.Node, name string, settle func(listen.Claim) listen.Settlement, lines ...string) listen.Reservation {
	t.Helper()
	reply := node.Reserve(w.ctx, []listen.ReserveRequest{{Queue: name, Count: 1, Start: true, FailurePolicy: listen.FailurePolicy{Dead: w.dead}, Plugin: "mail", Digest: strings.Repeat("a1", 32)}})[0]
	must(t, reply.Err)
	if len(reply.Tasks) != 1 {
		t.Fatalf("reserved %d tasks of %q, want 1", len(reply.Tasks), name)
	}
	task := reply.Tasks[0]
	if len(lines) > 0 {
		must(t, node.AppendLogs(w.ctx, []listen.LogBatch{{Claim: task.Claim(), Lines: lines}})[0])
	}
	if settle != nil {
		errs, err := node.Settle(w.ctx, name, []listen.Settlement{settle(task.Claim())})
		must(t, err)
		must(t, errs[0])
	}
	return task
}

func complete(result string) func(listen.Claim) listen.Settlement {
	return func(c listen.Claim) listen.Settlement { return listen.Settlement{Claim: c, Result: []byte(result)} }
}

func failed(message string) func(listen.Claim) listen.Settlement {
	return func(c listen.Claim) listen.Settlement {
		return listen.Settlement{Claim: c, Failure: &queue.Failure{
			Reason: queue.ReasonTrap, Message: message, Stderr: "panic: " + message, Backtrace: []string{"main.handle", "main.deliver"},
		}}
	}
}

// scheming makes the window prefer light or dark.
func scheming(scheme string) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, _ *chromedp.Target) error {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
		})
		return err
	})
}
