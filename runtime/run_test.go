package runtime

import (
	"context"
	"errors"
	"fmt"
	"math"
	goruntime "runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/runtimetest"
)

func TestRunExitCodes(t *testing.T) {
	t.Parallel()
	module := load(t, runtimetest.Exit(t))
	for _, test := range []struct {
		input, message, stderr string
		kind                   OutcomeKind
		code                   int
	}{
		{input: "0", kind: Complete},
		{input: "0 fine", kind: Complete, stderr: " fine"},
		{input: "75 busy", kind: Retry, code: 75, stderr: " busy", message: "exit status 75 (try again later): busy"},
		{input: "75", kind: Retry, code: 75, message: "exit status 75 (try again later)"},
		{input: "65 no JPEG", kind: Fatal, code: 65, stderr: " no JPEG", message: "exit status 65 (failed for good): no JPEG"},
		{input: "1", kind: Failed, code: 1, message: "exit status 1"},
		{input: "3 first\nlast\n\n", kind: Failed, code: 3, stderr: " first\nlast", message: "exit status 3: last"},
		{input: "2 panic: boom\n\ngoroutine 1 [running]:", kind: Failed, code: 2, stderr: " panic: boom\n\ngoroutine 1 [running]:", message: "exit status 2: panic: boom"},
		{input: "101 boom\nnote: run with `RUST_BACKTRACE=1`", kind: Failed, code: 101, stderr: " boom\nnote: run with `RUST_BACKTRACE=1`", message: "exit status 101: boom"},
		{input: "255", kind: Failed, code: 255, message: "exit status 255"},
		{input: "-1", kind: Failed, code: -1, message: "exit status -1"},
		// The code with which wazero ends a cancelled guest means nothing if the guest says it.
		{input: "-268435457", kind: Failed, code: -268435457, message: "exit status -268435457"},
	} {
		t.Run(test.input, func(t *testing.T) {
			t.Parallel()
			got := call(t, module, test.input, Limits{})
			if got.Kind != test.kind || got.Code != test.code || got.Message != test.message || got.Stderr != test.stderr {
				t.Errorf("outcome = %+v, want %+v", got, test)
			}
			if want := map[bool]string{true: "output\n"}[test.kind == Complete]; string(got.Output) != want {
				t.Errorf("output = %q, want %q", got.Output, want)
			}
			if got.GuestTime <= 0 || got.Err != nil {
				t.Errorf("guest time = %v, error = %v", got.GuestTime, got.Err)
			}
		})
	}
}

// TestRunTraps pins the texts by which traps are told: each is provoked.
func TestRunTraps(t *testing.T) {
	t.Parallel()
	module := load(t, runtimetest.Trap(t))
	for how, want := range map[string]struct{ trap, message string }{
		"unreachable": {"unreachable", "unreachable (the program aborted or panicked): about to try unreachable"},
		"divide":      {"integer divide by zero", "integer divide by zero (a division by zero): about to try divide"},
		"overflow":    {"integer overflow", "integer overflow (a result that its type cannot hold): about to try overflow"},
		"conversion":  {"invalid conversion to integer", "invalid conversion to integer (a float that no integer can hold): about to try conversion"},
		"memory":      {"out of bounds memory access", "out of bounds memory access (a bad pointer or index, or a full stack): about to try memory"},
		"null":        {"invalid table access", "invalid table access (a call through a null or wild function pointer): about to try null"},
		"table":       {"invalid table access", "invalid table access (a call through a null or wild function pointer): about to try table"},
		"mismatch":    {"indirect call type mismatch", "indirect call type mismatch (a call through a function pointer of another type): about to try mismatch"},
		"recursion":   {"stack overflow", "stack overflow (endless or too deep recursion): about to try recursion"},
		"descent":     {"out of bounds memory access", "out of bounds memory access (a bad pointer or index, or a full stack): about to try descent"},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			got := call(t, module, how, Limits{})
			if got.Kind != Trap || got.Trap != want.trap || got.Message != want.message {
				t.Errorf("outcome = %+v, want %+v", got, want)
			}
			if after := call(t, module, "none", Limits{}); after.Kind != Failed || after.Code != 99 {
				t.Errorf("the next call = %+v, want exit status 99", after)
			}
		})
	}
}

