// These tests run plugins that the SDK builds in the sandbox. They lie beside the package sdk, because go mod tidy downloads
// what the tests of an imported package import.
package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/sdk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The ways to build a plugin.
const (
	asCommand = "-buildmode=exe"
	asHandler = "-buildmode=c-shared"
)

// build builds a plugin of testdata by the command that the package's description gives.
func build(t testing.TB, name, mode string) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), name+".wasm")
	cmd := exec.CommandContext(t.Context(), "go", "build", mode, "-o", out, "../testdata/"+name)
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOFLAGS=-trimpath")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, said)
	}
	binary, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// setup returns an engine of the test's own.
func setup(t testing.TB) *runtime.Engine {
	t.Helper()
	engine, err := runtime.New(t.Context(), runtime.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return engine
}

// load loads a plugin.
func load(t testing.TB, engine *runtime.Engine, binary []byte) *runtime.Module {
	t.Helper()
	module, err := engine.Load(t.Context(), binary)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := module.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return module
}

// task is a call with the profile of its pool, which has a name.
type task struct {
	runtime.Call
	runtime.Profile
	pool string
}

// pools are the bound pools, by module and name.
var pools sync.Map

// run runs a task in one of the instances of its pool.
func run(t testing.TB, module *runtime.Module, c task) runtime.Outcome {
	t.Helper()
	type key struct {
		module *runtime.Module
		pool   string
	}
	pool, _ := pools.LoadOrStore(key{module, c.pool}, module.Bind(c.Profile))
	return pool.(*runtime.Pool).Run(t.Context(), c.Call)
}

// call is a task with an input.
func call(input string) task {
	return task{
		runtime.Call{TaskID: "7f", Queue: "print", Plugin: "printer", Attempt: 2, MaxAttempts: 5, Input: []byte(input)},
		runtime.Profile{Tenant: "acme", Env: map[string]string{"MODE": "draft"}},
		"printer",
	}
}

// complete is the output of a task that has to complete.
func complete(t testing.TB, module *runtime.Module, c task) string {
	t.Helper()
	outcome := run(t, module, c)
	if outcome.Kind != runtime.Complete {
		t.Fatalf("%q: %s, %s\n%s", c.Input, outcome.Kind, outcome.Message, outcome.Stderr)
	}
	return string(outcome.Output)
}

// TestHandler runs a handler as Quern does.
func TestHandler(t *testing.T) {
	t.Parallel()
	handler := load(t, setup(t), build(t, "behaviors", asHandler))
	t.Run("Outcomes", func(t *testing.T) { t.Parallel(); testOutcomes(t, handler) })
	t.Run("Stopped", func(t *testing.T) { testStopped(t, handler) })
	t.Run("Sizes", func(t *testing.T) { t.Parallel(); testSizes(t, handler) })
	t.Run("Task", func(t *testing.T) { t.Parallel(); testTask(t, handler) })
	t.Run("Log", func(t *testing.T) { t.Parallel(); testLog(t, handler) })
	t.Run("Copy", func(t *testing.T) { t.Parallel(); testCopy(t, handler) })
	t.Run("Warm", func(t *testing.T) { t.Parallel(); testWarm(t, handler) })
	t.Run("Context", func(t *testing.T) { t.Parallel(); testContext(t, handler) })
	t.Run("Said", func(t *testing.T) { t.Parallel(); testSaid(t, handler) })
	t.Run("Misuse", func(t *testing.T) { t.Parallel(); testMisuse(t, handler) })
}

// testOutcomes goes over the table of the package's description.
func testOutcomes(t *testing.T, handler *runtime.Module) {
	const (
		paper  = "the printer is out of paper"
		panics = "panic: "
	)
	tests := map[string]struct {
		kind    runtime.OutcomeKind
		message string
		after   time.Duration
	}{
		"":                {runtime.Complete, "", 0},
		"fail":            {runtime.Failed, paper, 0},
		"fail retry":      {runtime.Retry, paper, 0},
		"fail after":      {runtime.Retry, "print page 2: " + paper, 90 * time.Second},
		"fail soon":       {runtime.Retry, paper, time.Millisecond},
		"fail fatal":      {runtime.Fatal, paper, 0},
		"panic":           {runtime.Failed, panics + "out of ink", 0},
		"panic error":     {runtime.Failed, panics + paper, 0},
		"panic runtime":   {runtime.Failed, panics + "runtime error: invalid memory address or nil pointer dereference", 0},
		"panic exit":      {runtime.Retry, "exit status 75 (try again later)", 0},
		"panic goroutine": {runtime.Trap, panics + "in a goroutine", 0},
		"panic goexit":    {runtime.Trap, "fatal error: all goroutines are asleep - deadlock! [main.init.0.func1 (main.go:58)]", 0},
		"panic deadlock":  {runtime.Trap, "fatal error: all goroutines are asleep - deadlock! [main.panics (main.go:132) < main.behave (main.go:93)]", 0},
	}
	for input, want := range tests {
		t.Run(input, func(t *testing.T) {
			t.Parallel()
			got := run(t, handler, call(input))
			if message, frames, found := strings.Cut(got.Message, " [main."); found && strings.HasPrefix(want.message, panics) {
				if !strings.Contains(frames, " (main.go:") || !strings.HasSuffix(frames, ")]") {
					t.Errorf("the frames in %q", got.Message)
				}
				got.Message = message
			} else if strings.HasPrefix(want.message, panics) {
				t.Errorf("no frames in %q", got.Message)
			}
			if got.Kind != want.kind || got.Message != want.message || got.RetryAfter != want.after || len(got.Output) > 0 {
				t.Errorf("%s, %q, after %v, output %q; want %+v", got.Kind, got.Message, got.RetryAfter, got.Output, want)
			}
			if panicked := strings.Contains(want.message, "panic: "); panicked && !strings.Contains(got.Stderr, "testdata/behaviors/main.go:") {
				t.Errorf("no stack in the log: %q", got.Stderr)
			}
		})
	}
}

// testStopped: a handler that a limit stops tells where, with lines and inlined functions, and the next task finds nothing
// of that. Go's compiler has no line for an endless loop without effect.
func testStopped(t *testing.T, handler *runtime.Module) {
	t.Parallel()
	for input, want := range map[string]string{
		"panic spin":           `^main\.spin \(main\.go, an endless loop without effect\) < main\.panics \(main\.go:136\) < main\.behave \(main\.go:93\)$`,
		"panic turn":           `^main\.turn \(main\.go:(240|241|242|244)\) < main\.panics \(main\.go:138\) < main\.behave \(main\.go:93\)$`,
		"panic spin elsewhere": `^main\.spin \(main\.go, an endless loop without effect\) < main\.recurse \(main\.go:252\) < (main\.recurse \(main\.go:254\) < ){3}main\.panics\.func2 \(main\.go:140\)$`,
		"panic flood":          `^main\.flood \(main\.go:260\) < main\.panics \(main\.go:143\) < main\.behave \(main\.go:93\)$`,
	} {
		t.Run(input, func(t *testing.T) {
			t.Parallel()
			c := call(input)
			c.pool, c.Limits = input, runtime.Limits{CPU: 100 * time.Millisecond, Log: 8 << 10}
			for range 2 {
				if got := run(t, handler, c); got.Kind != runtime.LimitExceeded || !regexp.MustCompile(want).MatchString(got.Place) {
					t.Errorf("%s, %s, want %s", got.Message, got.Place, want)
				}
				next := c
				next.Input = []byte("shout quern")
				if output := complete(t, handler, next); output != "QUERN" {
					t.Errorf("the next task: %q", output)
				}
			}
		})
	}
}

// testSizes: input and output come whole, whatever their sizes.
func testSizes(t *testing.T, handler *runtime.Module) {
	const small = 2 << 10 // smallInput: what is read without having asked for the size
	for _, size := range []int{6, small - 1, small, small + 1, 8<<10 - 1, 8 << 10, 8<<10 + 1, 3 << 20} {
		input := "shout " + strings.Repeat("quern ", size/6+1)[:size-6]
		// The call that warms a module leaves it less room of its own, or none.
		for _, warm := range []int{0, 100, small, 4 << 10, 7 << 10, 8<<10 - 100, 8 << 10, 9 << 10} {
			c := call(input)
			if warm > 0 {
				c.pool, c.Warm = fmt.Sprint("warmed with ", warm), []byte("shout "+strings.Repeat("x", warm)[:warm-6])
			}
			if got := complete(t, handler, c); got != strings.ToUpper(input[6:]) {
				t.Errorf("%d bytes after %d came back as %d others", size-6, warm, len(got))
			}
		}
	}
	if got := complete(t, handler, call("")); got != "" { // nothing at all
		t.Errorf("%q", got)
	}
	c := call("write 1000")
	c.pool, c.Limits.Output = "of small output", 999
	got := run(t, handler, c)
	if got.Kind != runtime.LimitExceeded || got.Limit.Name != "output" || len(got.Output) > 0 {
		t.Errorf("%+v", got)
	}
	c.pool, c.Limits.Output = "of enough output", 1000
	if got := complete(t, handler, c); got != strings.Repeat("x", 1000) {
		t.Errorf("%d bytes", len(got))
	}
}

func testTask(t *testing.T, handler *runtime.Module) {
	const variables = `; TASK_ID "", MODE "draft"`
	if got, want := complete(t, handler, call("task")), `{ID:7f Queue:print Tenant:acme Plugin:printer Attempt:2 MaxAttempts:5 Reschedules:0 Input:[]}`+variables; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	unsaid := task{runtime.Call{Input: []byte("task")}, runtime.Profile{Env: call("").Env}, "unsaid"}
	if got, want := complete(t, handler, unsaid), `{ID: Queue: Tenant: Plugin: Attempt:1 MaxAttempts:0 Reschedules:0 Input:[]}`+variables; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	long := call("task")
	long.TaskID, long.Queue = strings.Repeat("i", 5000), strings.Repeat("q", 5000)
	if got := complete(t, handler, long); !strings.HasPrefix(got, "{ID:"+long.TaskID+" Queue:"+long.Queue+" Tenant:acme Plugin:printer ") {
		t.Errorf("%.100s…", got)
	}
}

func testLog(t *testing.T, handler *runtime.Module) {
	var lines, progress []string
	c := call("log")
	c.Log = func(line string) { lines = append(lines, line) }
	c.Progress = func(fraction float64, message string) {
		progress = append(progress, strconv.FormatFloat(fraction, 'g', -1, 64)+" "+message)
	}
	if got, want := complete(t, handler, c), `stdin "" <nil>`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	want := []string{"to standard error", "to standard output"}
	if handler.Info().ResetMode == runtime.ResetNew {
		want = append([]string{"the start is in nobody's log"}, want...) // it is this task's own
	}
	if !slices.Equal(lines, want) {
		t.Errorf("log %q, want %q", lines, want)
	}
	if want := []string{"0.5 half way"}; !slices.Equal(progress, want) {
		t.Errorf("progress %q, want %q", progress, want)
	}
}

// testCopy shows two tasks what the start has left in memory.
func testCopy(t *testing.T, handler *runtime.Module) {
	files, err := runtime.NewFiles(map[string][]byte{"/data/page": []byte("a page")})
	if err != nil {
		t.Fatal(err)
	}
	copied := func(what string) string {
		c := call("copy " + what)
		c.pool, c.Files = "with files", files
		return complete(t, handler, c)
	}
	for what, want := range map[string]string{
		"memory":    "1",
		"goroutine": "5",
		"file":      `"a page" <nil>; at the start <nil>, now read /data/page: Bad file number`,
	} {
		for range 2 {
			if got := copied(what); got != want {
				t.Errorf("%s: %s, want %s", what, got, want)
			}
		}
	}
	for _, what := range []string{"crypto/rand", "math/rand", "math/rand/v2", "hash/maphash", "map"} {
		if one, two := copied(what), copied(what); one == two {
			t.Errorf("%s: %s twice", what, one)
		}
	}
	// The engine makes no copies where the system cannot: there every task has its own start.
	copies := handler.Info().ResetMode != runtime.ResetNew
	for _, what := range []string{"time", "source"} {
		if one, two := copied(what), copied(what); (one == two) != copies {
			t.Errorf("%s: first %s, then %s", what, one, two)
		}
	}
}

// testWarm: what a call without a task leaves is what tasks begin with, and nothing writes over it.
func testWarm(t *testing.T, handler *runtime.Module) {
	if handler.Info().ResetMode == runtime.ResetNew {
		t.Skip("this system makes no copies")
	}
	c := call("kept in a task")
	c.pool, c.Warm = "warm", []byte("kept while warming")
	for range 2 {
		if got, want := complete(t, handler, c), `"kept while warming" "kept in a task"`; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// testContext: a handler sees the end that its host announces, whether it computes or waits.
func testContext(t *testing.T, handler *runtime.Module) {
	for _, how := range []string{"err", "poll", "wait", "child"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			ending := make(chan struct{})
			c := call("context " + how)
			c.Ending = ending
			c.Progress = func(float64, string) { close(ending) }
			if got, want := complete(t, handler, c), "context canceled, context canceled, context canceled, true"; got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
	t.Run("told", func(t *testing.T) { // before it begins
		t.Parallel()
		ending := make(chan struct{})
		close(ending)
		c := call("context told")
		c.Ending = ending
		if got, want := complete(t, handler, c), "context canceled, context canceled, context canceled, true"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
	t.Run("timeout", func(t *testing.T) {
		t.Parallel()
		if got, want := complete(t, handler, call("context timeout")), "context deadline exceeded <nil> <nil>"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
	t.Run("deadline", func(t *testing.T) {
		t.Parallel()
		c := call("context deadline")
		c.Timeout = time.Minute
		if got, want := complete(t, handler, c), "true true true <nil>"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
	t.Run("warm", func(t *testing.T) { // leaves no timer to the tasks
		t.Parallel()
		c := call("context timeout")
		c.pool, c.Warm = "warm context", []byte("context timeout")
		for range 2 {
			if got, want := complete(t, handler, c), "context deadline exceeded <nil> <nil>"; got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
	})
}

// testSaid: a handler says things by quern_v1 itself, so that they count as nothing else, and no more than that takes.
func testSaid(t *testing.T, handler *runtime.Module) {
	var said []string
	c := call("progress")
	c.Log = func(line string) { said = append(said, line) }
	c.Progress = func(fraction float64, message string) { said = append(said, fmt.Sprint(fraction, " ", message)) }
	complete(t, handler, c)
	want := []string{"1 " + strings.Repeat("é", 512), `debug: said {"a":"b"}`}
	if handler.Info().ResetMode == runtime.ResetNew {
		want = append([]string{"the start is in nobody's log"}, want...)
	}
	if !slices.Equal(said, want) {
		t.Errorf("%q, want %q", said, want)
	}
}

// TestCommandSays: what a command says are lines of its standard error, for it may import nothing.
func TestCommandSays(t *testing.T) {
	t.Parallel()
	var said []string
	c := call("")
	c.Log = func(line string) { said = append(said, line) }
	c.Progress = func(fraction float64, message string) { said = append(said, fmt.Sprint(fraction, " ", message)) }
	binary := build(t, "saying", asCommand)
	if bytes.Contains(binary, []byte("quern_v1")) {
		t.Error("a command imports what only a handler may")
	}
	got := complete(t, load(t, setup(t), binary), c)
	if want := []string{"0.5 half way", `warning: mind\x0athe gap {"a":"b"}`, " quern:progress=1"}; !slices.Equal(said, want) {
		t.Errorf("%q, want %q", said, want)
	}
	if want := "<nil> <nil> " + sdk.ErrInvalid.Error() + " " + sdk.ErrTooBig.Error() + " true"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestCommandStreams: a command reads and writes whole what does not go through a pipe at once.
func TestCommandStreams(t *testing.T) {
	t.Parallel()
	command := load(t, setup(t), build(t, "saying", asCommand))
	for _, size := range []int{1, 8 << 10, 3<<20 + 1} {
		input := strings.Repeat("quern ", size/6+1)[:size]
		if got := complete(t, command, call(input)); got != input {
			t.Errorf("%d bytes came back as %d others", size, len(got))
		}
	}
}

// maxSize is what the smallest handler may have, in bytes. It has 2.35 million of them, and 2.30 million without its symbols, by
// -ldflags "-s -w". Nothing can be below Go itself with the package context: that has 2.16 million without symbols.
const maxSize = 2_400_000

// TestSize: what a handler does not use it does not link. Package encoding/json alone would be half a million bytes more, and
// reflect and os, which others bring in without a word, 150,000.
func TestSize(t *testing.T) {
	t.Parallel()
	binary := build(t, "handler", asHandler)
	if len(binary) > maxSize {
		t.Errorf("the smallest handler has %d bytes, more than %d", len(binary), maxSize)
	}
	for _, name := range []string{"encoding/json.", "fmt.Fprintf", "reflect.(*rtype)", "os.(*File)"} {
		if bytes.Contains(binary, []byte(name)) {
			t.Errorf("the smallest handler links %s", name)
		}
	}
}

// testMisuse: who calls what is for the other kind is told so.
func testMisuse(t *testing.T, handler *runtime.Module) {
	for mode, want := range map[string]string{
		"misplaced": "sdk.Handle is for main alone: quern_handle returns sdk.Run(handler)",
		"early":     "panic: sdk.Run is for quern_handle alone: there is no task yet",
	} {
		c := call("shout page")
		c.pool, c.Env = mode, map[string]string{"MODE": mode}
		got := run(t, handler, c)
		if (got.Kind != runtime.Failed && got.Kind != runtime.Trap) || !strings.Contains(got.Message, want) {
			t.Errorf("%s: %s, want %s", got.Kind, got.Message, want)
		}
	}
}

// TestKinds: what is built as the wrong kind is refused, with the remedy; and a command is none but that.
func TestKinds(t *testing.T) {
	t.Parallel()
	engine := setup(t)
	for name, mode := range map[string]string{"command": asHandler, "handler": asCommand} {
		t.Run("Err"+name, func(t *testing.T) {
			t.Parallel()
			_, err := engine.Load(t.Context(), build(t, name, mode))
			var refused *runtime.RefusedError
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), asHandler) {
				t.Errorf("error %v, want a refusal that names %s", err, asHandler)
			}
		})
	}
	t.Run("OK", func(t *testing.T) {
		t.Parallel()
		for _, word := range []string{"quern_v1", "quern_handle"} {
			if !bytes.Contains(build(t, "handler", asHandler), []byte(word)) {
				t.Errorf("no %s in a handler", word)
			}
		}
		// The name of the export is also that by which a misplaced Handle finds itself.
		if bytes.Contains(build(t, "command", asCommand), []byte("quern_v1")) {
			t.Error("a command imports what only a handler may")
		}
	})
}

// BenchmarkRun is a task of the smallest handler.
func BenchmarkRun(b *testing.B) {
	handler := load(b, setup(b), build(b, "handler", asHandler))
	c := call("page")
	for b.Loop() {
		complete(b, handler, c)
	}
	b.ReportMetric(float64(run(b, handler, c).Fuel), "fuel/op")
}
