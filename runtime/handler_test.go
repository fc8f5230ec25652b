package runtime

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// handler builds a handler of WebAssembly text: its functions, and the body of quern_handle, which leaves a result.
// The memory has a page, of which the first 64 bytes are for the test.
func handler(t testing.TB, functions, body string) []byte {
	t.Helper()
	return runtimetest.BuildWAT(t, fmt.Sprintf(`(module
		(import "quern_v1" "input_size" (func $input_size (result i32)))
		(import "quern_v1" "input_read" (func $input_read (param i32 i32 i32) (result i32)))
		(import "quern_v1" "output_write" (func $output_write (param i32 i32) (result i32)))
		(import "quern_v1" "error_set" (func $error_set (param i32 i32) (result i32)))
		(import "quern_v1" "retry_after" (func $retry_after (param i64) (result i32)))
		(import "quern_v1" "task_text" (func $task_text (param i32) (result i32)))
		(import "quern_v1" "result_read" (func $result_read (param i32 i32 i32) (result i32)))
		(import "quern_v1" "random" (func $random (param i32 i32) (result i32)))
		(import "quern_v1" "cancelled" (func $cancelled (result i32)))
		(import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
		(import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
		(memory (export "memory") 1 20)
		(global $count (mut i32) (i32.const 0))
		%s
		(func (export "quern_handle") (result i32) %s))`, functions, body))
}

// TestHandler: what a handler says and returns is the outcome.
func TestHandler(t *testing.T) {
	t.Parallel()
	const (
		words = `(data (i32.const 100) "no such user\n\1b[31mred") (data (i32.const 200) "\90\01\00\00\06\00\00\00") (data (i32.const 400) "line 1") (func $say (drop (call $error_set (i32.const 100) (i32.const 21))))`
		say   = `(drop (call $fd_write (i32.const 1) (i32.const 200) (i32.const 1) (i32.const 300)))`
	)
	for name, test := range map[string]struct {
		functions, body string
		want            Outcome
		output          string
	}{
		"complete": {"", `(drop (call $input_read (i32.const 0) (i32.const 64) (i32.const 100)))
			(drop (call $output_write (i32.const 64) (call $input_size))) (i32.const 0)`, Outcome{Kind: Complete}, "input"},
		"empty":       {"", `(i32.const 0)`, Outcome{Kind: Complete}, ""},
		"retry":       {"", `(drop (call $retry_after (i64.const 90000))) (i32.const 75)`, Outcome{Kind: Retry, Code: 75, RetryAfter: 90 * time.Second, Message: "exit status 75 (try again later)"}, ""},
		"retry key":   {"", `(drop (call $retry_after (i64.const -90000))) (i32.const 75)`, Outcome{Kind: Retry, Code: 75, RetryAfter: 90 * time.Second, HoldKey: true, Message: "exit status 75 (try again later)"}, ""},
		"fails later": {"", `(drop (call $retry_after (i64.const 90000))) (i32.const 3)`, Outcome{Kind: Failed, Code: 3, RetryAfter: 90 * time.Second, Message: "exit status 3"}, ""},
		"fatal":       {words, `(call $say) (i32.const 65)`, Outcome{Kind: Fatal, Code: 65, Message: "no such user\n\\x1b[31mred"}, ""},
		"failed":      {words, `(call $say) (i32.const 3)`, Outcome{Kind: Failed, Code: 3, Message: "no such user\n\\x1b[31mred"}, ""},
		"negative":    {"", `(i32.const -1)`, Outcome{Kind: Failed, Code: -1, Message: "exit status -1"}, ""},
		"exit":        {"", `(call $proc_exit (i32.const 65)) (i32.const 0)`, Outcome{Kind: Fatal, Code: 65, Message: "exit status 65 (failed for good)"}, ""},
		"exit 0":      {"", `(call $proc_exit (i32.const 0)) (i32.const 1)`, Outcome{Kind: Complete}, ""},
		"log":         {words, say + `(i32.const 1)`, Outcome{Kind: Failed, Code: 1, Message: "exit status 1: line 1", Stderr: "line 1"}, ""},
		"trap":        {words, `(call $say) unreachable`, Outcome{Kind: Trap, Trap: "unreachable", Message: "unreachable (the program aborted or panicked): no such user\n\\x1b[31mred"}, ""},
		"output": {"", `(drop (call $output_write (i32.const 0) (i32.const 600))) (drop (call $output_write (i32.const 0) (i32.const 600)))
			(drop (call $output_write (i32.const 0) (i32.const 5))) (i32.const 1)`, Outcome{Kind: LimitExceeded, Limit: Limit{"output", "1kB"}, Message: "output limit of 1kB reached by 1200B: raise limits.output in the plugin's manifest"}, ""},
		"output, and coped with": {"", `(if (i32.ne (call $output_write (i32.const 0) (i32.const 1001)) (i32.const -5)) (then unreachable))
			(drop (call $output_write (i32.const 64) (i32.const 2))) (i32.const 0)`, Outcome{Kind: Complete}, "\x00\x00"},
	} {
		for _, pool := range []string{"", "pool"} {
			t.Run(name+"/"+pool, func(t *testing.T) {
				t.Parallel()
				module := load(t, handler(t, test.functions, test.body))
				for range 3 {
					got := bound(module, pool, Profile{Limits: Limits{Output: 1000}}).Run(t.Context(), Call{TaskID: "id", Input: []byte("input")})
					if string(got.Output) != test.output {
						t.Errorf("output = %q, want %q", got.Output, test.output)
					}
					if test.want.Kind != Trap && len(got.Backtrace) > 0 {
						t.Errorf("backtrace %v", got.Backtrace)
					}
					got.Output, got.Fuel, got.CPU, got.GuestTime, got.WaitTime, got.Backtrace = nil, 0, 0, 0, 0, nil
					if fmt.Sprint(got) != fmt.Sprint(test.want) {
						t.Errorf("outcome =\n%+v, want\n%+v", got, test.want)
					}
				}
			})
		}
	}
}

