package runtime

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"sync"
	"time"

	"github.com/quern-project/quern/runtime/abi"
	"github.com/quern-project/quern/runtime/redact"
	"github.com/quern-project/quern/runtime/replay"
	"github.com/quern-project/quern/runtime/wasi"
)

// run is the host's state of one call. It belongs to the goroutine of the call.
type run struct {
	ctx      context.Context //nolint:containedctx // the caller's
	module   *Module
	stage    abi.Stage
	limits   Limits
	instance *instance // nil before there is one
	stack    int64     // bytes of the guest's call stack that are counted in host.stacks
	output   output
	secrets  *redact.Secrets // the secrets that the guest has read: Call.Secrets, or else own
	own      redact.Secrets
	logs     logs
	paced    time.Time // when the guest would have logged its lines at the rate maxLines
	meter    meter
	wasi     wasi.System
	abi      abi.System // not initialized for a command

	done        <-chan struct{} // ctx.Done()
	tape        *replay.Tape    // Call.Tape
	taskTimeout time.Duration   // Call.Timeout
	deadline    time.Time       // zero for none
	waited      time.Duration   // total time of waits

	denied  func(function, reason string) // Call.Denied
	denials []string                      // function and reason of each denial so far, at most maxDenials
	reports []string                      // what the log says of them

	result  [1]uint64 // result of the guest's entry point
	cause   error     // why the host has ended the guest
	exited  bool      // the guest has ended itself
	code    int       // exit code, or the result of the entry point
	asking  bool      // askWhere runs: host functions end the guest
	where   []string  // the frames of the user's code where the guest was stopped: see askWhere
	orAfter bool      // where is of some time before the guest was stopped
	ticking bool      // the guest calls tick, which may end it
}

// runs holds zeroed runs of ended calls for reuse. Allocating a run takes longer than a short call, and costs much of
// the garbage collector's time.
var runs sync.Pool

// output collects a guest's output up to the limit.
type output struct {
	limit    int64
	bytes    []byte
	reserved int64 // bytes of limit that Reserve has taken
	refused  int64 // the size for which there was no room, with what is there already; 0: there was always room
}

// add adds p if there is room for it, and reports whether there was.
func (o *output) add(p []byte) bool {
	if !o.has(len(p)) {
		return false
	}
	o.bytes = append(o.bytes, p...)
	return true
}

// has reports whether there is room for n more bytes. If there is not, it notes the size in refused.
func (o *output) has(n int) bool {
	size := int64(len(o.bytes)) + o.reserved + int64(n)
	if size > o.limit {
		o.refused = max(o.refused, size)
	}
	return size <= o.limit
}

// unwound is the panic by which a host function ends a guest. wazero recovers it and returns it from the call.
type unwound struct{}

func (unwound) Error() string { return "the host has ended the guest" }

// end ends the guest. The first cause wins.
func (r *run) end(cause error) {
	r.blame(cause)
	panic(unwound{})
}

// blame records the cause of the outcome, unless a cause is recorded already.
func (r *run) blame(cause error) {
	if r.cause == nil {
		r.cause = cause
	}
}

// guard ends the guest with a faultError if p is a panic of host code, which wazero would recover otherwise. If p is
// the panic unwound, guard passes it on.
func (r *run) guard(p any) {
	if p == nil {
		return
	}
	if err, ok := p.(error); ok && errors.Is(err, unwound{}) { // a kernel's call may have wrapped it
		panic(unwound{})
	}
	r.end(&faultError{fmt.Errorf("panic in a host function: %v\n%s", p, debug.Stack())})
}

// check ends the guest if the call's context has ended, its deadline has passed, or it was to be stopped at this fuel.
func (r *run) check(now time.Time) {
	select {
	case <-r.done:
		r.end(context.Cause(r.ctx))
	default:
	}
	if r.meter.until > 0 && r.meter.spent() >= r.meter.until {
		r.end(replay.ErrStopped)
	}
	if !r.deadline.IsZero() && !now.Before(r.deadline) {
		r.end(r.limits.Remedies.timeoutExceeded(r.limits.Timeout, r.taskTimeout))
	}
}

// tick accounts for a quantum, and lets other guests compute at the end of a slice. It returns the counter's next
// value.
func (r *run) tick(counter int32) int32 {
	if !r.meter.count(counter) {
		r.end(r.limits.Remedies.exceeded("cpu", formatDuration(r.limits.CPU), "cpu limit of %s exceeded"))
	}
	now := time.Now()
	r.check(now)
	switch taken := now.Sub(r.meter.began); {
	case taken >= slice:
		size := int64(stackOf(r.instance.running))
		r.module.host.stacks.Add(size - r.stack)
		r.stack = size
		r.meter.yield()
	case taken >= short:
		r.meter.read(now)
	}
	return r.meter.refill()
}

// Spend implements wasi.Host.
func (r *run) Spend(bytes int) {
	left := int64(int32(r.meter.counter.Get())) - int64(bytes)
	counter := int32(max(left, math.MinInt32/2)) // no call moves that many bytes at once
	r.meter.counter.Set(uint64(uint32(counter)))
	if counter < 0 {
		r.meter.counter.Set(uint64(uint32(r.tick(counter))))
	}
}

// Wait implements wasi.Host. The wait also ends at the end of the call's context and at its deadline.
func (r *run) Wait(d time.Duration) {
	if d <= 0 {
		return // yielding does not end a guest's turn
	}
	r.Spend(waitPrice)
	if r.tape.Playing() {
		r.check(time.Now())
		return
	}
	if !r.deadline.IsZero() {
		d = min(d, time.Until(r.deadline))
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

// wait calls f, which can take long, and lets other guests compute meanwhile.
func (r *run) wait(f func()) {
	begun := r.meter.pause()
	var ended time.Time
	func() {
		defer func() {
			ended = r.meter.resume()
			r.waited += ended.Sub(begun)
		}()
		f()
	}()
	r.check(ended) // the deadline may have passed while the guest waited for a place at the gate
}

const (
	// maxBatch is the maximum number of bytes that a guest logs between two checks of its time.
	maxBatch = 512
	// maxLines is the maximum number of lines that a task logs a second, and burst the maximum number at once.
	maxLines = 10_000
	burst    = 1_000
)

// log logs the bytes p that the guest has written to a stream.
func (r *run) log(s *stream, p []byte) {
	for len(p) > 0 {
		batch := p[:min(len(p), maxBatch)]
		p = p[len(batch):]
		r.logged(len(batch), func() { r.logs.write(s, batch) })
	}
}

// logged calls the function log, which logs size bytes of the guest, and charges the guest for them. A guest that logs
// too many lines a second has to wait, since lines are never dropped.
func (r *run) logged(size int, log func()) {
	before := r.logs.lines
	log()
	if r.secrets.Any() {
		r.logs.owed += size * secretPrice
	}
	owed := r.logs.owed
	r.logs.owed = 0
	r.Spend(owed)
	if r.logs.wrong != nil {
		r.end(r.logs.wrong)
	}
	if lines := r.logs.lines - before; lines > 0 {
		const each = time.Second / maxLines
		now := time.Now()
		if r.paced.Before(now) {
			r.paced = now
		}
		r.paced = r.paced.Add(time.Duration(lines) * each)
		if ahead := r.paced.Sub(now); r.tape.Paced(ahead > burst*each) {
			r.Wait(max(ahead/2, 1)) // one long wait instead of many short ones, since each wait has its price
		}
	}
}
