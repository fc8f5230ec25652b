package runtime

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/runtimetest"
)

// endless is a start that does not end.
const endless = `(func (export "_initialize") (loop (br 0)))`

// waiters is how many calls wait for the snapshot of a pool.
func waiters(p *Pool) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.build == nil {
		return 0
	}
	return p.build.waiters
}

// TestPoolWaits: who waits for the snapshot of a pool ends with its context or at its own timeout; a start that
// fails is the outcome of all who wait then, and one of them has what it burned on his account.
func TestPoolWaits(t *testing.T) {
	t.Parallel()
	module := load(t, handler(t, endless, `(i32.const 0)`))
	c := Call{}
	p := module.Bind(Profile{Limits: Limits{Timeout: 2 * time.Second}})
	p.startWait = 0
	ended := make(chan Outcome, 8)
	for range cap(ended) {
		go func() { ended <- p.Run(t.Context(), c) }()
	}
	until(t, func() bool { return waiters(p) == cap(ended) })
	b := p.build
	ctx, cancel := context.WithCancelCause(t.Context())
	left := make(chan Outcome, 1)
	go func() { left <- p.Run(ctx, c) }()
	until(t, func() bool { return waiters(p) == cap(ended)+1 })
	cancel(errDrain)
	if got := <-left; got.Kind != Cancelled || !errors.Is(got.Err, errDrain) {
		t.Errorf("the one whose context ends: %+v", got)
	}
	hurried := c
	hurried.Timeout = 10 * time.Millisecond
	want := "before its first task: timeout of 10ms exceeded: give the task a longer timeout, if the host's ceiling allows it"
	if got := p.Run(t.Context(), hurried); got.Kind != LimitExceeded || got.Message != want {
		t.Errorf("the one with a short timeout: %+v", got)
	}
	b.cancel(&limitError{limit: Limit{"timeout", "2s"}, what: "timeout"}) // as if its own time were over
	charged := 0
	for range cap(ended) {
		got := <-ended
		if got.Kind != LimitExceeded || got.Limit.Name != "timeout" {
			t.Errorf("one of those who wait: %+v", got)
		}
		if got.Fuel > 0 {
			charged++
		}
	}
	if charged > 1 {
		t.Errorf("%d have been charged for one start", charged)
	}
	if p.busy != 0 || p.snapshot != nil || len(p.idle) != 0 || p.build != nil {
		t.Errorf("left: %d busy, snapshot %v, %d idle", p.busy, p.snapshot, len(p.idle))
	}
}

// TestStartIsCharged: what a start that fails burns is on the account of the task that began it.
func TestStartIsCharged(t *testing.T) {
	t.Parallel()
	module := load(t, handler(t, endless, `(i32.const 0)`))
	for _, pool := range []string{"", "pool"} {
		p := bound(module, pool, Profile{Limits: Limits{CPU: 20 * time.Millisecond}})
		p.startCPU = 0
		got := p.Run(t.Context(), Call{})
		if !strings.Contains(got.Message, "cpu") || got.Fuel < 20_000_000 || got.CPU == 0 {
			t.Errorf("pool %q: %s, fuel %d, CPU %s", pool, got.Message, got.Fuel, got.CPU)
		}
	}
}

// TestStartIsOver: a task's own timeout bounds the start of a handler also where it is made for that task alone.
func TestStartIsOver(t *testing.T) {
	t.Parallel()
	module := load(t, handler(t, endless, `(i32.const 0)`))
	for _, pool := range []string{"", "pool"} {
		p := bound(module, pool, Profile{})
		p.startWait = 0
		got := p.Run(t.Context(), Call{Timeout: 10 * time.Millisecond})
		if got.Kind != LimitExceeded || got.Limit.Name != "timeout" {
			t.Errorf("pool %q: %s %s, want its timeout", pool, got.Kind, got.Message)
		}
	}
}