// TestHandlerStart: what goes wrong before the first task is that task's outcome, and each further task's.
func TestHandlerStart(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		start string
		want  string
	}{
		"trap": {`unreachable`, "trap: before its first task: unreachable (the program aborted or panicked)"},
		"log": {`(i32.store (i32.const 100) (i32.const 0x6b6e69)) (i32.store (i32.const 200) (i32.const 100)) (i32.store (i32.const 204) (i32.const 3))
			(drop (call $fd_write (i32.const 2) (i32.const 200) (i32.const 1) (i32.const 300))) unreachable`, "trap: before its first task: unreachable (the program aborted or panicked): ink"},
		"error":    {`(if (i32.ne (call $error_set (i32.const 0) (i32.const 1)) (i32.const -10)) (then unreachable))`, "complete: "},
		"exit":     {`(call $proc_exit (i32.const 0))`, "failed: before its first task: the handler exited with status 0: let it return"},
		"exit 75":  {`(call $proc_exit (i32.const 75))`, "failed: before its first task: the handler exited with status 75: let it return"},
		"exit 3":   {`(call $proc_exit (i32.const 3))`, "failed: before its first task: exit status 3"},
		"loop":     {`(loop (br 0))`, "limit: before its first task: cpu limit of 1ms exceeded: raise limits.cpu in the plugin's manifest"},
		"no task":  {`(if (i32.ne (call $input_size) (i32.const -10)) (then unreachable)) (if (i32.ne (call $task_text (i32.const 0)) (i32.const -10)) (then unreachable))`, "complete: "},
		"its fuel": {`(local $i i32) (loop (br_if 0 (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 100000))))`, "complete: "},
	} {
		for _, pool := range []string{"", "pool"} {
			t.Run(name+"/"+pool, func(t *testing.T) {
				t.Parallel()
				module := load(t, handler(t, `(func (export "_initialize") `+test.start+`)`, `(i32.const 0)`))
				for range 3 {
					p := bound(module, pool, Profile{Limits: Limits{CPU: time.Millisecond}})
					p.startCPU = 0
					got := p.Run(t.Context(), Call{})
					if text := fmt.Sprintf("%s: %s", got.Kind, got.Message); text != test.want {
						t.Errorf("%s, want %s", text, test.want)
					}
					if got.BeforeTask != (got.Kind != Complete) {
						t.Errorf("BeforeTask is %t", got.BeforeTask)
					}
					if got.Kind == Complete && got.Fuel > 1000 {
						t.Errorf("the task burned %d, what the handler began with is not its own", got.Fuel)
					}
				}
			})
		}
	}
}

