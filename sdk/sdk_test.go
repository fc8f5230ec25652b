package sdk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"go.uber.org/goleak"
)

const (
	// behaviorVariable makes the test binary a plugin: its value names the behavior to show.
	behaviorVariable = "SDK_TEST_BEHAVIOR"
	// panics and reports are the behaviors that only a process can show.
	panics  = "Panics"
	reports = "Reports"
	// runs before a name calls Run in the place of Handle.
	runs = "Run"
)

var errNoPaper = errors.New("the printer is out of paper")

func TestMain(m *testing.M) {
	if name, ok := os.LookupEnv(behaviorVariable); ok {
		if name == panics {
			Handle(func(context.Context, *Task) ([]byte, error) { panic("out of ink") })
		}
		if name == reports {
			Handle(func(context.Context, *Task) ([]byte, error) {
				Progress(0.5, "half way")
				return nil, nil
			})
		}
		if name, ok := strings.CutPrefix(name, runs); ok {
			if name == panics {
				os.Exit(int(Run(func(context.Context, *Task) ([]byte, error) { panic("out of ink") })))
			}
			os.Exit(int(Run(behaviors()[name].handler)))
		}
		Handle(behaviors()[name].handler)
	}
	goleak.VerifyTestMain(m)
}

// behavior is one way in which a handler ends, and what the host must see of it.
type behavior struct {
	handler Handler
	exit    int
	stdout  string
	stderr  string
}

func behaviors() map[string]behavior {
	fails := func(err error) Handler {
		return func(context.Context, *Task) ([]byte, error) { return []byte("half a result"), err }
	}
	return map[string]behavior{
		"Complete": {
			handler: func(_ context.Context, t *Task) ([]byte, error) {
				slices.Reverse(t.Input)
				return t.Input, nil
			},
			exit: 0, stdout: "\xff\x00tupni",
		},
		"CompleteEmpty": {
			handler: func(context.Context, *Task) ([]byte, error) { return nil, nil },
			exit:    0,
		},
		"Failed":         {handler: fails(errNoPaper), exit: 1, stderr: "the printer is out of paper\n"},
		"Retry":          {handler: fails(Retry(errNoPaper)), exit: 75, stderr: "the printer is out of paper\n"},
		"RetryAfter":     {handler: fails(RetryAfter(errNoPaper, 90*time.Second)), exit: 75, stderr: "the printer is out of paper\nquern:retry-after=1m30s\n"},
		"RetryKeyAfter":  {handler: fails(RetryKeyAfter(errNoPaper, 90*time.Second)), exit: 75, stderr: "the printer is out of paper\nquern:retry-after=1m30s key\n"},
		"RetryKeyOfNone": {handler: func(context.Context, *Task) ([]byte, error) { return nil, RetryKeyAfter(nil, time.Second) }, exit: 0},
		"RetryAfter0":    {handler: fails(RetryAfter(errNoPaper, -time.Second)), exit: 75, stderr: "the printer is out of paper\n"},
		"RetryAfterAge":  {handler: fails(RetryAfter(errNoPaper, 1<<63-1)), exit: 75, stderr: "the printer is out of paper\nquern:retry-after=8760h0m0s\n"},
		"FailAfter":      {handler: fails(FailAfter(errNoPaper, 90*time.Second)), exit: 1, stderr: "the printer is out of paper\nquern:retry-after=1m30s\n"},
		"FailOfNoFail":   {handler: func(context.Context, *Task) ([]byte, error) { return nil, FailAfter(nil, time.Second) }, exit: 0},
		"FatalOfAfter":   {handler: fails(Fatal(RetryAfter(errNoPaper, time.Second))), exit: 65, stderr: "the printer is out of paper\n"},
		"AfterOfNoFail":  {handler: func(context.Context, *Task) ([]byte, error) { return nil, RetryAfter(nil, time.Second) }, exit: 0},
		"Fatal":          {handler: fails(Fatal(errNoPaper)), exit: 65, stderr: "the printer is out of paper\n"},
		"WrappedFatal":   {handler: fails(fmt.Errorf("print page 2: %w", Fatal(errNoPaper))), exit: 65, stderr: "print page 2: the printer is out of paper\n"},
		"JoinedRetry":    {handler: fails(errors.Join(io.EOF, Retry(errNoPaper))), exit: 75, stderr: "EOF\nthe printer is out of paper\n"},
		"RetryOfFatal":   {handler: fails(Retry(fmt.Errorf("print: %w", Fatal(errNoPaper)))), exit: 75, stderr: "print: the printer is out of paper\n"},
		"FatalOfRetry":   {handler: fails(Fatal(Retry(errNoPaper))), exit: 65, stderr: "the printer is out of paper\n"},
		"FatalOfNoFail":  {handler: func(context.Context, *Task) ([]byte, error) { return nil, Fatal(nil) }, exit: 0},
		"RetryOfNoFail":  {handler: func(context.Context, *Task) ([]byte, error) { return nil, Retry(nil) }, exit: 0},
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	for name, want := range behaviors() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stdout, stderr bytes.Buffer
			exit := run(want.handler, strings.NewReader("input\x00\xff"), &stdout, &stderr, noEnvironment)
			check(t, want, exit, stdout.String(), stderr.String())
		})
	}
}