func TestRunEnvironment(t *testing.T) {
	t.Parallel()
	module := load(t, runtimetest.Env(t))
	full := bound(module, "", Profile{Tenant: "acme", Env: map[string]string{"MODE": "prod", "A": "=b=", "TASK_ID": "forged", "TASK_NEW": "forged"}}).Run(t.Context(), Call{
		TaskID: "7", Queue: "thumbnails", Plugin: "thumbs", Attempt: 2, MaxAttempts: 5, Headers: map[string]string{"x-id": "7: ü", "a": "1"},
	})
	want := "arg thumbs\nTASK_ID=7\nTASK_QUEUE=thumbnails\nTASK_TENANT=acme\nTASK_PLUGIN=thumbs\n" +
		"TASK_ATTEMPT=2\nTASK_MAX_ATTEMPTS=5\nTASK_HEADERS=a: 1\nx-id: 7: ü\n\nA==b=\nMODE=prod\n"
	if got := complete(t, full); got != want {
		t.Errorf("environment = %q, want %q", got, want)
	}
	bare := bound(module, "", Profile{Tenant: "blueque"}).Run(t.Context(), Call{TaskID: "8", Queue: "q", Plugin: "p", Attempt: 1})
	want = "arg p\nTASK_ID=8\nTASK_QUEUE=q\nTASK_TENANT=blueque\nTASK_PLUGIN=p\nTASK_ATTEMPT=1\n"
	if got := complete(t, bare); got != want {
		t.Errorf("environment = %q, want %q", got, want)
	}
}

// TestRunHostFault: what the host gets wrong is not blamed on the guest, and ends nothing but the call.
func TestRunHostFault(t *testing.T) {
	t.Parallel()
	t.Run("ErrEnvironment", func(t *testing.T) {
		t.Parallel()
		module := load(t, runtimetest.Env(t))
		got := bound(module, "", Profile{Env: map[string]string{"A": "nul\x00"}}).Run(t.Context(), Call{})
		if got.Kind != HostFault || got.Message != "internal error" || got.Err == nil {
			t.Errorf("outcome = %+v, want a host fault", got)
		}
	})
	t.Run("ErrLogPanics", func(t *testing.T) {
		t.Parallel()
		module := load(t, runtimetest.Loop(t)) // only the fault can end it
		calls := 0
		got := bound(module, "", Profile{}).Run(t.Context(), Call{Log: func(string) { calls++; panic("out of paper") }})
		if got.Kind != HostFault || got.Message != "internal error" || !strings.Contains(fmt.Sprint(got.Err), "out of paper") {
			t.Errorf("outcome = %+v, want a host fault that names the panic", got)
		}
		if calls != 1 {
			t.Errorf("the log function was called %d times, want 1", calls)
		}
	})
	t.Run("ErrLogPanicsInFlush", func(t *testing.T) {
		t.Parallel()
		module := load(t, runtimetest.Exit(t))
		got := bound(module, "", Profile{}).Run(t.Context(), Call{Input: []byte("0 no newline"), Log: func(string) { panic("out of paper") }})
		if got.Kind != HostFault {
			t.Errorf("outcome = %+v, want a host fault", got)
		}
	})
}

