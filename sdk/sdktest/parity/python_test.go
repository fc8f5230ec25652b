package parity_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/runtimetest"
)

// native is what quern.testing says became of a task.
type native struct {
	Status, Output, Error string
	Delay                 float64
	Log                   []string
	Progress              [][2]any
}

// runNative runs testdata/handler.py with quern.testing.
func runNative(t *testing.T, input string) (n native) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "../../../build/venv/bin/python", "testdata/native.py", input)
	source, err := filepath.Abs("../../python/package/src")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), "PYTHONPATH="+source, "PYTHONDONTWRITEBYTECODE=1", "PYTHONIOENCODING=utf-8")
	cmd.Stderr = t.Output()
	said, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(said, &n)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	return n
}

// TestParityOfPython holds the services of quern.testing to those of a host.
func TestParityOfPython(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("testdata/handler.py")
	if err != nil {
		t.Fatal(err)
	}
	cache := filepath.Join("..", "..", "..", "build", "test", "compiled")
	if err := os.MkdirAll(filepath.Dir(cache), 0o750); err != nil {
		t.Fatal(err)
	}
	g := sandboxOf(t, runtimetest.Interpreted(t, "python", string(source)), runtime.Config{CacheDir: cache})
	g.call.Timeout = 0
	outcome := g.run(t, "")
	if outcome.Kind != runtime.Complete {
		t.Fatalf("%+v\n%s", outcome, strings.Join(g.lines, "\n"))
	}
	got := runNative(t, string(g.call.Input))
	if got.Status != "complete" {
		t.Fatalf("%+v", got)
	}
	differ(t, "result", strings.Split(got.Output, "\n"), strings.Split(string(outcome.Output), "\n"))
	differ(t, "log", got.Log, g.lines)
	if len(got.Progress) != len(g.said) {
		t.Fatalf("progress %v, a host has %v", got.Progress, g.said)
	}
	for i, said := range g.said {
		if p := got.Progress[i]; fmt.Sprint(p[0], p[1]) != fmt.Sprint(said.Fraction, said.Message) {
			t.Errorf("progress %v, a host has %v", p, said)
		}
	}
	for _, input := range []string{"error", "retry", "fatal", "failure", "exit"} {
		want, got := g.run(t, input), runNative(t, input)
		status := map[runtime.OutcomeKind]string{runtime.Failed: "failed", runtime.Fatal: "fatal", runtime.Retry: "retry"}[want.Kind]
		// A host adds the lines of an exception.
		if got.Status != status || got.Error == "" || !strings.HasPrefix(want.Message, got.Error) || want.RetryAfter != time.Duration(got.Delay*float64(time.Second)) {
			t.Errorf("%s: %+v, a host has %s %q after %v", input, got, want.Kind, want.Message, want.RetryAfter)
		}
	}
}