// TestHandle is TestRun with a real process around it.
func TestHandle(t *testing.T) {
	t.Parallel()
	for name, want := range behaviors() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			exit, stdout, stderr := runProcess(t, name)
			check(t, want, exit, stdout, stderr)
		})
	}
	t.Run(panics, func(t *testing.T) {
		t.Parallel()
		exit, stdout, stderr := runProcess(t, panics)
		if exit != 2 || stdout != "" || !strings.HasPrefix(stderr, "panic: out of ink\n") {
			t.Errorf("exit status %d, stdout %q, stderr %q; want 2, nothing and the panic", exit, stdout, stderr)
		}
	})
	t.Run(reports, func(t *testing.T) {
		t.Parallel()
		exit, stdout, stderr := runProcess(t, reports)
		check(t, behavior{stderr: "quern:progress=0.5 half way\n"}, exit, stdout, stderr)
	})
}

func TestProgress(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		fraction float64
		message  string
		want     string
	}{
		{0, "", "quern:progress=0\n"},
		{1.0 / 3, "page 1", "quern:progress=0.333333 page 1\n"},
		{1, "done", "quern:progress=1 done\n"},
		{1e-9, "", "quern:progress=1e-09\n"},
		{0.9999999, "", "quern:progress=1\n"},
		{-1, "", "quern:progress=0\n"},
		{17, "", "quern:progress=1\n"},
		{math.NaN(), "", "quern:progress=0\n"},
		{math.Inf(1), "", "quern:progress=1\n"},
		{0.5, "two\r\nlines\nquern:progress=1", "quern:progress=0.5 two  lines quern:progress=1\n"},
	} {
		var stderr bytes.Buffer
		if reportProgress(&stderr, test.fraction, test.message); stderr.String() != test.want {
			t.Errorf("Progress(%v, %q) wrote %q, want %q", test.fraction, test.message, stderr.String(), test.want)
		}
	}
}

// TestRunProcess is TestHandle with Run, as a local run of a handler.
func TestRunProcess(t *testing.T) {
	t.Parallel()
	for name, want := range behaviors() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			exit, stdout, stderr := runProcess(t, runs+name)
			check(t, want, exit, stdout, stderr)
		})
	}
	t.Run(panics, func(t *testing.T) {
		t.Parallel()
		exit, stdout, stderr := runProcess(t, runs+panics)
		if exit != 2 || stdout != "" || !strings.HasPrefix(stderr, "panic: out of ink\n\ngoroutine ") || !strings.Contains(stderr, "\npanic: out of ink [") {
			t.Errorf("exit status %d, stdout %q, stderr %q; want 2, nothing, the stack and the panic", exit, stdout, stderr)
		}
	})
}

