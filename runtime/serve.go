package runtime

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/quern-project/quern/runtime/abi"
)

// Run runs a call in an instance without a trace of any other call, and returns how the call ended. It is safe for
// concurrent use and never panics. It returns when the guest has stopped. Whatever the guest does, it stops some ten
// thousand instructions after ctx has ended.
func (p *Pool) Run(ctx context.Context, c Call) Outcome {
	return p.run(ctx, &c, p.limitsOf(&c))
}

func (p *Pool) run(ctx context.Context, c *Call, limits Limits) Outcome {
	m, environment := p.module, p.environment(c)
	switch {
	case int64(len(c.Input)) > limits.Input:
		return InputExceeded(limits, int64(len(c.Input)))
	case m.info.MemoryMin > limits.Memory:
		return limitOutcome(limits.Remedies.memoryExceeded(limits.Memory, 0), location{}, "")
	case slices.ContainsFunc(environment, func(v string) bool { return strings.ContainsRune(v, 0) }):
		return faultOutcome(errors.New("an environment variable contains a zero byte"))
	case ctx.Err() != nil:
		return causeOutcome(context.Cause(ctx), location{})
	}
	begun := time.Now()
	m.touch(begun)
	i, started, ended := p.acquire(ctx, c, begun)
	if ended != nil {
		return *ended
	}
	r := p.newRun(ctx, c, limits, environment, abi.Running, started)
	if r.meter.until = c.Until; c.Until > 0 && i != nil {
		r.meter.until = max(1, c.Until-i.startFuel)
	}
	i, stopped, err := p.invoke(r, c, i, started, (*instance).callTask)
	m.touch(stopped)
	outcome := r.finish(err)
	if i != nil {
		c.Tape.Started(i.tape.Events(), !i.tape.Over())
		outcome.Fuel += i.startFuel
		outcome.CPU += i.startCPU
	}
	outcome.WaitTime = r.waited
	outcome.GuestTime = stopped.Sub(started) - r.waited
	*r = run{}
	runs.Put(r)
	p.release(i, outcome.Kind != HostFault, outcome.CPU, stopped)
	return outcome
}

// acquire adds the call to busy, and gets a place at the gate and an idle instance for the call. If no instance is
// idle, i is nil: acquire takes a hold of the code, and the call makes an instance with it. In mode ResetNew, acquire
// makes and starts a new instance for a handler. The place comes before the idle instance, so that the instance has run
// just now and its memory is in the processor's caches. started is the time after all waiting. If the call ends before
// it can start, ended is its outcome, and acquire holds nothing.
func (p *Pool) acquire(ctx context.Context, c *Call, begun time.Time) (i *instance, started time.Time, ended *Outcome) {
	if started, ended = p.begin(ctx, c, begun); ended == nil && p.resetMode == ResetNew && p.module.info.Kind != Command {
		i, ended = p.start(ctx, &Call{Plugin: c.Plugin, Denied: c.Denied, Timeout: c.Timeout}, begun)
		started = time.Now()
	}
	if ended != nil {
		p.end(time.Now())
		return nil, started, ended
	}
	gate := p.module.host.gate
	if gate.enter(&gate.first) {
		started = time.Now()
	}
	if i == nil {
		p.mu.Lock()
		if last := len(p.idle) - 1; last >= 0 { // the instance that ran last
			i, p.idle = p.idle[last], p.idle[:last]
		}
		p.mu.Unlock()
	}
	if i != nil || p.module.code.TryHold() {
		return i, started, nil
	}
	gate.leave() // the code has to be loaded
	if ended = p.hold(ctx, c, begun); ended != nil {
		p.end(time.Now())
		return nil, started, ended
	}
	gate.enter(&gate.first)
	return nil, time.Now(), nil
}

// begin adds the call to busy, and waits for the pool's snapshot if the pool needs one. started is the time after that.
// If the call ends before that, ended is its outcome.
func (p *Pool) begin(ctx context.Context, c *Call, begun time.Time) (started time.Time, ended *Outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy++
	p.peak = max(p.peak, p.busy)
	if p.closed {
		outcome := faultOutcome(errPoolClosed)
		return begun, &outcome
	}
	if !p.registered {
		p.registered = true
		p.module.mu.Lock()
		p.module.pools[p] = struct{}{}
		p.module.mu.Unlock()
	}
	started = begun
	for p.snapshot == nil && p.resetMode != ResetNew && ended == nil {
		b := p.join(c)
		p.mu.Unlock()
		ended = p.await(ctx, c, begun, b)
		started = time.Now()
		p.mu.Lock()
	}
	return started, ended
}
