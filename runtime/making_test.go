package runtime

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/abi"
	"github.com/quern-project/quern/runtime/runtimetest"
)

// endless is a start that does not end.
const endless = `(func (export "_initialize") (loop (br 0)))`

// waiters is how many calls wait for the image of a pool.
func waiters(p *pool) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.making == nil {
		return 0
	}
	return p.making.waiters
}

// TestPoolWaits: who waits for the image of a pool ends with its context or at its own timeout; a start that
// fails is the outcome of all who wait then, and one of them has what it burned on his account.
func TestPoolWaits(t *testing.T) {
	t.Parallel()
	module := load(t, handler(t, endless, `(i32.const 0)`))
	c := Call{Pool: "pool", Limits: Limits{Timeout: 2 * time.Second}}
	p := module.pool(&c, c.limits())
	ended := make(chan Outcome, 8)
	for range cap(ended) {
		go func() { ended <- module.Run(t.Context(), c) }()
	}
	until(t, func() bool { return waiters(p) == cap(ended) })
	making := p.making
	ctx, cancel := context.WithCancelCause(t.Context())
	left := make(chan Outcome, 1)
	go func() { left <- module.Run(ctx, c) }()
	until(t, func() bool { return waiters(p) == cap(ended)+1 })
	cancel(errDrain)
	if got := <-left; got.Kind != Cancelled || !errors.Is(got.Err, errDrain) {
		t.Errorf("the one whose context ends: %+v", got)
	}
	hurried := c
	hurried.Timeout = 10 * time.Millisecond
	want := "before its first task (_initialize): timeout of 10ms exceeded: give the task a longer timeout, if the host's ceiling allows it"
	if got := module.Run(t.Context(), hurried); got.Kind != LimitExceeded || got.Message != want {
		t.Errorf("the one with a short timeout: %+v", got)
	}
	making.cancel(&limitError{limit: Limit{"timeout", "2s"}, message: "timeout"}) // as if its own time were over
	billed := 0
	for range cap(ended) {
		got := <-ended
		if got.Kind != LimitExceeded || got.Limit.Name != "timeout" {
			t.Errorf("one of those who wait: %+v", got)
		}
		if got.Fuel > 0 {
			billed++
		}
	}
	if billed > 1 {
		t.Errorf("%d have been billed for one start", billed)
	}
	if p.busy != 0 || p.image != nil || len(p.idle) != 0 || p.making != nil {
		t.Errorf("left: %d busy, image %v, %d idle", p.busy, p.image, len(p.idle))
	}
}

// TestStartIsBilled: what a start that fails burns is on the account of the task that began it.
func TestStartIsBilled(t *testing.T) {
	t.Parallel()
	module := load(t, handler(t, endless, `(i32.const 0)`))
	for _, pool := range []string{"", "pool"} {
		got := module.Run(t.Context(), Call{Pool: pool, Limits: Limits{CPU: 20 * time.Millisecond}})
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
		got := module.Run(t.Context(), Call{Pool: pool, Timeout: 10 * time.Millisecond})
		if got.Kind != LimitExceeded || got.Limit.Name != "timeout" {
			t.Errorf("pool %q: %s %s, want its timeout", pool, got.Kind, got.Message)
		}
	}
}

// TestUnwanted: the end of the only call that waits does not end the start at once, nor make the image a cold one;
// the retirement of its pool does.
func TestUnwanted(t *testing.T) {
	t.Parallel()
	module := load(t, handler(t, "", `(if (i32.eq (call $input_size) (i32.const 4)) (then (loop (br 0)))) (i32.const 0)`))
	c := Call{Pool: "pool", Warm: []byte("warm"), Timeout: 10 * time.Millisecond}
	if got := module.Run(t.Context(), c); got.Kind != LimitExceeded {
		t.Errorf("outcome = %+v, want the timeout", got)
	}
	p := module.pool(&c, c.limits())
	if p.resetMode == ResetNew {
		t.Skip("no image is made here")
	}
	p.mu.Lock()
	k := p.making
	p.mu.Unlock()
	if k == nil || k.giveUp == nil {
		t.Fatal("the start was given up with the call")
	}
	module.Retire("pool")
	<-k.done
	if p.image != nil || k.failed == nil || k.failed.Kind != Cancelled {
		t.Errorf("image %v, the making ended with %+v", p.image, k.failed)
	}
}

// TestRetireBesideFailure: a pool that is retired while its only call fails to begin keeps no image.
func TestRetireBesideFailure(t *testing.T) {
	t.Parallel()
	module := load(t, handler(t, "", `(i32.const 0)`))
	c := Call{Pool: "pool"}
	complete(t, module.Run(t.Context(), c))
	p := module.pool(&c, c.limits())
	if p.resetMode == ResetNew {
		t.Skip("no instance is kept here")
	}
	p.idle[0].calls = maxCalls - 1
	complete(t, module.Run(t.Context(), c)) // the instance goes, the image stays
	if done, err := module.code.unload(t.Context()); !done || err != nil || p.image == nil {
		t.Fatal(done, err, p.image)
	}
	module.code.loading <- struct{}{} // somebody else loads it
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan Outcome, 1)
	go func() { ended <- module.Run(ctx, c) }()
	until(t, func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.busy == 1 })
	module.Retire("pool")
	cancel(errDrain)
	if got := <-ended; got.Kind != Cancelled {
		t.Fatalf("%+v", got)
	}
	<-module.code.loading
	if p.busy != 0 || p.image != nil {
		t.Errorf("retired, %d busy, and the image is %v", p.busy, p.image)
	}
}

