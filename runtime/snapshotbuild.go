package runtime

import (
	"context"
	"errors"
	"time"

	"github.com/quern-project/quern/runtime/abi"
)

const (
	// abandonAfter is how long a build continues without a waiting call: calls with short timeouts must not keep it from
	// ever ending.
	abandonAfter = 10 * time.Second
	// maxWarm bounds a warm call whose profile has no timeout.
	maxWarm = 10 * time.Second
)

// errAbandoned cancels a build that no call waits for.
var errAbandoned = errors.New("no call waits for the handler's start")

// join starts a build for a call, or joins the one under way. The caller holds mu.
func (p *Pool) join(c *Call) *snapshotBuild {
	b := p.build
	if b == nil {
		ctx, cancel := context.WithCancelCause(context.Background())
		b = &snapshotBuild{done: make(chan struct{}), cancel: cancel}
		p.build = b
		start := &Call{Plugin: c.Plugin, Denied: c.Denied}
		p.module.builds.Go(func() {
			defer cancel(nil)
			p.runBuild(ctx, b, start)
		})
	}
	if b.abandon != nil {
		b.abandon.Stop()
		b.abandon = nil
	}
	b.waiters++
	return b
}

// runBuild builds the snapshot, and leaves the instance behind it to the next call.
func (p *Pool) runBuild(ctx context.Context, b *snapshotBuild, start *Call) {
	i, s, failed := p.buildSnapshot(ctx, start)
	p.mu.Lock()
	b.failed = failed
	wanted := p.build == b
	if wanted {
		p.build = nil
	}
	if wanted && i != nil {
		p.snapshot, p.idle = s, append(p.idle, i)
	}
	if b.abandon != nil {
		b.abandon.Stop()
	}
	p.used = time.Now()
	last := p.closed && p.busy == 0
	p.mu.Unlock()
	if !wanted { // it was abandoned, and completed all the same
		p.discard(i)
		p.remove(s)
	}
	if last {
		p.shrink(0)
	}
	close(b.done)
}

// abandonBuild cancels a build that no call waits for. The next call starts another one.
func (p *Pool) abandonBuild(b *snapshotBuild) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.build == b && b.waiters == 0 {
		p.build = nil
		b.cancel(errAbandoned)
	}
}

// await waits for the end of a build that the call has joined, and returns what ends the call before that, or with it.
func (p *Pool) await(ctx context.Context, c *Call, begun time.Time, b *snapshotBuild) *Outcome {
	var late <-chan time.Time
	timeout := p.limitsOf(c).Timeout
	if timeout > 0 {
		timer := time.NewTimer(time.Until(begun.Add(timeout)))
		defer timer.Stop()
		late = timer.C
	}
	var outcome Outcome
	select {
	case <-b.done:
		return p.failure(b)
	case <-ctx.Done():
		outcome = cancelledOutcome(context.Cause(ctx))
	case <-late:
		outcome = startOutcome(p.module.info.Kind, limitOutcome(timeoutExceeded(timeout, c.Timeout > 0)))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if b.waiters--; b.waiters == 0 && p.build == b {
		b.abandon = time.AfterFunc(abandonAfter, func() { p.abandonBuild(b) })
	}
	return &outcome
}

// failure is the outcome of a call that waited for a failed build; nil if there is a snapshot. The first one is charged with
// what the build burned.
func (p *Pool) failure(b *snapshotBuild) *Outcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	if b.failed == nil {
		return nil
	}
	outcome := *b.failed
	if b.charged {
		outcome.Fuel, outcome.CPU = 0, 0
	}
	b.charged = true
	return &outcome
}

// buildSnapshot makes the first instance of the pool, and its snapshot.
func (p *Pool) buildSnapshot(ctx context.Context, start *Call) (*instance, *guestSnapshot, *Outcome) {
	i, failed := p.start(ctx, start, time.Now())
	if failed != nil {
		return nil, nil, failed
	}
	s, err := i.capture()
	if err == nil && p.profile.Warm != nil && p.module.info.Kind == Handler {
		s, err = p.warm(ctx, start, i, s)
	}
	if err == nil {
		return i, s, nil
	}
	p.discard(i)
	outcome := faultOutcome(err)
	if ctx.Err() != nil {
		outcome = cancelledOutcome(context.Cause(ctx))
	}
	return nil, nil, &outcome
}

// start makes an instance and runs what a handler runs before its first task, within the limits of a call of its own. If that
// fails, the outcome says why.
func (p *Pool) start(ctx context.Context, start *Call, begun time.Time) (*instance, *Outcome) {
	m := p.module
	if ended := p.hold(ctx, start, begun); ended != nil {
		return nil, ended
	}
	r := p.newRun(ctx, start, p.limitsOf(start), p.environment(start), abi.Initializing, begun)
	if m.perTask {
		r.meter.burned = m.price
	}
	r.meter.start(time.Now())
	i, err := m.instantiate(p.limits.Memory)
	if err == nil {
		r.enter(i)
		err = r.callStartup(i)
		r.leave(i)
	}
	r.meter.stop()
	if err != nil || r.cause != nil {
		outcome := r.finish(err)
		p.discard(i)
		return nil, &outcome
	}
	if m.perTask {
		i.startup = startCost{r.meter.burned, r.meter.cpu}
	}
	return i, nil
}

// warm makes the warm call in the instance, and returns the snapshot that holds then: one of what the call has left, or if
// the guest did not complete, the cold one. An error is the host's, or the end of the context.
func (p *Pool) warm(ctx context.Context, start *Call, i *instance, cold *guestSnapshot) (*guestSnapshot, error) {
	c := *start
	c.Input = p.profile.Warm
	limits := p.limits
	if limits.Timeout == 0 {
		limits.Timeout = maxWarm
	}
	now := time.Now()
	r := p.newRun(ctx, &c, limits, p.granted, abi.Warming, now)
	r.meter.start(now)
	r.enter(i)
	code, err := i.callEntry(Handler)
	if err == nil {
		r.code = code
	}
	r.leave(i)
	r.meter.stop()
	outcome := r.finish(err)
	logger := p.module.host.logger.With("plugin", c.Plugin, "tenant", p.profile.Tenant, "digest", p.module.info.Digest)
	switch function := r.abi.Misused(); {
	case outcome.Kind == HostFault, outcome.Kind == Cancelled:
		return nil, errors.Join(outcome.Err, cold.close())
	case function != "":
		logger.Warn("no warm snapshot: the warm call needs a task", "function", function)
	case outcome.Kind != Complete:
		logger.Warn("no warm snapshot: the warm call failed", "outcome", outcome.Kind, "error", outcome.Message)
	default:
		warm, err := i.capture()
		if err != nil {
			return nil, errors.Join(err, cold.close())
		}
		return warm, cold.close()
	}
	if err := i.reset(p.resetMode); err != nil {
		return nil, errors.Join(err, cold.close())
	}
	return cold, nil
}
