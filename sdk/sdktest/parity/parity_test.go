package parity_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/host/guest"
	"github.com/quern-project/quern/host/kv"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/egress"
	"github.com/quern-project/quern/sdk"
	"github.com/quern-project/quern/sdk/fetch"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/queuetest"
	"github.com/quern-project/quern/sdk/sdktest"
	"github.com/quern-project/quern/sdk/sdktest/parity"
)

// The handler of package parity in WebAssembly, with the services of a host: Redis, real HTTP, and what checks the tasks that are
// enqueued. TestParity holds a Harness to what it is answered there.
type sandbox struct {
	pool  *runtime.Pool
	call  runtime.Call
	url   string
	lines []string
	said  []sdktest.Progress
}

func newSandbox(t *testing.T) *sandbox {
	t.Helper()
	file := filepath.Join(t.TempDir(), "parity.wasm")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildmode=c-shared", "-o", file, "./guest")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=-trimpath")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, said)
	}
	binary, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return sandboxOf(t, binary, runtime.Config{})
}

// sandboxOf is the sandbox of another handler.
func sandboxOf(t *testing.T, binary []byte, config runtime.Config) *sandbox {
	t.Helper()
	engine, err := runtime.New(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	module, err := engine.Load(t.Context(), binary)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(module.Close(context.Background()), engine.Close(context.Background())); err != nil {
			t.Error(err)
		}
	})
	server := httptest.NewServer(http.HandlerFunc(web))
	t.Cleanup(server.Close)
	client := egress.New(egress.Config{Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	t.Cleanup(client.Close)
	tenant := queuetest.Tenant()
	rdb := queuetest.Shared(t).Client(t)
	store := kv.New(rdb, tenant)
	if err := store.For([]kv.Grant{{Bucket: "r", Write: true, Quota: 1000}}, nil).Set(t.Context(), "r", "given", []byte("value"), 0); err != nil {
		t.Fatal(err)
	}
	secrets := t.TempDir()
	if err := errors.Join(os.Mkdir(filepath.Join(secrets, tenant), 0o700), os.WriteFile(filepath.Join(secrets, tenant, "api_key"), []byte("xyz"), 0o600)); err != nil {
		t.Fatal(err)
	}
	m, err := manifest.Parse("parity.yaml", fmt.Appendf(nil, `
config: {size: 200x200}
capabilities:
  kv: [{bucket: rw, access: rw}, {bucket: list, access: rw}, {bucket: r}]
  http: [{host: %q, methods: [GET, POST]}]
  secrets: [api_key]
  enqueue: {queues: [done, "mail.*"]}
  publish: {topics: [orders, "bills.*"]}
`, server.URL))
	if err != nil {
		t.Fatal(err)
	}
	g := &sandbox{pool: module.Bind(runtime.Profile{Tenant: "acme", Config: map[string]string{"size": "200x200"}}), url: server.URL}
	services, _, _ := guest.New(guest.Config{KV: map[string]*kv.Store{tenant: store}, HTTP: client, Secrets: secrets}).For(guest.Task{
		ID: "6e", Tenant: tenant, Asked: &m.Capabilities, Permissions: manifest.NewPermissions(&m, nil, tenant, nil), Host: idle{},
	})
	g.call = runtime.Call{
		TaskID: "7f", Queue: "print", Plugin: "printer", Attempt: 2, MaxAttempts: 5, Reschedules: 7,
		PreviousError: "oh", Parent: "6e", Key: "k", Traceparent: "00-1-2-01", Timeout: time.Minute,
		Headers: map[string]string{"x-b": "2: ü", "x-a": "", "traceparent": "00-1-2-01"},
		Input:   []byte("ask " + server.URL), Services: services,
		Log: func(line string) { g.lines = append(g.lines, line) },
		Progress: func(fraction float64, message string) {
			g.said = append(g.said, sdktest.Progress{Fraction: fraction, Message: message})
		},
	}
	return g
}

// run runs the handler with an input; "" is the one that asks for everything.
func (g *sandbox) run(t *testing.T, input string) runtime.Outcome {
	t.Helper()
	g.lines, g.said = nil, nil
	c := g.call
	if input != "" {
		c.Input = []byte(input)
	}
	outcome := g.pool.Run(t.Context(), c)
	// What a host says beside the handler's own words, of what it denies.
	g.lines = slices.DeleteFunc(g.lines, func(line string) bool { return strings.HasPrefix(line, "quern_v1.") })
	return outcome
}

// idle is a host that keeps nothing of its tasks.
type idle struct{}

func (idle) Publish(context.Context, *queue.Publication) error { return nil }

func (idle) SaveCheckpoint(context.Context, []byte) error                 { return nil }
func (idle) Warn(string, ...any)                                          {}
func (idle) AdmitQueue(context.Context, string) error                     { return nil }
func (idle) Borrow(context.Context, int64) error                          { return nil }
func (idle) Enqueue(context.Context, listen.Child) (id string, err error) { return "", nil }

func (idle) Dependencies(context.Context) ([]listen.Dependency, error) {
	return []listen.Dependency{{ID: "empty", End: "complete"}, {ID: "full", End: "complete"}, {ID: "late"}, {ID: "bad", End: "failed"}}, nil
}

func (idle) Failure(context.Context, string) (*queue.Failure, error) { return nil, nil }

func (idle) Result(_ context.Context, id string, _ int64) ([]byte, error) {
	switch id {
	case "empty":
		return []byte{}, nil
	case "full":
		return []byte("full\x00"), nil
	}
	return nil, queue.ErrNoTask
}

// web is the server that both ask.
func web(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/echo":
		body, _ := io.ReadAll(r.Body)
		w.Header().Add("X-Two", "a")
		w.Header().Add("X-Two", "b")
		w.Header().Set("Content-Type", "text/plain")
		fmt.Fprintf(w, "%s %q %q %q %q", r.Method, r.URL.Query(), r.Header["X-Two"], r.Header["Content-Type"], body)
	case "/moved":
		w.Header().Set("Location", "/")
		w.WriteHeader(http.StatusFound)
	case "/missing":
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusServiceUnavailable)
	case "/never":
		<-r.Context().Done()
	default:
		w.Header().Set("Content-Type", "text/plain")
		fmt.Fprint(w, "welcome")
	}
}

