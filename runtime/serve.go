package runtime

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/quern-project/quern/runtime/abi"
	"github.com/quern-project/quern/runtime/wasm"
)

// Run runs one call in an instance of its own, which is made for it and closed after it.
func (m *Module) Run(ctx context.Context, profile Profile, c Call) Outcome {
	p := m.newPool(profile, ResetNew)
	p.registered = true // nothing of it is counted or trimmed
	return p.Run(ctx, c)
}

// Run runs a call in an instance without a trace of any other call, and returns how it ended. It is safe for concurrent use,
// never panics, and returns when the guest has stopped: some ten thousand instructions after ctx has ended, whatever the
// guest does.
func (p *Pool) Run(ctx context.Context, c Call) Outcome {
	return p.run(ctx, &c, p.limitsOf(&c))
}

func (p *Pool) run(ctx context.Context, c *Call, limits Limits) Outcome {
	m, environment := p.module, p.environment(c)
	switch {
	case int64(len(c.Input)) > limits.Input:
		return InputExceeded(limits, int64(len(c.Input)))
	case m.info.MemoryMin > limits.Memory:
		return limitOutcome(memoryExceeded(limits.Memory))
	case slices.ContainsFunc(environment, func(v string) bool { return strings.ContainsRune(v, 0) }):
		return faultOutcome(errors.New("an environment variable contains a zero byte"))
	case ctx.Err() != nil:
		return cancelledOutcome(context.Cause(ctx))
	}
	begun := time.Now()
	m.touch(begun)
	i, started, ended := p.take(ctx, c, begun)
	if ended != nil {
		p.leave(time.Now())
		return *ended
	}
	r := p.newRun(ctx, c, limits, environment, abi.Running, begun)
	r.meter.start(started)
	i, err := p.call(r, i)
	stopped := r.meter.stop()
	m.touch(stopped)
	outcome := r.finish(err)
	if i != nil {
		outcome.Fuel += i.startup.fuel
		outcome.CPU += i.startup.cpu
	}
	outcome.WaitTime = r.waited
	outcome.GuestTime = stopped.Sub(started) - r.waited
	*r = run{}
	runs.Put(r)
	p.give(i, outcome.Kind != HostFault, stopped)
	return outcome
}

// take counts the call in, and returns an idle instance, or nil if the call has to make one, for which the code is held
// then. started is the time after all waiting. What ends the call before that is its outcome.
func (p *Pool) take(ctx context.Context, c *Call, begun time.Time) (i *instance, started time.Time, ended *Outcome) {
	started = begun
	p.mu.Lock()
	p.busy++
	p.peak = max(p.peak, p.busy)
	if p.closed {
		p.mu.Unlock()
		outcome := faultOutcome(errPoolClosed)
		return nil, started, &outcome
	}
	if !p.registered {
		p.register()
	}
	for p.snapshot == nil && p.resetMode != ResetNew {
		b := p.join(c)
		p.mu.Unlock()
		if ended = p.await(ctx, c, begun, b); ended != nil {
			return nil, started, ended
		}
		started = time.Now()
		p.mu.Lock()
	}
	if last := len(p.idle) - 1; last >= 0 {
		i = p.idle[last]
		p.idle = p.idle[:last]
		p.mu.Unlock()
		return i, started, nil
	}
	p.mu.Unlock()
	if p.resetMode == ResetNew && p.module.info.Kind == Handler {
		i, ended = p.start(ctx, &Call{Plugin: c.Plugin, Denied: c.Denied, Timeout: c.Timeout}, begun)
	} else {
		ended = p.hold(ctx, c, begun)
	}
	return i, time.Now(), ended
}

// call runs the guest in an instance; if that is nil, in a new one. It returns the instance, nil if none could be made. When
// it returns, nothing of the guest runs, and nothing reads its memory.
func (p *Pool) call(r *run, i *instance) (*instance, error) {
	m := p.module
	if i == nil {
		var err error
		if i, err = p.newInstance(); err != nil {
			return nil, err
		}
		if m.perTask {
			r.meter.burned += m.price
		}
	}
	r.enter(i)
	defer r.leave(i)
	i.calls++
	if m.info.Kind == Command && m.start {
		if err := i.callExport(wasm.StartExport); err != nil {
			return i, err
		}
	}
	code, err := i.callEntry(m.info.Kind)
	if err == nil {
		r.code = code
	}
	return i, err
}