func TestRunClocks(t *testing.T) {
	t.Parallel()
	module := load(t, runtimetest.Clock(t))
	read := func() (wall time.Time, mono int64, random string) {
		lines := strings.Split(complete(t, call(t, module, "", Limits{})), "\n")
		nanos, err := strconv.ParseInt(lines[0], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if mono, err = strconv.ParseInt(lines[1], 10, 64); err != nil {
			t.Fatal(err)
		}
		return time.Unix(0, nanos), mono, lines[2]
	}
	before := time.Now()
	wall1, mono1, random1 := read()
	wall2, mono2, random2 := read()
	after := time.Now()
	if wall1.Before(before.Truncate(time.Microsecond)) || wall2.Before(wall1) || wall2.After(after) {
		t.Errorf("wall clock = %v, %v, want between %v and %v", wall1, wall2, before, after)
	}
	if elapsed := time.Duration(mono2 - mono1); elapsed <= 0 || elapsed > after.Sub(before) {
		t.Errorf("monotonic clock went on by %v in %v", elapsed, after.Sub(before))
	}
	if random1 == random2 || len(random1) != 32 || strings.Count(random1, "0") == 32 {
		t.Errorf("random bytes = %s, %s", random1, random2)
	}
}

// TestRunCancel: a guest is stopped at once, whatever it does, and the next one runs.
func TestRunCancel(t *testing.T) {
	t.Parallel()

	for name, test := range map[string]struct {
		binary []byte
		input  string
	}{
		"loop":        {binary: runtimetest.Loop(t)},
		"sleep":       {binary: runtimetest.Sleep(t), input: "86400000"},
		"outputflood": {binary: runtimetest.BuildC(t, endlessOutput)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			module := load(t, test.binary)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			var cancelled time.Time
			got := bound(module, "", Profile{Limits: Limits{Output: math.MaxInt64}}).Run(ctx, Call{
				Input: []byte(test.input),
				Log: func(line string) {
					if line == "ready" {
						cancelled = time.Now()
						cancel(errDrain)
					}
				},
			})
			if got.Kind != Cancelled || !errors.Is(got.Err, errDrain) || !strings.HasPrefix(got.Message, "cancelled: draining") || got.Output != nil {
				t.Errorf("outcome = %+v, want cancelled with its cause", got)
			}
			if late := time.Since(cancelled); late > patience {
				t.Errorf("the guest ran on for %v", late)
			}
		})
	}
	t.Run("before", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errDrain)
		got := bound(load(t, runtimetest.Empty(t)), "", Profile{}).Run(ctx, Call{})
		if got.Kind != Cancelled || !errors.Is(got.Err, errDrain) {
			t.Errorf("outcome = %+v, want cancelled", got)
		}
	})
}

// endlessOutput says that it is ready, and then writes one byte after the other for ever.
const endlessOutput = `
#include <stdio.h>
#include <unistd.h>
int main(void) {
	fputs("ready\n", stderr);
	for (;;) write(1, "x", 1);
}`

// TestRunSleep: sleeping takes as long as it says, and a limit ends it at once.
func TestRunSleep(t *testing.T) {
	t.Parallel()
	module := load(t, runtimetest.Sleep(t))
	got := call(t, module, "50", Limits{})
	if output := complete(t, got); output != "awake\n" || got.WaitTime < 50*time.Millisecond || got.CPU >= 50*time.Millisecond {
		t.Errorf("output = %q after %v, want awake after 50ms", output, got.WaitTime)
	}
	got = call(t, module, "86400000", Limits{Timeout: 50 * time.Millisecond})
	if took := got.GuestTime + got.WaitTime; got.Kind != LimitExceeded || got.Limit.Name != "timeout" || took < 50*time.Millisecond || took > patience {
		t.Errorf("outcome = %+v after %v, want the timeout after 50ms", got, took)
	}
}

// TestRunConcurrently runs one module many times at once, with as many outcomes.
func TestRunConcurrently(t *testing.T) {
	t.Parallel()
	engine := setup(t)
	echo, exit := loadInto(t, engine, runtimetest.Echo(t)), loadInto(t, engine, runtimetest.Exit(t))
	var group sync.WaitGroup
	for worker := range 8 {
		group.Go(func() {
			for i := range 50 {
				text := fmt.Sprintf("%d/%d", worker, i)
				if got := call(t, echo, text, Limits{}); string(got.Output) != text {
					t.Errorf("echo = %+v, want %q", got, text)
				}
				if got := call(t, exit, strconv.Itoa(i+1), Limits{}); got.Code != i+1 {
					t.Errorf("exit = %+v, want %d", got, i+1)
				}
			}
		})
	}
	group.Wait()
}

