package runtime

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/compile"
	"github.com/quern-project/quern/runtime/runtimetest"
	"github.com/quern-project/quern/runtime/snapshot"
)

// eachResetMode calls f with an engine in each reset mode that works here. The binaries are compiled once before.
func eachResetMode(t *testing.T, f func(t *testing.T, engine *Engine), binaries ...[]byte) {
	t.Helper()
	cache := filepath.Join(t.TempDir(), "cache")
	engine := setupWith(t, Config{CacheDir: cache})
	for _, binary := range binaries {
		loadInto(t, engine, binary)
	}
	for _, mode := range []ResetMode{ResetScan, ResetPagemap, ResetCopy, ResetNew} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			if !works(mode) {
				t.Skip("this reset mode does not work here")
			}
			f(t, setupWith(t, Config{ResetMode: mode, CacheDir: cache}))
		})
	}
}

// errDrain is why a caller ends a call.
var errDrain = errors.New("draining")

// idle is how many instances wait for the next call, in all pools of a module.
func idle(m *Module) (n int) {
	for _, p := range m.allPools() {
		p.mu.Lock()
		n += len(p.idle)
		p.mu.Unlock()
	}
	return n
}

// TestPool: calls of a pool are served by one instance, in which each finds nothing of those before, and the
// memory as it was.
func TestPool(t *testing.T) {
	t.Parallel()
	binary := handler(t, "", counterBody+`
		(if (i32.eq (call $input_size) (i32.const 1)) (then (unreachable)))
		(if (i32.eq (call $input_size) (i32.const 2)) (then (loop (br 0))))
		(if (i32.eq (call $input_size) (i32.const 3)) (then (call $proc_exit (i32.const 9))))
		(if (i32.eq (call $input_size) (i32.const 4)) (then (loop (br_if 0 (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))) (unreachable)))
		(if (i32.eq (call $input_size) (i32.const 5)) (then (memory.fill (i32.const 0) (i32.const 255) (i32.const 65536))))
		(i32.const 0)`)
	const pristine = "\x01\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00"
	eachResetMode(t, func(t *testing.T, engine *Engine) {
		module := loadInto(t, engine, binary)
		p := module.Bind(Profile{Limits: Limits{CPU: 100 * time.Microsecond, Memory: 1 << 20}})
		var first *instance
		for n := range 60 {
			got := p.Run(t.Context(), Call{Input: bytes.Repeat([]byte("x"), n%6)})
			want := []OutcomeKind{Complete, Trap, LimitExceeded, Failed, LimitExceeded, Complete}[n%6]
			if got.Kind != want || got.Kind == Complete && string(got.Output) != pristine {
				t.Fatalf("call %d: %+v, want %s of a pristine instance", n, got, want)
			}
			if engine.resetMode == ResetNew {
				continue
			}
			if len(p.idle) != 1 || first != nil && p.idle[0] != first {
				t.Fatalf("call %d: %d instances wait, want the one", n, len(p.idle))
			}
			first = p.idle[0]
		}
		if engine.resetMode == ResetNew && idle(module) > 0 {
			t.Errorf("%d instances wait", idle(module))
		}
	})
}

// TestPoolOfCommands: a command begins in the snapshot from before _start.
func TestPoolOfCommands(t *testing.T) {
	t.Parallel()
	inC := runtimetest.BuildC(t, `#include <stdio.h>`+"\n"+`static int count; int main(void) { printf("%d", ++count); return 0; }`)
	inGo := runtimetest.BuildGo(t, `package main; import "os"; var count = 0; func main() { count++; os.Stdout.Write([]byte{byte('0' + count)}) }`)
	eachResetMode(t, func(t *testing.T, engine *Engine) {
		for name, binary := range map[string][]byte{"C": inC, "Go": inGo} {
			module := loadInto(t, engine, binary)
			for range 5 {
				if got := complete(t, bound(module, "pool", Profile{}).Run(t.Context(), Call{})); got != "1" {
					t.Fatalf("%s: this is run %s", name, got)
				}
			}
			if want := 1; engine.resetMode != ResetNew && idle(module) != want {
				t.Errorf("%s: %d instances, want %d", name, idle(module), want)
			}
		}
	}, inC, inGo)
}

