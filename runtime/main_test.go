package runtime

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/quern-project/quern/runtime/compile"
	"github.com/quern-project/quern/runtime/snapshot"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == compileMode {
		if err := compile.Child(context.Background(), os.Args[2:], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], doomedMode) {
		os.Exit(beDoomed(os.Args[1]))
	}
	goleak.VerifyTestMain(m)
}

// compileMode is the first argument that makes the test binary a compile child.
const compileMode = "compile-child"

// itself is the command line of the test binary in another mode.
func itself(mode string) []string {
	program, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return []string{program, mode}
}

// testVersion stands in for wazero's version, which the build of a test does not tell.
const testVersion = "v0.0.0-test"

// patience is how long a test waits for what should be there at once.
const patience = 2 * time.Minute

// setup returns an engine of the test's own.
func setup(t testing.TB) *Engine {
	t.Helper()
	return setupWith(t, Config{})
}

func setupWith(t testing.TB, cfg Config) *Engine {
	t.Helper()
	engine, err := newEngine(t.Context(), cfg, testVersion)
	if err != nil {
		t.Fatalf("newEngine: %v", err)
	}
	t.Cleanup(func() {
		if err := engine.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return engine
}

// works tells whether a reset mode works here.
func works(mode ResetMode) bool {
	return slices.ContainsFunc(resetModes(), func(v snapshot.Verdict) bool { return v.Mode == mode && v.Err == nil })
}

// load loads a module into an engine of the test's own.
func load(t testing.TB, binary []byte) *Module {
	t.Helper()
	return loadInto(t, setup(t), binary)
}

func loadInto(t testing.TB, engine *Engine, binary []byte) *Module {
	t.Helper()
	module, err := engine.Load(t.Context(), binary)
	if err != nil {
		t.Fatalf("Load: %v", err)
	}
	t.Cleanup(func() {
		if err := module.Close(context.Background()); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return module
}

// call runs a module with an input and limits.
func call(t testing.TB, module *Module, input string, limits Limits) Outcome {
	t.Helper()
	return bound(module, "", Profile{Limits: limits}).Run(t.Context(), Call{TaskID: "id", Queue: "queue", Plugin: "plugin", Input: []byte(input)})
}

// complete fails the test if a call did not complete, and returns its output.
func complete(t testing.TB, outcome Outcome) string {
	t.Helper()
	if outcome.Kind != Complete {
		t.Fatalf("outcome = %+v, want complete", outcome)
	}
	return string(outcome.Output)
}

// logTo returns a logger and what it wrote.
func logTo(t testing.TB) (hclog.Logger, *bytes.Buffer) {
	t.Helper()
	var buffer bytes.Buffer
	return hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: &buffer}), &buffer
}

// boundPools are the pools that tests have bound by name.
var boundPools = struct {
	sync.Mutex
	pools map[boundKey]*Pool
}{pools: map[boundKey]*Pool{}}

type boundKey struct {
	module       *Module
	name, tenant string
	memory       int64
}

// bound is the pool of a module with that name and the profile's tenant and memory limit. The first call binds it. Without a
// name, each call gets an instance of its own.
func bound(m *Module, name string, profile Profile) *Pool {
	if name == "" {
		p := m.Bind(profile)
		p.resetMode, p.registered = ResetNew, true // nothing of it is counted or trimmed
		return p
	}
	boundPools.Lock()
	defer boundPools.Unlock()
	key := boundKey{m, name, profile.Tenant, profile.Limits.WithDefaults().Memory}
	p := boundPools.pools[key]
	if p == nil {
		p = m.Bind(profile)
		boundPools.pools[key] = p
	}
	return p
}

// retire closes the pools of a module with that name. The next call of bound binds another one.
func retire(m *Module, name string) {
	boundPools.Lock()
	defer boundPools.Unlock()
	for key, p := range boundPools.pools {
		if key.module == m && key.name == name {
			p.Close()
			delete(boundPools.pools, key)
		}
	}
}

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	require.Eventually(t, holds, patience, 5*time.Millisecond, what)
}