// TestWarmCommand: warming is for handlers; a command knows nothing of it.
func TestWarmCommand(t *testing.T) {
	t.Parallel()
	module := load(t, runtimetest.Echo(t))
	if got := complete(t, module.Run(t.Context(), Call{Pool: "pool", Warm: []byte("x"), Input: []byte("y")})); got != "y" {
		t.Errorf("output = %q", got)
	}
}

// TestOneClock: the time that a call waited for the image of its pool is a part of its own.
func TestOneClock(t *testing.T) {
	t.Parallel()
	module := load(t, handler(t, endless, `(i32.const 0)`))
	c := Call{Pool: "pool", Timeout: time.Minute}
	begun := time.Now().Add(-time.Minute)
	p, _, ended, _ := module.take(t.Context(), &c, c.limits(), begun)
	if p.resetMode == ResetNew {
		t.Skip("nobody waits for an image here")
	}
	if ended == nil || ended.Kind != LimitExceeded || ended.Limit.Name != "timeout" {
		t.Errorf("waited a minute: %+v, want the timeout", ended)
	}
	if r := module.newRun(t.Context(), &c, c.limits(), nil, abi.Running, begun); !r.deadline.Equal(begun.Add(time.Minute)) {
		t.Errorf("its time is over %s after it began", r.deadline.Sub(begun))
	}
}

// TestMakingIsHeld: a start that no call waits for any more counts with what it may take.
func TestMakingIsHeld(t *testing.T) {
	t.Parallel()
	engine := setup(t)
	module := loadInto(t, engine, handler(t, endless, `(i32.const 0)`))
	c := Call{Pool: "pool", Timeout: 10 * time.Millisecond, Limits: Limits{Memory: 2 << 20}}
	if got := module.Run(t.Context(), c); got.Kind != LimitExceeded {
		t.Fatalf("outcome = %+v", got)
	}
	if module.info.ResetMode == ResetNew {
		t.Skip("no start goes on alone here")
	}
	if got := engine.Holdings().Instances; got != 4<<20 {
		t.Errorf("%d bytes, want those of the instance and of its image", got)
	}
}

// TestComing: an image is to come until it is there.
func TestComing(t *testing.T) {
	t.Parallel()
	module := load(t, handler(t, "", `(i32.const 0)`))
	c := Call{Pool: "pool", Tenant: "x", Limits: Limits{Memory: 2 << 20}}
	coming := func(tenant string, warm bool) int64 { return module.Coming("pool", tenant, c.Limits, warm) }
	if module.info.ResetMode == ResetNew {
		if coming("x", true) != 0 {
			t.Error("an image is to come")
		}
		return
	}
	if coming("x", false) != 2<<20 || coming("x", true) != 4<<20 {
		t.Errorf("%d and %d bytes are to come", coming("x", false), coming("x", true))
	}
	complete(t, module.Run(t.Context(), c))
	if coming("x", false) != 0 || coming("x", true) != 0 || coming("y", false) != 2<<20 {
		t.Errorf("%d, %d and %d bytes are to come", coming("x", false), coming("x", true), coming("y", false))
	}
	module.Retire("pool")
	if coming("x", false) != 2<<20 {
		t.Errorf("%d bytes are to come again", coming("x", false))
	}
}

// TestGivenUp: who comes when a making is given up has nothing to do with its end.
func TestGivenUp(t *testing.T) {
	t.Parallel()
	module := load(t, handler(t, endless, `(i32.const 0)`))
	c := Call{Pool: "pool", Timeout: 10 * time.Millisecond}
	limits := c.limits()
	p := module.pool(&c, limits)
	if p.resetMode == ResetNew {
		t.Skip("no image is made here")
	}
	if got := module.Run(t.Context(), c); got.Kind != LimitExceeded {
		t.Fatalf("outcome = %+v", got)
	}
	k := p.making
	p.mu.Lock()
	k.waiters++
	p.mu.Unlock()
	if p.giveUp(k); p.making != k {
		t.Error("given up though somebody waits")
	}
	p.mu.Lock()
	k.waiters--
	p.mu.Unlock()
	p.giveUp(k)
	if got := module.Run(t.Context(), c); got.Kind != LimitExceeded {
		t.Errorf("outcome = %+v, want its own timeout", got)
	}
	<-k.done
	if p.image != nil || p.making == k {
		t.Error("a making that was given up goes on")
	}
}

// TestLoadingHasTheTime: a call does not wait longer for code that is loaded again than its time allows, and that is no
// time of the guest's.
func TestLoadingHasTheTime(t *testing.T) {
	t.Parallel()
	module := load(t, handler(t, "", `(i32.const 0)`))
	c := Call{Pool: "pool"}
	complete(t, module.Run(t.Context(), c))
	p := module.pool(&c, c.limits())
	if p.resetMode == ResetNew {
		t.Skip("no instance is kept here")
	}
	p.idle[0].calls = maxCalls - 1
	complete(t, module.Run(t.Context(), c)) // the instance goes, the image stays
	if done, err := module.code.unload(t.Context()); !done || err != nil {
		t.Fatal(done, err)
	}
	module.code.loading <- struct{}{} // somebody else loads it
	late := c
	late.Timeout = 10 * time.Millisecond
	if got := module.Run(t.Context(), late); got.Kind != LimitExceeded || got.Limit.Name != "timeout" {
		t.Errorf("outcome = %+v, want the timeout", got)
	}
	ended := make(chan Outcome, 1)
	go func() { ended <- module.Run(t.Context(), c) }()
	until(t, func() bool { p.mu.Lock(); defer p.mu.Unlock(); return p.busy == 1 })
	const loading = time.Second
	<-time.After(loading)
	<-module.code.loading
	if got := <-ended; got.Kind != Complete || got.GuestTime >= loading || got.CPU >= loading {
		t.Errorf("outcome = %+v, want complete, without the time of the loading", got)
	}
}
