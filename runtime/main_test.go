package runtime

import (
	"bytes"
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/quern-project/quern/runtime/snapshot"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], childMode) {
		os.Exit(beChild(os.Args[1], os.Args[2:]))
	}
	if len(os.Args) > 1 && strings.HasPrefix(os.Args[1], doomedMode) {
		os.Exit(beDoomed(os.Args[1]))
	}
	goleak.VerifyTestMain(m)
}

// patience is how long a test waits for what should be there at once.
const patience = 30 * time.Second

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
	return module.Run(t.Context(), Call{TaskID: "id", Queue: "queue", Plugin: "plugin", Input: []byte(input), Limits: limits})
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
