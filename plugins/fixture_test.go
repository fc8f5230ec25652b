package plugins

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/runtimetest"
)

// patience is far beyond what any condition needs, even with the race detector on a busy machine.
const patience = 2 * time.Minute

// fixture is a directory, what watches it, and what was said about it.
type fixture struct {
	*Directory
	t    testing.TB
	dir  string
	seen *recorder
	logs *logbook

	engine *runtime.Engine
	stop   func() // ends Run and waits for it; may be called twice
}

// setup makes a watched directory. prepare fills it before the first look, and returns once that is
// over.
func setup(t testing.TB, cfg Config, prepare func(dir string)) *fixture {
	t.Helper()
	f := prepared(t, cfg, prepare)
	f.start()
	select {
	case <-f.Ready():
	case <-time.After(patience):
		t.Fatal("the directory is not ready")
	}
	return f
}

// prepared is setup without the start.
func prepared(t testing.TB, cfg Config, prepare func(dir string)) *fixture {
	t.Helper()
	return preparedOn(t, runtime.Config{}, cfg, prepare)
}

// preparedOn is prepared with an engine that is not the usual one.
func preparedOn(t testing.TB, engine runtime.Config, cfg Config, prepare func(dir string)) *fixture {
	t.Helper()
	f := &fixture{t: t, dir: cfg.Dir, seen: &recorder{}, logs: &logbook{}}
	if f.dir == "" {
		f.dir = t.TempDir()
		cfg.Dir = f.dir
	}
	if cfg.Tenants == nil {
		cfg.Tenants = []string{"acme", "{blue}"}
	}
	cfg.Observer = f.seen
	cfg.Logger = hclog.New(&hclog.LoggerOptions{Output: f.logs, Level: hclog.Debug})
	if prepare != nil {
		prepare(f.dir)
	}
	var err error
	if f.engine, err = runtime.New(t.Context(), engine); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.engine.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("close engine: %v", err)
		}
	})
	if f.Directory, err = New(f.engine, cfg); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) start() {
	ctx, cancel := context.WithCancel(context.WithoutCancel(f.t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := f.Run(ctx); err != nil {
			f.t.Errorf("run: %v", err)
		}
	}()
	f.stop = func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(patience):
			f.t.Error("Run does not return")
		}
	}
	f.t.Cleanup(func() {
		f.stop()
		f.loader.modules.mu.Lock()
		defer f.loader.modules.mu.Unlock()
		if left := len(f.loader.modules.byDigest); left > 0 {
			f.t.Errorf("%d modules are open after Run", left)
		}
		if f.t.Failed() {
			f.t.Logf("log:\n%s", f.logs)
		}
	})
}

func (f *fixture) path(name string) string { return filepath.Join(f.dir, name) }

// write writes a file in place.
func (f *fixture) write(name string, data []byte) { write(f.t, f.path(name), data) }

// replace puts a file in the place of another in one step.
func (f *fixture) replace(name string, data []byte) {
	f.t.Helper()
	aside := f.path("." + filepath.Base(name) + ".new")
	write(f.t, aside, data)
	if err := os.Rename(aside, f.path(name)); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) remove(name string) { check(f.t, os.RemoveAll(f.path(name))) }

// runs runs a task on what serves the queue, and returns its output; "" if nothing serves it.
func (f *fixture) runs(tenant, queue string) string {
	f.t.Helper()
	v := f.Acquire(tenant, queue)
	if v == nil {
		return ""
	}
	defer v.Release()
	outcome := v.Run(f.t.Context(), runtime.Call{TaskID: "1", Queue: queue, Input: []byte("task")})
	if outcome.Kind != runtime.Complete {
		f.t.Fatalf("task on %s: %+v", queue, outcome)
	}
	return string(outcome.Output)
}

// awaitRun waits until a task gives the output.
func (f *fixture) awaitRun(tenant, queue, want string) {
	f.t.Helper()
	eventually(f.t, func() error {
		if got := f.runs(tenant, queue); got != want {
			return fmt.Errorf("tenant %s, queue %s: output %q, want %q", tenant, queue, got, want)
		}
		return nil
	})
}

// awaitRefusal waits until the plugin is listed as refused for a reason that has all the words.
func (f *fixture) awaitRefusal(tenant, plugin string, words ...string) Status {
	f.t.Helper()
	var found Status
	eventually(f.t, func() error {
		status, ok := f.status(tenant, plugin, StateRefused)
		if !ok {
			return fmt.Errorf("plugin %q of %q is not refused: %+v", plugin, tenant, f.List())
		}
		for _, word := range words {
			if !strings.Contains(status.Error, word) {
				return fmt.Errorf("the error of %q lacks %q: %s", plugin, word, status.Error)
			}
		}
		found = status
		return nil
	})
	return found
}

func (f *fixture) awaitNoRefusal(tenant, plugin string) {
	f.t.Helper()
	eventually(f.t, func() error {
		if status, ok := f.status(tenant, plugin, StateRefused); ok {
			return fmt.Errorf("still refused: %+v", status)
		}
		return nil
	})
}

func (f *fixture) status(tenant, plugin, state string) (Status, bool) {
	for _, s := range f.List() {
		if s.Tenant == tenant && s.Plugin == plugin && s.State == state {
			return s, true
		}
	}
	return Status{}, false
}

// eventually waits until the condition returns no error.
func eventually(t testing.TB, condition func() error) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) { require.NoError(c, condition()) }, patience, 5*time.Millisecond)
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const anyVersion = "v00000000"

// guest is a module that writes the version with this number. Guests of two numbers differ in nothing
// but these bytes, so that no compiler has to run for each.
func guest(t testing.TB, number int) []byte {
	t.Helper()
	return numbered(runtimetest.Version(t, anyVersion), number)
}

// numbered is a module with another version in it.
func numbered(module []byte, number int) []byte {
	return bytes.Replace(module, []byte(anyVersion), []byte(output(number)), 1)
}

func output(number int) string { return fmt.Sprintf("v%08d", number) }

// recorder is an Observer that remembers.
type recorder struct {
	mu     sync.Mutex
	events []string
}

func (r *recorder) PluginLoaded(tenant, plugin, result string) {
	r.add(fmt.Sprintf("loaded %q %s %s", tenant, plugin, result))
}

func (r *recorder) PluginServing(tenant, plugin, version, digest, resetMode string, serving bool) {
	r.add(fmt.Sprintf("serving %q %s %q %s %t", tenant, plugin, version, digest, serving))
	if resetMode == "" {
		r.add("no reset mode")
	}
}

func (r *recorder) add(event string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, event)
}

// drain returns the events since the last drain.
func (r *recorder) drain() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	events := r.events
	r.events = nil
	return events
}

// count counts the events that were recorded since the last drain.
func (r *recorder) count(event string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	count := 0
	for _, e := range r.events {
		if e == event {
			count++
		}
	}
	return count
}

// logbook keeps what was logged.
type logbook struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logbook) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// write writes a file in place, as a plain copy does.
func write(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// hostGrants are grants of a file that the messages name.
func hostGrants(t testing.TB, data string) *manifest.Grants {
	t.Helper()
	g, err := manifest.ParseGrants("/etc/quern/grants.yaml", []byte(data))
	check(t, err)
	return g
}
