package runtime

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"time"

	"github.com/tetratelabs/wazero/api"

	"github.com/quern-project/quern/runtime/abi"
	"github.com/quern-project/quern/runtime/service"
)

// unwound is the panic that ends a guest from within a function of the host. wazero recovers it and returns
// it from the call; why the guest was ended stands in its run.
type unwound struct{}

func (unwound) Error() string { return "the host has ended the guest" }

// runOf is the run that uses the instance to which the context of a guest's calls leads.
func runOf(ctx context.Context) *run {
	i, ok := ctx.Value(instanceKey{}).(*instance)
	if !ok || i.run == nil {
		panic("runtime: a guest was called outside of a run")
	}
	return i.run
}

// hostFunction is the one wrapper through which guests call the functions of the host. It finds the call
// that the guest runs for, charges the price, and makes a panic of the host's code the host's own fault. What it
// wraps touches the guest's memory on the calling goroutine alone, and keeps nothing of it. Whether the call may go
// on is looked at with a tick, which comes with every fiftieth price at the latest, and after a wait: to read the
// clock each time would be half of what a short function costs.
func hostFunction(f func(r *run, mem api.Memory, stack []uint64)) api.GoModuleFunc {
	return func(ctx context.Context, mod api.Module, stack []uint64) {
		r := runOf(ctx)
		defer func() { r.guard(recover()) }()
		r.Spend(hostPrice)
		f(r, mod.Memory(), stack)
	}
}

// tick is called by a guest whose counter has fallen below zero, with the counter, and returns the next one.
func tick(ctx context.Context, _ api.Module, stack []uint64) {
	r := runOf(ctx)
	defer func() { r.guard(recover()) }()
	stack[0] = uint64(uint32(r.tick(int32(uint32(stack[0])))))
}

// guard looks at a panic in the host's code below a guest, where wazero would recover it. What ends a guest
// passes.
func (r *run) guard(p any) {
	switch p := p.(type) {
	case nil:
	case unwound:
		panic(p)
	default:
		r.end(&faultError{fmt.Errorf("panic in a function of the host: %v\n%s", p, debug.Stack())})
	}
}

// end ends the guest. The first cause wins.
func (r *run) end(cause error) {
	r.blame(cause)
	panic(unwound{})
}

// blame notes the cause of the outcome, if there is none yet.
func (r *run) blame(cause error) {
	if r.cause == nil {
		r.cause = cause
	}
}

// check ends the guest if its time is over.
func (r *run) check(now time.Time) {
	select {
	case <-r.done:
		r.end(context.Cause(r.ctx))
	default:
	}
	if !r.deadline.IsZero() && !now.Before(r.deadline) {
		r.end(timeoutExceeded(r.limits.Timeout, r.own))
	}
}

// tick accounts for a quantum, and lets others have a turn at the end of a slice.
func (r *run) tick(counter int32) int32 {
	if !r.meter.count(counter) {
		r.end(cpuExceeded(r.limits.CPU))
	}
	now := time.Now()
	r.check(now)
	switch taken := now.Sub(r.meter.began); {
	case taken >= slice:
		r.countStack()
		r.meter.yield()
	case taken >= short:
		r.meter.read(now)
	}
	return r.meter.refill()
}

// Spend implements wasi.Host.
func (r *run) Spend(bytes int) {
	left := int64(int32(r.meter.counter.Get())) - int64(bytes)
	counter := int32(max(left, math.MinInt32/2)) // far above what is ever moved at once
	r.meter.counter.Set(uint64(uint32(counter)))
	if counter < 0 {
		r.meter.counter.Set(uint64(uint32(r.tick(counter))))
	}
}