// TestPoolApart: pools do not share instances; calls of one pool share a snapshot.
func TestPoolApart(t *testing.T) {
	t.Parallel()
	module := load(t, handler(t, `(func (export "_initialize") (drop (call $random (i32.const 100) (i32.const 16))))`,
		`(drop (call $output_write (i32.const 100) (i32.const 16))) (i32.const 0)`))
	pools := []*Pool{
		module.Bind(Profile{Tenant: "x"}), module.Bind(Profile{Tenant: "x"}), module.Bind(Profile{Tenant: "y"}),
		module.Bind(Profile{Tenant: "x", Limits: Limits{Memory: 4 << 20}}),
	}
	seen := map[string]int{}
	for n, p := range pools {
		var group sync.WaitGroup
		found := make(chan string, 8)
		for range cap(found) {
			group.Go(func() { found <- string(p.Run(t.Context(), Call{}).Output) })
		}
		group.Wait()
		close(found)
		for text := range found {
			if other, ok := seen[text]; ok && other != n || len(text) != 16 {
				t.Errorf("calls %d and %d begin in one snapshot, %x", n, other, text)
			}
			seen[text] = n
		}
	}
	if len(seen) != len(pools) {
		t.Errorf("%d snapshots for %d pools: %v", len(seen), len(pools), seen)
	}
}

// TestQuantumIsNotPassedOn: what the counter of an instance has left of a quantum is not for the next task.
func TestQuantumIsNotPassedOn(t *testing.T) {
	t.Parallel()
	module := load(t, handler(t, "", `(if (call $input_size) (then (loop (br 0)))) (i32.const 0)`))
	limits := Limits{CPU: 1000 * time.Nanosecond}
	alone := bound(module, "", Profile{Limits: limits}).Run(t.Context(), Call{Input: []byte("x")})
	p := module.Bind(Profile{})
	for range 3 {
		p.limits.CPU = 0
		complete(t, p.Run(t.Context(), Call{}))
		p.limits.CPU = limits.CPU
		after := p.Run(t.Context(), Call{Input: []byte("x")})
		if after.Kind != LimitExceeded || after.Fuel != alone.Fuel {
			t.Errorf("after another task %s at %d, alone at %d", after.Kind, after.Fuel, alone.Fuel)
		}
	}
}

// TestSnapshotIsClosed: a pool that is closed gives its snapshot back.
func TestSnapshotIsClosed(t *testing.T) {
	t.Parallel()
	module := load(t, handler(t, `(data (i32.const 1000) "x")`, `(i32.const 0)`))
	p := module.Bind(Profile{})
	complete(t, p.Run(t.Context(), Call{}))
	taken := p.snapshot
	if taken == nil {
		t.Skip("no snapshot is made here")
	}
	space, err := snapshot.Reserve(taken.memories[0].Size())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := space.Release(); err != nil {
			t.Error(err)
		}
	}()
	if err := space.Map(taken.memories[0]); err != nil {
		t.Error(err)
	}
	p.Close()
	if err := space.Map(taken.memories[0]); err == nil {
		t.Error("the snapshot is still there")
	}
}

// TestLoadAgainFails: a call whose code cannot be loaded again is the host's fault, and counted out.
func TestLoadAgainFails(t *testing.T) {
	t.Parallel()
	engine := setupWith(t, Config{ResetMode: ResetNew})
	module := loadInto(t, engine, handler(t, "", `(i32.const 0)`))
	p, c := module.Bind(Profile{}), Call{}
	complete(t, p.Run(t.Context(), c))
	if freed, err := module.code.Unload(t.Context()); freed == 0 || err != nil {
		t.Fatal(freed, err)
	}
	if err := engine.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := p.Run(t.Context(), c); got.Kind != HostFault || !errors.Is(got.Err, compile.ErrClosed) {
		t.Errorf("%+v", got)
	}
	if got := engine.Holdings(); got.Busy != 0 {
		t.Errorf("%d calls are counted, of none", got.Busy)
	}
}

// TestUnsoundIsDiscarded: an instance that cannot be reset, or in which the host erred, serves nobody again.
func TestUnsoundIsDiscarded(t *testing.T) {
	t.Parallel()
	module := load(t, blocker(t))
	p := module.Bind(Profile{})
	release := blocked(t, p)
	if p.resetMode == ResetNew {
		t.Skip("no instance is kept here")
	}
	if err := p.snapshot.memories[0].Close(); err != nil {
		t.Fatal(err)
	}
	release()
	if idle(module) != 0 {
		t.Error("an instance that was not reset waits for the next call")
	}
	c := Call{Input: []byte("x"), Log: func(string) { panic("of the caller") }}
	if got := module.Bind(Profile{}).Run(t.Context(), c); got.Kind != HostFault {
		t.Fatalf("%+v", got)
	}
	if idle(module) != 0 {
		t.Error("an instance in which the host erred waits for the next call")
	}
}