// TestRunPristine: nothing of one call is seen by the next.
func TestRunPristine(t *testing.T) {
	t.Parallel()
	module := load(t, runtimetest.BuildC(t, `
#include <stdio.h>
static int calls;
static volatile char bytes[1 << 20];
int main(void) {
	int dirty = 0;
	for (int i = 0; i < sizeof bytes; i++) dirty |= bytes[i];
	printf("%d %d", calls++, dirty);
	for (int i = 0; i < sizeof bytes; i++) bytes[i] = 1;
}`))
	for range 3 {
		if got := complete(t, call(t, module, "", Limits{})); got != "0 0" {
			t.Fatalf("output = %q, want nothing of an earlier call", got)
		}
	}
}

// TestRunReturns: a guest that returns from _start instead of exiting completes, without WASI and
// without a memory.
func TestRunReturns(t *testing.T) {
	t.Parallel()
	if got := call(t, load(t, command(nil)), "", Limits{}); got.Kind != Complete || len(got.Output) != 0 {
		t.Errorf("outcome = %+v, want complete", got)
	}
}

// TestRunStart: the start function of a module is guest code like any other.
func TestRunStart(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		code []byte
		want Outcome
	}{
		"trap":    {[]byte{0x00}, Outcome{Kind: Trap, Trap: "unreachable"}},
		"loop":    {[]byte{0x03, 0x40, 0x0c, 0x00, 0x0b}, Outcome{Kind: LimitExceeded, Limit: Limit{"timeout", "50ms"}}},
		"nothing": {nil, Outcome{Kind: Complete}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			module := load(t, runtimetest.Module(
				runtimetest.Section(runtimetest.TypeSection, runtimetest.FunctionType("", "")),
				runtimetest.Section(runtimetest.FunctionSection, []byte{0}, []byte{0}),
				runtimetest.Section(runtimetest.ExportSection, runtimetest.Export("_start", runtimetest.FunctionKind, 0)),
				runtimetest.RawSection(runtimetest.StartSection, []byte{1}),
				runtimetest.Section(runtimetest.CodeSection, runtimetest.Body(), runtimetest.Body(test.code...)),
			))
			got := call(t, module, "", Limits{Timeout: 50 * time.Millisecond})
			if got.Kind != test.want.Kind || got.Trap != test.want.Trap || got.Limit != test.want.Limit {
				t.Errorf("outcome = %+v, want %+v", got, test.want)
			}
		})
	}
}

// command is a module whose _start has the given code, beside any other sections before its code.
func command(code []byte, imports ...[]byte) []byte {
	sections := [][]byte{runtimetest.Section(runtimetest.TypeSection, runtimetest.FunctionType("", ""))}
	if len(imports) > 0 {
		sections = append(sections, runtimetest.Section(runtimetest.ImportSection, imports...))
	}
	functions := byte(0)
	for range imports {
		functions++
	}
	return runtimetest.Module(append(sections,
		runtimetest.Section(runtimetest.FunctionSection, []byte{0}),
		runtimetest.Section(runtimetest.MemorySection, []byte{0, 1}),
		runtimetest.Section(runtimetest.ExportSection, runtimetest.Export("_start", runtimetest.FunctionKind, functions)),
		runtimetest.Section(runtimetest.CodeSection, runtimetest.Body(code...)),
	)...)
}

// TestRunCancelAsleep: a guest that is asleep already is stopped as well, and computes for nobody meanwhile.
func TestRunCancelAsleep(t *testing.T) {
	t.Parallel()
	engine := setup(t)
	module := loadInto(t, engine, runtimetest.Sleep(t))

	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	ended := make(chan Outcome, 1)
	ready := make(chan struct{})
	go func() {
		ended <- bound(module, "", Profile{}).Run(ctx, Call{Input: []byte("86400000"), Log: func(string) { close(ready) }})
	}()
	<-ready
	eventually(t, "the guest is asleep", func() bool {
		engine.gate.mu.Lock()
		defer engine.gate.mu.Unlock()
		return engine.gate.free == goruntime.GOMAXPROCS(0)
	})
	cancel(errDrain)
	if got := <-ended; got.Kind != Cancelled || !errors.Is(got.Err, errDrain) || got.Fuel < waitPrice {
		t.Errorf("outcome = %+v, want cancelled, and the wait paid", got)
	}
}