// Wait implements wasi.Host. It waits on what ends the call, too.
func (r *run) Wait(d time.Duration) {
	if d <= 0 {
		return // a guest has its turn for as long as any other, however often it offers it
	}
	r.Spend(waitPrice)
	if left := time.Until(r.deadline); !r.deadline.IsZero() && left < d {
		d = left
	}
	r.wait(func() {
		timer := time.NewTimer(d)
		select {
		case <-timer.C:
		case <-r.done:
			timer.Stop()
		}
	})
}

// wait does what takes long while other guests run.
func (r *run) wait(what func()) {
	begun := r.meter.pause()
	var ended time.Time
	func() {
		defer func() {
			ended = r.meter.resume()
			r.waited += ended.Sub(begun)
		}()
		what()
	}()
	r.check(ended)
}

// Exit implements wasi.Host.
func (r *run) Exit(code uint32) {
	r.exited, r.code = true, int(int32(code))
	panic(unwound{})
}

// Stdout implements wasi.Host. A handler has another way to its result: what it writes here is log.
func (r *run) Stdout(p []byte) {
	if r.module.info.Kind == Handler {
		r.log(&r.logs.stdout, p)
		return
	}
	if !r.output.add(p) {
		r.end(outputExceeded(r.limits.Output))
	}
}

// Stderr implements wasi.Host.
func (r *run) Stderr(p []byte) { r.log(&r.logs.stream, p) }

// Output implements abi.Host.
func (r *run) Output(p []byte) bool {
	taken := r.output.add(p)
	r.output.refused = r.output.refused || !taken
	return taken
}

// Reserve implements abi.Host.
func (r *run) Reserve(bytes int) bool {
	if !r.output.has(bytes) {
		r.output.refused = true
		return false
	}
	r.output.reserved += int64(bytes)
	return true
}

// FuelLeft implements abi.Host.
func (r *run) FuelLeft() int64 {
	if r.meter.limit == 0 {
		return math.MaxInt64
	}
	return max(0, r.meter.limit-r.meter.spent())
}

// Log implements abi.Host.
func (r *run) Log(line string) {
	r.logged(len(line), func() error { return r.logs.say(line) })
}

// Progress implements abi.Host.
func (r *run) Progress(fraction float64, message string) {
	r.logged(len(message), func() error { return r.logs.report(fraction, []byte(message)) })
}

// Reveal implements abi.Host.
func (r *run) Reveal(name string, value []byte) {
	if r.secrets.Add(name, value) {
		r.Spend(len(value) * revealPrice)
	}
}

// Do implements abi.Host. f ends soon after the call's context, or at its deadline.
func (r *run) Do(f func(ctx context.Context)) {
	r.Spend(waitPrice)
	ctx := r.ctx
	if !r.deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, r.deadline)
		defer cancel()
	}
	r.wait(func() { f(ctx) })
}

// maxRefusedCalls is of how many refusals a task's log tells.
const maxRefusedCalls = 10

// Refused implements abi.Host. The same is told once.
func (r *run) Refused(function string, err error) {
	words := err.Error()
	r.Spend(len(words) * secretPrice)
	text := r.secrets.Text([]byte(words)) // the guest's own words may be in it
	if len(text) > maxHeadline {
		text = prefix(text, maxHeadline) + "…"
	}
	if slices.Contains(r.refusals, function+text) || len(r.refusals) == maxRefusedCalls {
		return
	}
	r.refusals = append(r.refusals, function+text)
	if r.denied != nil {
		r.denied(function, text)
	}
	if errors.Is(err, service.ErrUnavailable) && function != "http" { // the host's own addresses and paths may be in it
		text = service.ErrUnavailable.Error() + ": the host's log says more"
	}
	r.Log(abi.ModuleName + "." + function + ": " + text)
}

// Fail implements abi.Host.
func (r *run) Fail(err error) { r.end(&faultError{err}) }

// Cancelled implements abi.Host. The end of the caller's context ends the guest; this is what comes before it.
func (r *run) Cancelled() bool {
	select {
	case <-r.ending:
		return true
	default:
		return false
	}
}