// TestUnattended: the end of the only call that waits does not end the start at once, nor make the snapshot a cold one;
// closing its pool does.
func TestUnattended(t *testing.T) {
	t.Parallel()
	module := load(t, handler(t, "", `(if (i32.eq (call $input_size) (i32.const 4)) (then (loop (br 0)))) (i32.const 0)`))
	p, c := module.Bind(Profile{Warm: []byte("warm")}), Call{Timeout: 10 * time.Millisecond}
	p.startWait = 0
	if got := p.Run(t.Context(), c); got.Kind != LimitExceeded {
		t.Errorf("outcome = %+v, want the timeout", got)
	}
	if p.resetMode == ResetNew {
		t.Skip("no snapshot is made here")
	}
	p.mu.Lock()
	b := p.build
	p.mu.Unlock()
	if b == nil {
		t.Fatal("the start was abandoned with the call")
	}
	p.Close()
	<-b.done
	if p.snapshot != nil || b.failed == nil || b.failed.Kind != Cancelled {
		t.Errorf("snapshot %v, the build ended with %+v", p.snapshot, b.failed)
	}
}

// TestCloseBesideFailure: a pool that is closed while its only call fails to begin keeps no snapshot.
func TestCloseBesideFailure(t *testing.T) {
	t.Parallel()
	engine := setup(t)
	module := loadInto(t, engine, handler(t, "", `(i32.const 0)`))
	p, c := module.Bind(Profile{}), Call{}
	complete(t, p.Run(t.Context(), c))
	if p.resetMode == ResetNew {
		t.Skip("no instance is kept here")
	}
	p.idle[0].calls = maxCalls - 1
	complete(t, p.Run(t.Context(), c)) // the instance goes, the snapshot stays
	if freed, err := module.code.Unload(t.Context()); freed == 0 || err != nil || p.snapshot == nil {
		t.Fatal(freed, err, p.snapshot)
	}
	free := occupied(t, engine) // somebody else loads it
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan Outcome, 1)
	go func() { ended <- p.Run(ctx, c) }()
	until(t, func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.busy == 1 })
	p.Close()
	cancel(errDrain)
	if got := <-ended; got.Kind != Cancelled {
		t.Fatalf("%+v", got)
	}
	free()
	if p.busy != 0 || p.snapshot != nil {
		t.Errorf("closed, %d busy, and the snapshot is %v", p.busy, p.snapshot)
	}
}

// TestWarmCommand: warming is for handlers; a command knows nothing of it.
func TestWarmCommand(t *testing.T) {
	t.Parallel()
	module := load(t, runtimetest.Echo(t))
	if got := complete(t, bound(module, "pool", Profile{Warm: []byte("x")}).Run(t.Context(), Call{Input: []byte("y")})); got != "y" {
		t.Errorf("output = %q", got)
	}
}

// TestStartIsNotTheTasks: a call whose timeout is shorter waits a minute until it can begin, and its own time begins then.
func TestStartIsNotTheTasks(t *testing.T) {
	t.Parallel()
	module := load(t, handler(t, "", `(i32.const 0)`))
	p, c := module.Bind(Profile{}), Call{Timeout: 20 * time.Second}
	begun := time.Now().Add(-40 * time.Second)
	i, started, ended := p.acquire(t.Context(), &c, begun)
	if ended != nil || time.Since(started) > 10*time.Second {
		t.Errorf("waited 40 s: %+v, its time began %s ago", ended, time.Since(started))
	}
	p.release(i, false, 0, time.Now())
	if p.resetMode == ResetNew {
		t.Skip("nobody waits for a snapshot here")
	}
	p = load(t, handler(t, endless, `(i32.const 0)`)).Bind(Profile{})
	_, _, ended = p.acquire(t.Context(), &c, time.Now().Add(-time.Minute))
	if want := "before its first task: not started within 1m: let it do less at its start, or give the task a longer timeout"; ended == nil || ended.Message != want {
		t.Errorf("waited a minute: %+v, want %s", ended, want)
	}
}

// TestBuildIsHeld: a start that no call waits for any more counts with what it may take.
func TestBuildIsHeld(t *testing.T) {
	t.Parallel()
	engine := setup(t)
	module := loadInto(t, engine, handler(t, endless, `(i32.const 0)`))
	p, c := module.Bind(Profile{Limits: Limits{Memory: 2 << 20}}), Call{Timeout: 10 * time.Millisecond}
	p.startWait = 0
	if got := p.Run(t.Context(), c); got.Kind != LimitExceeded {
		t.Fatalf("outcome = %+v", got)
	}
	if module.info.ResetMode == ResetNew {
		t.Skip("no start goes on alone here")
	}
	if got := engine.Holdings().Instances; got != 4<<20 {
		t.Errorf("%d bytes, want those of the instance and of its snapshot", got)
	}
}