// TestUseIsNoted: a module is not idle that was just used, with a pool that is gone or with none.
func TestUseIsNoted(t *testing.T) {
	t.Parallel()
	engine := setupWith(t, Config{IdleUnload: time.Hour})
	module := loadInto(t, engine, handler(t, "", `(i32.const 0)`))
	for _, pool := range []string{"", "pool"} {
		module.used.Store(time.Now().Add(-2 * time.Hour).UnixNano())
		complete(t, bound(module, pool, Profile{}).Run(t.Context(), Call{}))
		retire(module, "pool")
		engine.tidy(t.Context(), time.Now())
		if module.code.Bytes() == 0 {
			t.Errorf("pool %q: used this moment, and unloaded as idle for an hour", pool)
		}
	}
}

// occupied keeps all modules of an engine from being loaded, until free is called.
func occupied(t *testing.T, engine *Engine) (free func()) {
	t.Helper()
	free, err := engine.cache.LoadTurn(t.Context(), "somebody", math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	return free
}

func until(t *testing.T, condition func() bool) {
	t.Helper()
	eventually(t, "the condition", condition)
}

// blocked is a call that runs until it is released.
func blocked(t *testing.T, p *Pool) (release func() Outcome) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	begun, ended := make(chan struct{}), make(chan Outcome, 1)
	c := Call{Input: []byte("block"), Log: func(string) { close(begun) }}
	go func() { ended <- p.Run(ctx, c) }()
	select {
	case <-begun:
	case got := <-ended:
		t.Fatalf("it ended: %+v", got)
	}
	return func() Outcome {
		cancel(errDrain)
		return <-ended
	}
}

// blocker is a handler that says a word and runs on, if it has an input.
func blocker(t testing.TB) []byte {
	t.Helper()
	return handler(t, `(data (i32.const 200) "\90\01\00\00\02\00\00\00") (data (i32.const 400) "x\n")`, `
		(if (call $input_size) (then (drop (call $fd_write (i32.const 1) (i32.const 200) (i32.const 1) (i32.const 300))) (loop (br 0))))
		(i32.const 0)`)
}

// TestClose: idle instances of a closed pool are closed at once, one that runs when it has returned, and later calls fail.
func TestClose(t *testing.T) {
	t.Parallel()
	module := load(t, blocker(t))
	p, other := module.Bind(Profile{}), module.Bind(Profile{})
	release := blocked(t, p)
	complete(t, p.Run(t.Context(), Call{}))
	other.Close()
	if p.closed || idle(module) != 1 {
		t.Fatalf("another pool was closed: %d idle", idle(module))
	}
	for range 2 {
		p.Close()
	}
	if freed, err := module.code.Unload(t.Context()); freed != 0 || err != nil || len(p.idle) != 0 || p.busy != 1 || p.snapshot == nil {
		t.Errorf("%d idle, %d busy, snapshot %v, %d bytes of code unloaded, %v, want what the call needs", len(p.idle), p.busy, p.snapshot, freed, err)
	}
	if got := p.Run(t.Context(), Call{}); got.Kind != HostFault || !errors.Is(got.Err, errPoolClosed) {
		t.Errorf("a later call: %+v", got)
	}
	third := module.Bind(Profile{})
	complete(t, third.Run(t.Context(), Call{}))
	if got := release(); got.Kind != Cancelled {
		t.Errorf("outcome = %+v", got)
	}
	third.Close()
	if freed, err := module.code.Unload(t.Context()); freed == 0 || err != nil || p.busy != 0 || p.snapshot != nil || len(p.idle) != 0 {
		t.Errorf("%d busy, snapshot %v, %d idle, %d bytes of code unloaded, %v, want nothing left", p.busy, p.snapshot, len(p.idle), freed, err)
	}
}

// TestCloseWhileStarting: a call that waits for the snapshot of a pool that is closed meanwhile runs to its end.
func TestCloseWhileStarting(t *testing.T) {
	t.Parallel()
	engine := setup(t)
	module := loadInto(t, engine, handler(t, "", `(i32.const 0)`))
	if module.info.ResetMode == ResetNew {
		t.Skip("nobody waits for a snapshot here")
	}
	freed, err := module.code.Unload(t.Context())
	if freed == 0 || err != nil {
		t.Fatal(freed, err)
	}
	free := occupied(t, engine) // somebody else loads it, and the build waits
	p, ended := module.Bind(Profile{}), make(chan Outcome, 1)
	go func() { ended <- p.Run(t.Context(), Call{}) }()
	until(t, func() bool { return waiters(p) == 1 })
	p.Close()
	free()
	complete(t, <-ended)
	if freed, err := module.code.Unload(t.Context()); freed == 0 || err != nil || p.busy != 0 || p.snapshot != nil || len(p.idle) != 0 {
		t.Errorf("%d busy, snapshot %v, %d idle, %d bytes of code unloaded, %v, want nothing left", p.busy, p.snapshot, len(p.idle), freed, err)
	}
}