// TestStartHasItsAccount: a start that serves many tasks has fuel of its own, whatever little a task may burn; one that is a
// part of each task has not. The task itself has no more than its limit.
func TestStartHasItsAccount(t *testing.T) {
	t.Parallel()
	const million = `(local $i i32) (loop (br_if 0 (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 1000000))))`
	once := load(t, handler(t, `(func (export "_initialize") `+million+`)`, `(i32.const 0)`))
	both := load(t, handler(t, `(func (export "_initialize") `+million+`)`, million+`(i32.const 0)`))
	for name, test := range map[string]struct {
		module *Module
		pool   string
		start  time.Duration
		want   string
	}{
		"start":          {once, "pool", startCPU, "complete: "},
		"start and task": {both, "pool", startCPU, "limit: cpu limit of 1ms exceeded: raise limits.cpu in the plugin's manifest"},
		"bounded":        {once, "bounded", 2 * time.Millisecond, "limit: before its first task: cpu limit of 2ms exceeded: raise limits.cpu in the plugin's manifest"},
		"of each task":   {once, "", startCPU, "limit: before its first task: cpu limit of 1ms exceeded: raise limits.cpu in the plugin's manifest"},
	} {
		p := bound(test.module, test.pool, Profile{Limits: Limits{CPU: time.Millisecond}})
		p.startCPU = test.start
		got := p.Run(t.Context(), Call{})
		if text := fmt.Sprintf("%s: %s", got.Kind, got.Message); text != test.want {
			t.Errorf("%s: %s, want %s", name, text, test.want)
		}
	}
}

// TestHandlerStartSection: a handler's start section runs once, before _initialize, and tasks start from what both leave.
func TestHandlerStartSection(t *testing.T) {
	t.Parallel()
	module := load(t, runtimetest.BuildWAT(t, `(module
		(memory (export "memory") 1)
		(func $then (param i32) (i32.store (i32.const 8) (i32.add (i32.mul (i32.load (i32.const 8)) (i32.const 10)) (local.get 0))))
		(func $begin (call $then (i32.const 1)))
		(start $begin)
		(func (export "_initialize") (call $then (i32.const 2)))
		(func (export "quern_handle") (result i32) (call $then (i32.const 3)) (i32.load (i32.const 8))))`))
	for _, pool := range []string{"pool", "pool", "another"} {
		if got := bound(module, pool, Profile{}).Run(t.Context(), Call{}); got.Code != 123 {
			t.Errorf("exit status %d, want 123: %+v", got.Code, got)
		}
	}
}

// TestCommandStartSection: a command's start section is part of each task.
func TestCommandStartSection(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`unreachable`:   "trap: unreachable (the program aborted or panicked)",
		`(loop (br 0))`: "limit: cpu limit of 1ms exceeded: raise limits.cpu in the plugin's manifest",
	} {
		module := load(t, runtimetest.BuildWAT(t, `(module (memory (export "memory") 1) (func $begin `+body+`) (start $begin) (func (export "_start")))`))
		got := bound(module, "pool", Profile{Limits: Limits{CPU: time.Millisecond}}).Run(t.Context(), Call{})
		if text := fmt.Sprintf("%s: %s", got.Kind, got.Message); text != want {
			t.Errorf("%s, want %s", text, want)
		}
	}
	// It runs once in each task, whether the task gets a new instance or one that was reset.
	module := load(t, runtimetest.BuildWAT(t, `(module
		(import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
		(memory (export "memory") 1)
		(func $begin (i32.store (i32.const 8) (i32.add (i32.load (i32.const 8)) (i32.const 41))))
		(start $begin)
		(func (export "_start") (call $proc_exit (i32.load (i32.const 8)))))`))
	for _, pool := range []string{"pool", "pool", "another"} {
		if got := bound(module, pool, Profile{}).Run(t.Context(), Call{}); got.Code != 41 {
			t.Errorf("the start section ran other than once: %+v", got)
		}
	}
}

// counter is a handler that leaves traces in memory and a global, and tells of those that it finds.
const counterBody = `
	(global.set $count (i32.add (global.get $count) (i32.const 1)))
	(i32.store (i32.const 100) (i32.add (i32.load (i32.const 100)) (i32.const 1)))
	(i32.store (i32.const 104) (global.get $count))
	(i32.store (i32.const 108) (memory.size))
	(drop (memory.grow (i32.const 3)))
	(drop (call $output_write (i32.const 100) (i32.const 12)))`

