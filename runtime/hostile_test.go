package runtime

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// attack is a guest that does not want to end. With anything on stdin it spares the host, and returns.
type attack struct {
	name string
	// text is the rest of a module after attackFrame, in WebAssembly's text format, with a function $attack.
	text string
	// pages is the memory that it declares, in pages of 64 KiB; 0 means 16.
	pages int
	// overflows tells that it ends by itself, with a full stack, if it is not stopped before.
	overflows bool
}

// attackFrame is what all attacks begin with: functions of the host, a memory, and a look at stdin. The lowest
// 64 bytes of the memory are used by it.
const attackFrame = `(module
  (import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_close" (func $fd_close (param i32) (result i32)))
  (import "wasi_snapshot_preview1" "sched_yield" (func $sched_yield (result i32)))
  (import "wasi_snapshot_preview1" "clock_time_get" (func $clock_time_get (param i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "random_get" (func $random_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_get" (func $args_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll_oneoff (param i32 i32 i32 i32) (result i32)))
  (memory (export "memory") %d)
  (global $g (mut i32) (i32.const 0))
  (func (export "_start")
    (i32.store (i32.const 0) (i32.const 16))
    (i32.store (i32.const 4) (i32.const 1))
    (drop (call $fd_read (i32.const 0) (i32.const 0) (i32.const 1) (i32.const 8)))
    (if (i32.eqz (i32.load (i32.const 8))) (then (call $attack))))
  %s)`

func (a attack) build(t testing.TB) []byte {
	t.Helper()
	return runtimetest.BuildWAT(t, fmt.Sprintf(attackFrame, max(a.pages, 16), a.text))
}

func (a attack) limits(timeout time.Duration) Limits {
	return Limits{Memory: max(defaultMemory, int64(a.pages)<<16), Timeout: timeout}
}

const (
	gibPages = 1 << 14 // of memory, in a GiB
	// work is 240 instructions in a straight line, which do something.
	workLine = "(global.set $g (i32.add (global.get $g) (i32.const 1)))"
)

var work = strings.Repeat(workLine, 60)

// attacks are all guests that are to be stopped by the clock.
func attacks() []attack {
	return slices.Concat(attacksByLoops(), attacksByCalls(), attacksByBulk(), attacksByHostCalls())
}

func attacksByLoops() []attack {
	return []attack{
		{name: "loop", text: `(func $attack (loop (br 0)))`},
		{name: "loop on a condition", text: `(func $attack (loop (br_if 0 (i32.const 1))))`},
		{name: "loop by br_table", text: `(func $attack (loop (loop (br_table 0 1 0 (global.get $g)))))`},
		{name: "loop with a skipped arm", text: `(func $attack
			(loop $l
				(block $b (br_if $b (i32.eqz (global.get $g))) ` + work + work + `)
				(block $b (br_if $b (i32.eqz (global.get $g))) ` + work + `(loop) ` + work + `)
				(br $l)))`},
		{name: "loop around endless many", text: `(func $attack
			(loop $a (loop $b (loop $c
				(br_if $b (i32.eqz (global.get $g))) (br_if $a (i32.const 1)) (br $c)))))`},
		{name: "loop of divisions", text: `(func $attack (local $x i64)
			(local.set $x (i64.const -1))
			(loop (local.set $x (i64.or (i64.div_u (i64.const -1) (local.get $x)) (i64.const 0x7fffffffffffffff))) (br 0)))`},
		{name: "wild loads", pages: gibPages / 2, text: `(func $attack (local $x i32) (local $sum i32)
			(memory.fill (i32.const 65536) (i32.const 1) (i32.const 0x1fff0000))
			` + wild(`(local.set $sum (i32.add (local.get $sum) (i32.load (i32.and (local.get $x) (i32.const 0x1ffffffc)))))`) + `)`},
		{name: "wild stores", pages: gibPages / 2, text: `(func $attack (local $x i32)
			` + wild(`(i32.store (i32.and (local.get $x) (i32.const 0x1ffffffc)) (i32.const 1))`) + `)`},
		{name: "a fresh page with each store", pages: 2 * gibPages, text: `(func $attack (local $x i32)
			(loop ` + strings.Repeat(`(i32.store (local.tee $x (i32.add (local.get $x) (i32.const 4096))) (i32.const 1))`, 30) + `
				(local.set $x (i32.and (local.get $x) (i32.const 0x7ffeffff))) (br 0)))`},
		{name: "memory.grow", text: `(func $attack (loop (drop (memory.grow (i32.const 0))) (drop (memory.grow (i32.const 65535))) (br 0)))`},
		{name: "ref.func", text: `(table 1 funcref) (elem declare func $attack)
			(func $attack (loop (table.set 0 (i32.const 0) (ref.func $attack)) (br 0)))`},
	}
}