// TestTidy: a pool keeps as many instances as it needed at once lately, then one, then nothing; the code goes with
// them. What comes later brings all of it back.
func TestTidy(t *testing.T) {
	t.Parallel()
	engine := setupWith(t, Config{IdleUnload: time.Hour})
	if engine.resetMode == ResetNew {
		t.Skip("no instance is kept here")
	}
	module := loadInto(t, engine, blocker(t))
	p := module.Bind(Profile{})
	var releases []func() Outcome
	for range 4 {
		releases = append(releases, blocked(t, p))
	}
	for _, release := range releases {
		release()
	}
	now := time.Now()
	for _, want := range []int{4, 4, 4, 1} {
		if got := idle(module); got != want {
			t.Errorf("%d instances are idle, want %d", got, want)
		}
		engine.tidy(t.Context(), now)
	}
	if module.code.Bytes() == 0 || engine.Held() <= perInstance {
		t.Errorf("held = %d bytes, want code and a snapshot", engine.Held())
	}
	engine.tidy(t.Context(), time.Now().Add(time.Hour))
	if idle(module) != 0 || len(module.allPools()) != 0 || module.code.Bytes() > 0 || engine.Held() != 0 {
		t.Errorf("%d instances, %d pools, %d bytes are left of an idle module", idle(module), len(module.allPools()), engine.Held())
	}
	complete(t, p.Run(t.Context(), Call{}))
	if idle(module) != 1 || engine.Held() == 0 {
		t.Error("what came later did not begin anew")
	}
}

// TestRelieve: what is used longest ago goes first, and what runs stays.
func TestRelieve(t *testing.T) {
	t.Parallel()
	engine := setup(t)
	if engine.resetMode == ResetNew {
		t.Skip("no instance is kept here")
	}
	var modules []*Module
	for n := range 3 {
		module := loadInto(t, engine, handler(t, fmt.Sprintf(`(data (i32.const 1000) "%d")`, n), `(i32.const 0)`))
		complete(t, bound(module, "pool", Profile{}).Run(t.Context(), Call{}))
		modules = append(modules, module)
	}
	busy := loadInto(t, engine, blocker(t))
	release := blocked(t, busy.Bind(Profile{}))
	complete(t, bound(modules[0], "pool", Profile{}).Run(t.Context(), Call{}))
	held := func() int64 { h := engine.Holdings(); return h.Code + h.Snapshots + h.Instances } // the stack of what runs is counted once it has run a while
	before := held()
	freed := engine.Relieve(t.Context(), 1)
	if freed <= 0 || held() != before-freed || idle(modules[1]) != 0 || idle(modules[2]) != 1 || idle(modules[0]) != 1 {
		t.Errorf("%d of %d bytes freed, %d are held; idle %d %d %d", freed, before, held(), idle(modules[0]), idle(modules[1]), idle(modules[2]))
	}
	engine.Relieve(t.Context(), 1<<40)
	if idle(modules[0])+idle(modules[2]) != 0 || busy.code.Bytes() == 0 || engine.Held() <= 0 {
		t.Errorf("%d bytes are held, want what runs", engine.Held())
	}
	if got := release(); got.Kind != Cancelled {
		t.Errorf("outcome = %+v", got)
	}
	for _, module := range modules {
		complete(t, bound(module, "pool", Profile{}).Run(t.Context(), Call{}))
	}
}

// TestInstanceIsRenewed: an instance serves 10,000 calls, and the next one is as good.
func TestInstanceIsRenewed(t *testing.T) {
	t.Parallel()
	module := load(t, handler(t, "", `(i32.const 0)`))
	p, c := module.Bind(Profile{}), Call{}
	complete(t, p.Run(t.Context(), c))
	if p.resetMode == ResetNew {
		t.Skip("no instance is kept here")
	}
	first := p.idle[0]
	first.calls = maxCalls - 1
	complete(t, p.Run(t.Context(), c))
	if len(p.idle) != 0 {
		t.Error("it is kept")
	}
	complete(t, p.Run(t.Context(), c))
	if len(p.idle) != 1 || p.idle[0] == first || p.idle[0].calls != 1 {
		t.Error("there is no other one")
	}
}

