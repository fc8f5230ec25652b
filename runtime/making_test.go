package runtime

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
	if p.rung == RungNew {
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
	if p.rung == RungNew {
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

// TestNoRoom: where there is no room for an image each call is served by an instance of its own, which has begun as any
// other; as soon as there is room there is an image.
func TestNoRoom(t *testing.T) {
	t.Parallel()
	binary := handler(t, `(func (export "_initialize") (i32.store (i32.const 100) (i32.const 7)))`,
		`(drop (call $output_write (i32.const 100) (i32.const 4)))
		(i32.store (i32.const 100) (i32.const 8))
		(i32.const 0)`)
	logger, log := logTo(t)
	engine := setupWith(t, Config{Logger: logger})
	var room atomic.Bool
	var asked atomic.Int64
	engine.Ask(func(bytes int64) bool { asked.Store(bytes); return room.Load() })
	module := loadInto(t, engine, binary)
	if module.info.Rung == RungNew {
		t.Skip("no image is made here")
	}
	for _, warm := range [][]byte{nil, []byte("warm")} {
		c := Call{Pool: fmt.Sprintf("%d", len(warm)), Warm: warm}
		room.Store(false)
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				if got := module.Run(t.Context(), c); got.Kind != Complete || string(got.Output) != "\x07\x00\x00\x00" {
					t.Errorf("without room: %+v", got)
				}
			})
		}
		group.Wait()
		size := int64(65536)
		if warm != nil {
			size *= 2 // the cold one and the warm one, for a moment
		}
		p := module.pool(&c, c.limits())
		if h := engine.Holdings(); p.image != nil || len(p.idle) != 0 || p.busy != 0 || asked.Load() != size {
			t.Errorf("without room: image %v, %d idle, %d busy, asked for %d bytes, held %+v", p.image, len(p.idle), p.busy, asked.Load(), h)
		}
		room.Store(true)
		complete(t, module.Run(t.Context(), c))
		if p.image == nil || len(p.idle) != 1 {
			t.Errorf("with room: image %v, %d idle", p.image, len(p.idle))
		}
	}
	if got := strings.Count(log.String(), "there is no room"); got != 2 {
		t.Errorf("said %d times of two pools", got)
	}
}