// wild is a loop in which $x wanders.
func wild(body string) string {
	return `(loop (local.set $x (i32.add (i32.mul (local.get $x) (i32.const 1664525)) (i32.const 1013904223)))` + body + `(br 0))`
}

func attacksByCalls() []attack {
	return []attack{
		{name: "recursion", overflows: true, text: `(func $attack (call $attack))`},
		{name: "recursion behind loops", overflows: true, text: `(func $attack (loop) (loop (loop)) ` + work + ` (call $attack))`},
		{name: "recursion with many results", overflows: true, text: `(func $f (param i64 i64 i64 i64) (result i64 i64 i64 i64)
				(call $f (local.get 3) (local.get 2) (local.get 1) (local.get 0)))
			(func $attack (call $f (i64.const 1) (i64.const 2) (i64.const 3) (i64.const 4)) (drop) (drop) (drop) (drop))`},
		{name: "mutual recursion", overflows: true, text: `(func $attack (call $other)) (func $other (call $third)) (func $third (call $attack))`},
		{name: "indirect recursion", overflows: true, text: `(type $t (func)) (table funcref (elem $attack))
			(func $attack (call_indirect (type $t) (i32.const 0)))`},
		{name: "indirect recursion behind loops", overflows: true, text: `(type $t (func)) (table funcref (elem $attack))
			(func $attack (loop) (loop) (call_indirect (type $t) (i32.const 0)))`},
		{name: "tree of calls", text: tree("", "(call $f%d) (call $f%d)")},
		{name: "tree of calls behind loops", text: tree("(loop)", "(call $f%d) (call $f%d)")},
		{name: "tree of calls in a skipped arm", text: tree("", "(block (br_if 0 (global.get $g)) (call $f%d)) (block (br_if 0 (global.get $g)) (call $f%d))")},
		{name: "tree of indirect calls", text: `(type $t (func)) (table funcref (elem $f0)) ` +
			tree("(call_indirect (type $t) (i32.const 0))", "(call $f%d) (call $f%d)")},
		{name: "returns with long tails", text: `(func $deep (param i32)
				(if (local.get 0) (then (call $deep (i32.sub (local.get 0) (i32.const 1))))) ` + work + `)
			(func $attack (loop (call $deep (i32.const 200000)) (br 0)))`},
		{name: "returns with short tails", text: `(func $deep (param i32)
				(if (local.get 0) (then (call $deep (i32.sub (local.get 0) (i32.const 1))) ` + strings.Repeat(workLine, 7) + `)))
			(func $attack (loop (call $deep (i32.const 200000)) (br 0)))`},
	}
}

// tree is a tree of functions without loops of their own, 40 deep, each of which calls the next one twice.
func tree(front, calls string) string {
	var text strings.Builder
	for i := range 40 {
		fmt.Fprintf(&text, "(func $f%d %s "+calls+")\n", i+1, front, i, i)
	}
	return text.String() + "(func $f0) (func $attack (call $f40))"
}

func attacksByBulk() []attack {
	const size, half = "(i32.const 0x40000000)", "(i32.const 0x20000000)"
	table := `(table $t 1000000 funcref) (elem declare func $attack) `
	forever := func(body string) string { return `(func $attack (loop ` + body + ` (br 0)))` }
	return []attack{
		{name: "memory.fill", pages: 2 * gibPages, text: forever(`(memory.fill (i32.const 65536) (i32.const 1) ` + size + `)`)},
		{name: "memory.copy", pages: 2 * gibPages, text: forever(`(memory.copy (i32.const 0x30000000) (i32.const 65536) ` + size + `)`)},
		{name: "memory.copy by one byte", pages: 2 * gibPages, text: forever(`(memory.copy (i32.const 65537) (i32.const 65536) ` + half + `)`)},
		{name: "memory.init", pages: 64, text: `(data $d "` + strings.Repeat("x", 1<<20) + `")` +
			forever(`(memory.init $d (i32.const 65536) (i32.const 0) (i32.const 1048576))`)},
		{name: "bulk of nothing", text: forever(`(memory.fill (i32.const 0) (i32.const 0) (i32.const 0))`)},
		{name: "table.fill", text: table + forever(`(table.fill $t (i32.const 0) (ref.func $attack) (i32.const 1000000))`)},
		{name: "table.copy", text: table + forever(`(table.copy $t $t (i32.const 1) (i32.const 0) (i32.const 999999))`)},
		{name: "table.init", text: table + `(elem $e func` + strings.Repeat(" 0", 5000) + `)` +
			forever(`(table.init $t $e (i32.const 7) (i32.const 0) (i32.const 5000))`)},
		{name: "table.grow", text: table + forever(`(drop (table.grow $t (ref.null func) (i32.const 1)))`)},
	}
}