// TestHandlerWarm: the image of a warm handler is taken after a call.
func TestHandlerWarm(t *testing.T) {
	t.Parallel()
	const cold, warm = "\x01\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00", "\x02\x00\x00\x00\x02\x00\x00\x00\x04\x00\x00\x00"
	ifWarm := func(body string) string {
		return `(if (i32.eq (call $input_size) (i32.const 4)) (then ` + body + `))`
	}
	for name, test := range map[string]struct{ body, want, logged string }{
		"complete": {"", warm, ""},
		"trap":     {ifWarm(`unreachable`), cold, "outcome=trap error="},
		"failed":   {ifWarm(`(return (i32.const 1))`), cold, "the warm call failed"},
		"loop":     {ifWarm(`(loop (br 0))`), cold, "cpu limit of 1ms exceeded"},
		"task":     {ifWarm(`(drop (call $task_text (i32.const 0)))`), warm, ""},
		"result":   {ifWarm(`(drop (call $result_read (i32.const 0) (i32.const 0) (i32.const 0)))`), cold, "function=result_read"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			logger, log := logTo(t)
			engine, err := New(t.Context(), Config{Logger: logger})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = engine.Close(t.Context()) })
			module := loadInto(t, engine, handler(t, "", counterBody+test.body+`(i32.const 0)`))
			for range 3 {
				got := bound(module, "pool", Profile{Tenant: "t", Warm: []byte("warm"), Limits: Limits{CPU: time.Millisecond}}).Run(t.Context(), Call{
					Plugin: "p", Input: []byte("x"),
				})
				if output := complete(t, got); output != test.want {
					t.Errorf("found %x, want %x", output, test.want)
				}
			}
			if warned := strings.Count(log.String(), "no warm snapshot"); warned > 1 || (warned == 1) != (test.want == cold) {
				t.Errorf("warned %d times:\n%s", warned, log)
			}
			if !strings.Contains(log.String(), test.logged) {
				t.Errorf("log:\n%s\nwant %q", log, test.logged)
			}
		})
	}
}

// TestHandlerCancelled: a handler that asks is told that it had better end.
func TestHandlerCancelled(t *testing.T) {
	t.Parallel()
	module := load(t, handler(t, "", `(call $cancelled)`))
	ending := make(chan struct{})
	p, c := module.Bind(Profile{}), Call{Ending: ending}
	if got := p.Run(t.Context(), c); got.Kind != Complete {
		t.Errorf("outcome = %+v before anybody wants it to end", got)
	}
	close(ending)
	if got := p.Run(t.Context(), c); got.Kind != Failed || got.Code != 1 {
		t.Errorf("outcome = %+v, want to be told", got)
	}
}

// TestHandlerFuel: a task costs the same whatever way its instance came.
func TestHandlerFuel(t *testing.T) {
	t.Parallel()
	binary := handler(t, `(func (export "_initialize") (drop (call $random (i32.const 0) (i32.const 64))))`, counterBody+`(i32.const 0)`)
	var burned sync.Map
	eachResetMode(t, func(t *testing.T, engine *Engine) {
		module := loadInto(t, engine, binary)
		for range 3 {
			burned.Store(bound(module, "pool", Profile{}).Run(t.Context(), Call{}).Fuel, true)
		}
		burned.Store(bound(module, "", Profile{}).Run(t.Context(), Call{}).Fuel, true)
	})
	t.Cleanup(func() {
		if fuel := slices.Collect(maps.Keys(maps.Collect(burned.Range))); len(fuel) != 1 || fuel[0] == int64(0) {
			t.Errorf("fuel = %v, want always the same", fuel)
		}
	})
}

// TestHandlerTask: what a handler is told of its task.
func TestHandlerTask(t *testing.T) {
	t.Parallel()
	module := load(t, handler(t, "", `(local $i i32)
		(loop $next
			(drop (call $output_write (i32.const 100)
				(call $result_read (i32.const 0) (i32.const 100) (call $task_text (local.get $i)))))
			(i32.store8 (i32.const 99) (i32.const 124))
			(drop (call $output_write (i32.const 99) (i32.const 1)))
			(br_if $next (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 7))))
		(i32.const 0)`))
	for _, n := range []string{"1", "2"} {
		got := bound(module, "pool", Profile{Tenant: "tenant"}).Run(t.Context(), Call{
			TaskID: "id" + n, Queue: "queue" + n, Plugin: "plugin" + n,
			PreviousError: "error" + n, Parent: "parent" + n, Key: "key" + n,
		})
		want := strings.ReplaceAll("id#|queue#|tenant|plugin#|error#|parent#|key#|", "#", n)
		if output := complete(t, got); output != want {
			t.Errorf("the task is %s, want %s", output, want)
		}
	}
}