// TestPendingSnapshot: a snapshot is pending until it is there.
func TestPendingSnapshot(t *testing.T) {
	t.Parallel()
	module := load(t, handler(t, "", `(i32.const 0)`))
	profile := Profile{Tenant: "x", Limits: Limits{Memory: 2 << 20}}
	cold := module.Bind(profile)
	profile.Warm = []byte("warm")
	warm := module.Bind(profile)
	if module.info.ResetMode == ResetNew {
		if warm.PendingSnapshot() != 0 {
			t.Error("a snapshot is pending")
		}
		return
	}
	if cold.PendingSnapshot() != 2<<20 || warm.PendingSnapshot() != 4<<20 {
		t.Errorf("%d and %d bytes are pending", cold.PendingSnapshot(), warm.PendingSnapshot())
	}
	complete(t, cold.Run(t.Context(), Call{}))
	complete(t, warm.Run(t.Context(), Call{}))
	if cold.PendingSnapshot() != 0 || warm.PendingSnapshot() != 0 {
		t.Errorf("%d and %d bytes are pending", cold.PendingSnapshot(), warm.PendingSnapshot())
	}
	cold.trim(time.Now().Add(time.Hour), time.Minute)
	if cold.PendingSnapshot() != 2<<20 {
		t.Errorf("%d bytes are pending again", cold.PendingSnapshot())
	}
	if got := complete(t, cold.Run(t.Context(), Call{})); got != "" || cold.PendingSnapshot() != 0 {
		t.Errorf("output %q, %d bytes are pending after another call", got, cold.PendingSnapshot())
	}
}

// TestAbandoned: a call that comes when a build is abandoned has nothing to do with its end.
func TestAbandoned(t *testing.T) {
	t.Parallel()
	module := load(t, handler(t, endless, `(i32.const 0)`))
	p, c := module.Bind(Profile{}), Call{Timeout: 10 * time.Millisecond}
	p.startWait = 0
	if p.resetMode == ResetNew {
		t.Skip("no snapshot is made here")
	}
	if got := p.Run(t.Context(), c); got.Kind != LimitExceeded {
		t.Fatalf("outcome = %+v", got)
	}
	b := p.build
	p.mu.Lock()
	b.waiters++
	p.mu.Unlock()
	later := time.Now().Add(abandonAfter)
	if p.trim(later, 0); p.build != b {
		t.Error("abandoned though somebody waits")
	}
	p.mu.Lock()
	b.waiters--
	p.mu.Unlock()
	p.trim(later, 0)
	if got := p.Run(t.Context(), c); got.Kind != LimitExceeded {
		t.Errorf("outcome = %+v, want its own timeout", got)
	}
	<-b.done
	if p.snapshot != nil || p.build == b {
		t.Error("a build that was abandoned goes on")
	}
}

// TestLoadingHasTheTime: a call does not wait longer for code that is loaded again than its time allows, and that is no
// time of the guest's.
func TestLoadingHasTheTime(t *testing.T) {
	t.Parallel()
	engine := setup(t)
	module := loadInto(t, engine, handler(t, "", `(i32.const 0)`))
	p, c := module.Bind(Profile{}), Call{}
	complete(t, p.Run(t.Context(), c))
	if p.resetMode == ResetNew {
		t.Skip("no instance is kept here")
	}
	p.idle[0].calls = maxCalls - 1
	complete(t, p.Run(t.Context(), c)) // the instance goes, the snapshot stays
	if freed, err := module.code.Unload(t.Context()); freed == 0 || err != nil {
		t.Fatal(freed, err)
	}
	free := occupied(t, engine) // somebody else loads it
	p.startWait = 0
	late := c
	late.Timeout = 10 * time.Millisecond
	if got := p.Run(t.Context(), late); got.Kind != LimitExceeded || got.Limit.Name != "timeout" {
		t.Errorf("outcome = %+v, want the timeout", got)
	}
	ended := make(chan Outcome, 1)
	go func() { ended <- p.Run(t.Context(), c) }()
	until(t, func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.busy == 1 })
	const loading = time.Second
	begun := time.Now()
	until(t, func() bool { return time.Since(begun) >= loading })
	free()
	if got := <-ended; got.Kind != Complete || got.GuestTime >= loading || got.CPU >= loading {
		t.Errorf("outcome = %+v, want complete, without the time of the loading", got)
	}
}