func attacksByHostCalls() []attack {
	forever := func(body string) string { return `(func $attack (loop ` + body + ` (br 0)))` }
	dropped := func(call string) string { return forever(`(drop ` + call + `)`) }
	return []attack{
		{name: "sched_yield", text: dropped(`(call $sched_yield)`)},
		{name: "clock_time_get", text: dropped(`(call $clock_time_get (i32.const 1) (i64.const 0) (i32.const 16))`)},
		{name: "fd_write of nothing", text: dropped(`(call $fd_write (i32.const 1) (i32.const 0) (i32.const 0) (i32.const 16))`)},
		{name: "fd_write of empty vectors", text: dropped(`(call $fd_write (i32.const 1) (i32.const 64) (i32.const 1024) (i32.const 16))`)},
		{name: "random_get", pages: 2 * gibPages, text: dropped(`(call $random_get (i32.const 65536) (i32.const 0x40000000))`)},
		{name: "args_get", text: dropped(`(call $args_get (i32.const 64) (i32.const 128))`)},
		{name: "errors", text: dropped(`(call $fd_close (i32.const -1))`)},
		{name: "progress", text: `(data (i32.const 64) "quern:progress=0.5 on and on\0a")
			(func $attack
				(i32.store (i32.const 0) (i32.const 64)) (i32.store (i32.const 4) (i32.const 29))
				(loop (drop (call $fd_write (i32.const 2) (i32.const 0) (i32.const 1) (i32.const 16))) (br 0)))`},
		{name: "poll of 4096 clocks that have rung", text: `(func $attack (local $i i32)
				(local.set $i (i32.const 65536))
				(loop $l
					(i32.store16 offset=40 (local.get $i) (i32.const 1)) (; absolute: at the time 0 ;)
					(local.set $i (i32.add (local.get $i) (i32.const 48)))
					(br_if $l (i32.lt_u (local.get $i) (i32.const 262144))))
				(loop (drop (call $poll_oneoff (i32.const 65536) (i32.const 524288) (i32.const 4096) (i32.const 16))) (br 0)))`},
		{name: "sleep", text: `(func $attack
				(i32.store (i32.const 80) (i32.const 1)) (; monotonic ;)
				(i64.store (i32.const 88) (i64.const -1))
				(loop (drop (call $poll_oneoff (i32.const 64) (i32.const 128) (i32.const 1) (i32.const 16))) (br 0)))`},
	}
}

const (
	// stopWithin is the promise: the time from a deadline in which a guest ends and Run returns.
	stopWithin = 20 * time.Millisecond
	// strikes is how often a guest attacks until it has ended in that time.
	strikes = 10
	// strikeTime is the deadline of an attack.
	strikeTime = 20 * time.Millisecond
)

// strike lets a guest attack until a deadline, and returns how long after it Run returned.
func (a attack) strike(t testing.TB, module *Module, timeout time.Duration) (late time.Duration) {
	t.Helper()
	started := time.Now()
	got := call(t, module, "", a.limits(timeout))
	late = time.Since(started) - timeout
	stopped := got.Kind == LimitExceeded && got.Limit.Name == "timeout"
	overflown := got.Kind == Trap && got.Trap == "stack overflow"
	if !stopped && (!a.overflows || !overflown) || got.Output != nil || got.Err != nil {
		t.Errorf("outcome = %+v, want the timeout", got)
	}
	return late
}

// promised is the bound that the tests hold a promise of time to. By default it is fifty times what is promised:
// a guest that cannot be stopped never is, and a machine that is busy with other things proves no more than
// that. `make chaos` holds the promise itself.
func promised(d time.Duration) time.Duration {
	if os.Getenv("QUERN_CHAOS") == "full" {
		return d
	}
	return 50 * d
}

// TestHostileStop: every guest that does not want to end is stopped in the time that is promised, at the best of
// ten attacks. Afterwards the module serves as before.
func TestHostileStop(t *testing.T) { //nolint:paralleltest // it measures time
	engine := setup(t)
	for _, a := range attacks() {
		t.Run(a.name, func(t *testing.T) {
			module := loadInto(t, engine, a.build(t))
			best := patience
			for range strikes {
				if best = min(best, a.strike(t, module, strikeTime)); best <= promised(stopWithin) {
					break
				}
			}
			if best > promised(stopWithin) {
				t.Errorf("it ran on for %v behind its deadline, at best of %d times", best, strikes)
			}
			complete(t, call(t, module, "spare", a.limits(patience)))
		})
	}
}
