package runtime

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/quern-project/quern/runtime/abi"
)

// maxWarm bounds the timeout of a warm call.
const maxWarm = time.Minute

// join adds the call c to the build in progress; if there is none, it starts one. The caller holds p.mu.
func (p *Pool) join(c *Call) *snapshotBuild {
	b := p.build
	if b == nil {
		ctx, cancel := context.WithCancelCause(context.Background())
		b = &snapshotBuild{done: make(chan struct{}), cancel: cancel}
		p.build = b
		start := &Call{Plugin: c.Plugin, Denied: c.Denied}
		p.module.builds.Go(func() { p.runBuild(ctx, b, start) })
	}
	b.waiters++
	return b
}

// runBuild builds the snapshot, and keeps the instance from which the snapshot was taken for the next call.
func (p *Pool) runBuild(ctx context.Context, b *snapshotBuild, start *Call) {
	i, s, failed := p.buildSnapshot(ctx, start)
	b.cancel(nil)
	p.mu.Lock()
	b.failed = failed
	wanted := p.build == b
	if wanted {
		p.build, p.snapshot = nil, s
		if i != nil {
			p.idle = append(p.idle, i)
		}
	}
	p.used = time.Now()
	last := p.closed && p.busy == 0
	p.mu.Unlock()
	if !wanted { // the build was abandoned, but completed nevertheless
		p.discard(i)
		p.remove(s)
	}
	if last {
		p.shrink(0)
	}
	close(b.done)
}

// await waits for the end of a build that the call has joined. It returns nil if there is a snapshot, else the call's
// outcome: the build has failed, or the call ended first.
func (p *Pool) await(ctx context.Context, c *Call, begun time.Time, b *snapshotBuild) *Outcome {
	ctx, cancel := p.bounded(ctx, c, begun)
	defer cancel()
	select {
	case <-b.done:
		return p.failure(b)
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	b.left = time.Now()
	if b.waiters--; b.waiters == 0 && p.closed {
		b.cancel(errPoolClosed)
	}
	outcome := causeOutcome(context.Cause(ctx), location{})
	if p.module.info.Kind != Command {
		outcome = startOutcome(outcome)
	}
	return &outcome
}

// failure returns the outcome of a call that waited for a failed build, or nil if the build has succeeded. Only the
// first of the waiting calls is charged for the fuel and processor time of the build.
func (p *Pool) failure(b *snapshotBuild) *Outcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b.failed == nil {
		return nil
	}
	outcome := *b.failed
	b.failed.Fuel, b.failed.CPU = 0, 0
	return &outcome
}

// buildSnapshot makes the first instance of the pool, and its snapshot.
func (p *Pool) buildSnapshot(ctx context.Context, start *Call) (*instance, *guestSnapshot, *Outcome) {
	i, failed := p.start(ctx, start, time.Now())
	if failed != nil {
		return nil, nil, failed
	}
	warms := p.profile.Warm != nil && p.entry != startExport
	s, err := i.capture(!warms)
	if err == nil && warms {
		var warm *guestSnapshot
		if warm, err = p.warm(ctx, start, i); warm != nil || err != nil {
			s, err = warm, errors.Join(err, s.close())
		}
	}
	if err == nil {
		return i, s, nil
	}
	p.discard(i)
	return nil, nil, errorOutcome(ctx, err)
}

// start makes an instance and runs a handler's startup in it. The startup has its own run and limits. start returns the
// instance, or the outcome if the startup failed.
func (p *Pool) start(ctx context.Context, start *Call, begun time.Time) (*instance, *Outcome) {
	if p.profile.Tape != nil {
		start.Tape = p.profile.Tape()
	}
	if ended := p.hold(ctx, start, begun); ended != nil {
		return nil, ended
	}
	gate := p.module.host.gate
	gate.enter(&gate.first)
	now := time.Now()
	r := p.newRun(ctx, start, p.startLimits(start), p.environment(start), abi.Initializing, now)
	i, _, err := p.invoke(r, start, nil, now, (*instance).callStartup)
	gate.leave()
	if err != nil || r.cause != nil {
		outcome := r.finish(err)
		p.discard(i)
		return nil, &outcome
	}
	i.tape = start.Tape
	if p.module.perTask {
		i.startFuel, i.startCPU = r.meter.burned, r.meter.cpu
	}
	return i, nil
}

// warm makes the warm call, and returns a snapshot of the instance after it. If the call needs a task or does not
// complete, warm resets the instance and returns nil. An error is the host's, or the end of ctx.
func (p *Pool) warm(ctx context.Context, start *Call, i *instance) (*guestSnapshot, error) {
	c := *start
	c.Input = p.profile.Warm
	limits := p.limits
	limits.Timeout = min(cmp.Or(limits.Timeout, maxWarm), maxWarm)
	gate := p.module.host.gate
	gate.enter(&gate.first)
	now := time.Now()
	r := p.newRun(ctx, &c, limits, p.granted, abi.Warming, now)
	_, _, err := p.invoke(r, &c, i, now, (*instance).callEntry)
	gate.leave()
	outcome := r.finish(err)
	logger := p.module.host.logger.With("plugin", c.Plugin, "tenant", p.profile.Tenant, "digest", p.module.info.Digest)
	switch function := r.abi.Misused(); {
	case outcome.Kind == HostFault, outcome.Kind == Cancelled:
		return nil, outcome.Err
	case function != "":
		logger.Warn("no warm snapshot: the warm call needs a task", "function", function)
	case outcome.Kind != Complete:
		logger.Warn("no warm snapshot: the warm call failed", "outcome", outcome.Kind, "error", brief(outcome.Message))
	default:
		return i.capture(true)
	}
	return nil, i.reset(p.resetMode)
}