// harness grants what newSandbox does.
func harness(t *testing.T) *sdktest.Harness {
	t.Helper()
	h := sdktest.New(t)
	h.Config["size"] = "200x200"
	h.Secrets["api_key"] = "xyz"
	h.Queues, h.Topics = []string{"done", "mail.*"}, []string{"orders", "bills.*"}
	h.Bucket("rw")
	h.Bucket("list")
	h.Bucket("r").ReadOnly().Set("given", "value")
	served := sdktest.Serve(http.HandlerFunc(web))
	h.HTTP = func(r fetch.Request) (*fetch.Response, error) {
		if r.Method != "GET" && r.Method != "POST" || strings.Contains(r.URL, "denied.example") {
			return nil, sdk.ErrDenied
		}
		return served(r)
	}
	return h
}

// reasons matches why a host refused a request, in words that only a host has, and what sdktest says instead.
var reasons = regexp.MustCompile(`(?m)(^error: \S+ \S*: )(?:denied|invalid|an argument is invalid).*?( (?:true|false) (?:true|false) (?:true|false))?$`)

func TestParity(t *testing.T) {
	t.Parallel()
	g := newSandbox(t)
	outcome := g.run(t, "")
	if outcome.Kind != runtime.Complete {
		t.Fatalf("%+v", outcome)
	}
	r := harness(t).Run(parity.Ask, sdktest.Task{
		ID: "7f", Queue: "print", Tenant: "acme", Plugin: "printer", Attempt: 2, MaxAttempts: 5, Reschedules: 7,
		PreviousError: "oh", Parent: "6e", Key: "k", Traceparent: "00-1-2-01", Timeout: time.Minute,
		Headers:      map[string]string{"x-b": "2: ü", "x-a": ""},
		Input:        g.call.Input,
		Dependencies: []sdktest.Dependency{{ID: "empty"}, {ID: "full", Result: []byte("full\x00")}, {ID: "late", End: "waiting"}, {ID: "bad", End: "failed"}},
	})
	if r.Outcome != sdktest.Complete || r.Status != 0 {
		t.Fatal(r)
	}
	lines := func(text []byte) []string { return strings.Split(reasons.ReplaceAllString(string(text), "$1$2"), "\n") }
	differ(t, "result", lines(r.Result), lines(outcome.Output))
	differ(t, "log", r.Log, g.lines)
	if !slices.Equal(r.Progress, g.said) {
		t.Errorf("progress %v, a host has %v", r.Progress, g.said)
	}
}

// differ compares what a Harness gives with what a host does.
func differ(t *testing.T, what string, got, want []string) {
	t.Helper()
	if len(got) != len(want) || len(want) < 2 {
		t.Errorf("%s: %d lines, a host has %d", what, len(got), len(want))
	}
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			t.Errorf("%s: %.300s\na host: %.300s", what, got[i], want[i])
		}
	}
}

// TestParityOfFailures: what becomes of a task.
func TestParityOfFailures(t *testing.T) {
	t.Parallel()
	g := newSandbox(t)
	h := harness(t)
	kinds := map[sdktest.Outcome]runtime.OutcomeKind{
		sdktest.Failed: runtime.Failed, sdktest.Retry: runtime.Retry, sdktest.Fatal: runtime.Fatal, sdktest.Panicked: runtime.Failed,
	}
	for _, input := range []string{"fail", "retry", "retry-key", "fatal", "panic"} {
		want := g.run(t, input)
		got := h.Run(parity.Ask, sdktest.Task{ID: input, Input: []byte(input)})
		if kinds[got.Outcome] != want.Kind || got.Status != want.Code || got.RetryAfter != want.RetryAfter ||
			got.HoldKey != want.HoldKey || got.HoldKey != (input == "retry-key") || got.Result != nil {
			t.Errorf("%s: %+v, a host has %+v", input, got, want)
		}
		if input == "panic" && (len(got.Log) < 3 || got.Log[0] != g.lines[0]) {
			t.Errorf("log %q, a host has %q", got.Log, g.lines)
		}
	}
}