// runProcess runs this test binary as a plugin of the named behavior.
func runProcess(t *testing.T, name string) (exit int, stdout, stderr string) {
	t.Helper()
	var out, log bytes.Buffer
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), behaviorVariable+"="+name)
	cmd.Stdin = strings.NewReader("input\x00\xff")
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), log.String()
}

func check(t *testing.T, want behavior, exit int, stdout, stderr string) {
	t.Helper()
	if exit != want.exit {
		t.Errorf("exit status %d, want %d", exit, want.exit)
	}
	if stdout != want.stdout {
		t.Errorf("stdout %q, want %q", stdout, want.stdout)
	}
	if stderr != want.stderr {
		t.Errorf("stderr %q, want %q", stderr, want.stderr)
	}
}

func TestRunTask(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		environment map[string]string
		want        Task
	}{
		"OK": {
			map[string]string{
				"TASK_ID": "7f", "TASK_QUEUE": "print", "TASK_TENANT": "acme", "TASK_PLUGIN": "printer",
				"TASK_ATTEMPT": "2", "TASK_MAX_ATTEMPTS": "5",
			},
			Task{ID: "7f", Queue: "print", Tenant: "acme", Plugin: "printer", Attempt: 2, MaxAttempts: 5},
		},
		"OKByHand":    {nil, Task{Attempt: 1}},
		"OKUnbounded": {map[string]string{"TASK_ATTEMPT": "9"}, Task{Attempt: 9}},
		"OKNonsense":  {map[string]string{"TASK_ATTEMPT": "-1", "TASK_MAX_ATTEMPTS": "many"}, Task{Attempt: 1}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got Task
			handler := func(_ context.Context, task *Task) ([]byte, error) {
				got = *task
				return nil, nil
			}
			getenv := func(name string) string { return tt.environment[name] }
			if exit := run(handler, strings.NewReader("page"), io.Discard, io.Discard, getenv); exit != 0 {
				t.Fatalf("exit status %d", exit)
			}
			input := string(got.Input)
			got.Input = nil
			if fmt.Sprint(got) != fmt.Sprint(tt.want) || input != "page" {
				t.Errorf("task %+v with input %q, want %+v with input %q", got, input, tt.want, "page")
			}
		})
	}
}

func TestRunErrInput(t *testing.T) {
	t.Parallel()
	var stderr bytes.Buffer
	handler := func(context.Context, *Task) ([]byte, error) {
		t.Error("the handler was called with half an input")
		return nil, nil
	}
	exit := run(handler, iotest.ErrReader(io.ErrClosedPipe), io.Discard, &stderr, noEnvironment)
	check(t, behavior{exit: 1, stderr: "read the task's input: io: read/write on closed pipe\n"}, exit, "", stderr.String())
}

func TestRunErrResult(t *testing.T) {
	t.Parallel()
	reader, writer := io.Pipe()
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	handler := func(context.Context, *Task) ([]byte, error) { return []byte("page"), nil }
	exit := run(handler, strings.NewReader(""), writer, &stderr, noEnvironment)
	check(t, behavior{exit: 1, stderr: "write the task's result: io: read/write on closed pipe\n"}, exit, "", stderr.String())
}

// TestMarks holds that callers can see through a mark, and see the mark.
func TestMarks(t *testing.T) {
	t.Parallel()
	fatal, retry := Fatal(errNoPaper), Retry(errNoPaper)
	if _, ok := errors.AsType[*FatalError](fatal); !ok || !errors.Is(fatal, errNoPaper) {
		t.Errorf("%#v is no FatalError around the reason", fatal)
	}
	if _, ok := errors.AsType[*RetryError](retry); !ok || !errors.Is(retry, errNoPaper) {
		t.Errorf("%#v is no RetryError around the reason", retry)
	}
}

func noEnvironment(string) string { return "" }
