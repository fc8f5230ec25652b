package assemblyscript_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/egress"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/runtime/service"
)

// bind builds a handler with the package, and makes a pool of it.
func bind(t *testing.T, file string, args ...string) *runtime.Pool {
	t.Helper()
	pool := build(t, file, args...).Bind(runtime.Profile{Tenant: "tenant", Config: map[string]string{"greeting": "Good morning"}})
	t.Cleanup(pool.Close)
	return pool
}

// compiled are the handlers that asc has built, by its arguments.
var (
	compiledMu sync.Mutex
	compiled   = map[string][]byte{} // guarded by compiledMu
)

// compile builds a handler with the package, once for all tests.
func compile(t *testing.T, file string, args ...string) []byte {
	t.Helper()
	compiledMu.Lock()
	defer compiledMu.Unlock()
	key := strings.Join(append(args, file), " ")
	if binary, ok := compiled[key]; ok {
		return binary
	}
	dir := t.TempDir()
	source, err := filepath.Abs(".")
	if err == nil {
		err = os.Mkdir(filepath.Join(dir, "@quern"), 0o700)
	}
	if err == nil {
		err = os.Symlink(source, filepath.Join(dir, "@quern", "assemblyscript"))
	}
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out.wasm")
	asc := filepath.Join(runtimetest.Packages(t), ".bin", "asc")
	cmd := exec.CommandContext(t.Context(), asc, append(args, file, "--config", "../asconfig.json", "--path", dir, "-O", "--outFile", out)...)
	cmd.Dir = "testdata"
	if said, err := cmd.CombinedOutput(); err != nil || len(said) > 0 {
		t.Fatalf("asc: %v\n%s", err, said)
	}
	binary, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	compiled[key] = binary
	return binary
}

func build(t *testing.T, file string, args ...string) *runtime.Module {
	t.Helper()
	engine, err := runtime.New(t.Context(), runtime.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close(t.Context()) })
	module, err := engine.Load(t.Context(), compile(t, file, args...))
	if err != nil {
		t.Fatal(err)
	}
	return module
}

// What becomes of a handler is the outcome: errors with their place, and its memory as the runtime keeps it.
func TestHandler(t *testing.T) {
	t.Parallel()
	for _, collector := range []string{"stub", "incremental"} {
		pool := bind(t, "handler.ts", "--runtime", collector)
		for input, want := range map[string]string{
			"Ada":     "complete: : Good morning, Ada!",
			"":        "fatal: no name: ",
			"\xff":    "fatal: the input is not UTF-8: ",
			"later":   "retry: not now: ",
			"throw":   "trap: unreachable (the program aborted or panicked): no ink (handler.ts:17:24): ",
			"index":   "trap: unreachable (the program aborted or panicked): Index out of range (~lib/array.ts:114:42): ",
			"refused": "failed: sleep: invalid: -1 ms: use 0 or more (EINVAL): ",
			"key":     "failed: kv_set weather/Berlin: denied: the manifest grants no kv_set, or there is none here (EDENIED): ",
			"secret":  "failed: secret_get token: denied: the manifest grants no secret_get, or there is none here (EDENIED): ",
			"queue":   "failed: enqueue mail: denied: the manifest grants no enqueue, or there is none here (EDENIED): ",
			"url":     "failed: http GET https://a.example/@path: denied: the manifest grants no http, or there is none here (EDENIED): ",
			"handled": "complete: : EINVAL: invalid: -1 ms: use 0 or more",
			"garbage": "complete: : 988890",
		} {
			got := pool.Run(t.Context(), runtime.Call{TaskID: "task", Input: []byte(input)})
			if text := string(got.Kind) + ": " + got.Message + ": " + string(got.Output); text != want {
				t.Errorf("%s of %q: %s, want %s", collector, input, text, want)
			}
		}
	}
}

// Texts of the largest sizes are read and written in memory that is never freed: a header of 60 KiB, a body in Latin-1.
func TestLargeTexts(t *testing.T) {
	t.Parallel()
	header := strings.Repeat(`<"\é`, 60<<10/5) // its JSON has escapes
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Text", header)
		_, _ = w.Write(bytes.Repeat([]byte("a\xe9"), 1<<19))
	}))
	t.Cleanup(server.Close)
	client := egress.New(egress.Config{Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	t.Cleanup(client.Close)
	grant, err := egress.ParseGrant(server.URL, []string{"GET"})
	if err != nil {
		t.Fatal(err)
	}
	pool := bind(t, "handler.ts")
	for input, want := range map[string]string{
		server.URL: header + " 1048576 \uFFFDa\uFFFD",
		"quoted":   `{"text":"` + strings.Repeat(`\"`, 1<<16) + `"}`,
	} {
		got := pool.Run(t.Context(), runtime.Call{
			TaskID: "task", Input: []byte(input),
			Services: service.Services{HTTP: client.For("tenant", []egress.Grant{grant}, nil)},
		})
		if got.Kind != runtime.Complete || string(got.Output) != want {
			t.Errorf("%s: %s: %.100q, want %.100q", input, got.Message, got.Output, want)
		}
	}
}

// Math.random is seeded in the task, and trace writes to the log.
func TestBuiltins(t *testing.T) {
	t.Parallel()
	pool := bind(t, "handler.ts")
	seen := map[string]bool{}
	for range 3 {
		var log []string
		got := pool.Run(t.Context(), runtime.Call{TaskID: "task", Input: []byte("random"), Log: func(line string) { log = append(log, line) }})
		if seen[string(got.Output)] || got.Kind != runtime.Complete {
			t.Errorf("drew %s again: %s", got.Output, got.Message)
		}
		seen[string(got.Output)] = true
		if len(log) != 1 || !strings.HasSuffix(log[0], "drawn 1.5") {
			t.Errorf("log %q", log)
		}
	}
}

// The warm call has no task, whose description is empty there.
func TestWarmTask(t *testing.T) {
	t.Parallel()
	pool := build(t, "handler.ts").Bind(runtime.Profile{Tenant: "tenant", Warm: []byte("described")})
	t.Cleanup(pool.Close)
	got := pool.Run(t.Context(), runtime.Call{TaskID: "task", Attempt: 1, Input: []byte("described")})
	if want := "///0 task/tenant//1"; string(got.Output) != want {
		t.Errorf("%q, want %q: %s", got.Output, want, got.Message)
	}
}

// What is thrown before the first task is each task's error.
func TestStartThrows(t *testing.T) {
	t.Parallel()
	got := bind(t, "unlucky.ts").Run(t.Context(), runtime.Call{})
	if want := "error: no paper (unlucky.ts:4:29)"; !strings.HasPrefix(got.Message, "before its first task: ") || !strings.HasSuffix(got.Message, want) {
		t.Errorf("%s, want %s", got.Message, want)
	}
}