// TestCallStack: a deep call stack is counted while its guest runs, and not kept.
func TestCallStack(t *testing.T) {
	t.Parallel()
	engine := setup(t)
	module := loadInto(t, engine, handler(t, `
		(data (i32.const 200) "\90\01\00\00\02\00\00\00") (data (i32.const 400) "x\n")
		(func $deep (param i32) (result i32)
			(if (result i32) (local.get 0)
				(then (i32.add (i32.const 1) (call $deep (i32.sub (local.get 0) (i32.const 1)))))
				(else (loop $spin (br_if $spin (call $spinning))) (i32.const 0))))
		(func $spinning (result i32) (local $i i32)
			(loop $l (br_if $l (i32.lt_u (local.tee $i (i32.add (local.get $i) (i32.const 1))) (i32.const 100000))))
			(drop (call $fd_write (i32.const 1) (i32.const 200) (i32.const 1) (i32.const 300)))
			(call $input_size))`, `(drop (call $deep (i32.const 100000))) (i32.const 0)`))
	complete(t, bound(module, "pool", Profile{}).Run(t.Context(), Call{})) // once, without an input, to its end
	for _, p := range module.allPools() {
		for _, i := range p.idle {
			if i.entry != nil {
				t.Errorf("a call stack of %d bytes is kept", stackOf(i.entry))
			}
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	var counted int64
	got := bound(module, "pool", Profile{}).Run(ctx, Call{Input: []byte("x"), Log: func(string) {
		if counted = engine.stacks.Load(); counted > 0 {
			cancel(errDrain)
		}
	}})
	if got.Kind != Cancelled || counted < 100_000*16 || engine.stacks.Load() != 0 {
		t.Errorf("%s with %d bytes counted, %d afterwards", got.Kind, counted, engine.stacks.Load())
	}
}

// TestResetModes: what of a module and of a machine decides the reset mode, and what is said of it.
func TestResetModes(t *testing.T) {
	t.Parallel()
	const table = `(table $t 1 10 funcref) (elem $e func $f) (func $f) (data $d "x")`
	for name, test := range map[string]struct{ functions, why string }{
		"plain":      {`(global (mut i64) (i64.const 0)) (global (mut f64) (f64.const 0)) (global (mut f32) (f32.const 0)) (global v128 (v128.const i32x4 0 0 0 0))`, ""},
		"table.set":  {table + `(func (table.set $t (i32.const 0) (ref.null func)))`, "the module changes tables or segments: table.set"},
		"many":       {table + `(func (drop (table.grow $t (ref.null func) (i32.const 1))) (elem.drop $e) (data.drop $d))`, "the module changes tables or segments: data.drop, elem.drop, table.grow"},
		"table.get":  {table + `(func (result funcref) (table.get $t (i32.const 0)))`, ""},
		"vector":     {`(global (mut v128) (v128.const i32x4 0 0 0 0))`, "the module has a mutable global of type v128"},
		"reference":  {`(global (mut funcref) (ref.null func))`, "the module has a mutable global of type funcref"},
		"externally": {`(global (mut externref) (ref.null extern))`, "the module has a mutable global of type externref"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			engine := setup(t)
			info := loadInto(t, engine, handler(t, test.functions, `(i32.const 0)`)).Info()
			want, why := ResetNew, test.why
			if why == "" {
				want, why = engine.resetMode, engine.resetReason
			}
			if info.ResetMode != want || info.ResetReason != why {
				t.Errorf("reset mode %s (%s), want %s (%s)", info.ResetMode, info.ResetReason, want, why)
			}
		})
	}
	broken := errors.New("not permitted")
	verdicts := []snapshot.Verdict{{Mode: ResetScan, Err: broken}, {Mode: ResetPagemap, Err: broken}, {Mode: ResetCopy}, {Mode: ResetNew}}
	for forced, want := range map[ResetMode]string{
		"":           "copy scan: not permitted; pagemap: not permitted",
		ResetNew:     "new the host's setting",
		ResetPagemap: ` reset mode "pagemap" does not work here: pagemap: not permitted`,
		"fast":       ` reset mode "fast" does not exist`,
	} {
		best, why, err := chooseResetMode(verdicts, forced)
		if err != nil {
			why = err.Error()
		}
		if got := fmt.Sprint(best, " ", why); got != want {
			t.Errorf("%q: %s, want %s", forced, got, want)
		}
	}
	if _, err := New(t.Context(), Config{ResetMode: "fast"}); err == nil || !strings.Contains(err.Error(), "fast") {
		t.Errorf("New: %v", err)
	}
}
