package runtime

import (
	"context"
	"errors"
	"time"

	"github.com/quern-project/quern/runtime/abi"
	"github.com/quern-project/quern/runtime/service"
)

const (
	// unwanted is how long the making of an image goes on while nobody waits for it: calls with a short timeout
	// do not keep it from ever coming to its end.
	unwanted = 10 * time.Second
	// maxWarm bounds a warm call whose manifest bounds none.
	maxWarm = 10 * time.Second
)

// errUnwanted ends a making that nobody waits for, errRetired one of a pool that takes no calls any more.
var (
	errUnwanted = errors.New("nobody waits for the handler's start any more")
	errRetired  = errors.New("the plugin is gone")
)

// making is the making of a pool's image, which is nobody's call: it has the limits of one of its own, and whoever
// needs the image waits for it no longer than his own call may take.
type making struct {
	done   chan struct{} // closed when it has ended
	cancel context.CancelCauseFunc

	// Guarded by the pool's mu.
	waiters int
	giveUp  *time.Timer // while there are none
	failed  *Outcome    // nil if there is an image, or it has not ended
	billed  bool        // somebody has what a failed one has burned on his account
}

// start is the call in which the guest begins: it has no task.
func (c *Call) start(timeout time.Duration) *Call {
	return &Call{
		Tenant: c.Tenant, Plugin: c.Plugin, Env: c.Env, Files: c.Files, Warm: c.Warm, Limits: c.Limits, Timeout: timeout,
		Services: service.Services{Config: c.Services.Config}, Denied: c.Denied,
	}
}

// join begins the making of the image, or joins those who wait for it. The caller holds mu.
func (p *pool) join(c *Call) *making {
	k := p.making
	if k == nil {
		ctx, cancel := context.WithCancelCause(context.Background())
		k = &making{done: make(chan struct{}), cancel: cancel}
		p.making = k
		p.busy++
		start := c.start(0)
		p.module.makings.Go(func() {
			defer cancel(nil)
			p.begin(ctx, k, start)
		})
	}
	if k.giveUp != nil {
		k.giveUp.Stop()
		k.giveUp = nil
	}
	k.waiters++
	return k
}

// begin makes the image, and leaves the instance that it was taken of to the first who takes it.
func (p *pool) begin(ctx context.Context, k *making, start *Call) {
	i, img, failed := p.first(ctx, start)
	p.mu.Lock()
	k.failed = failed
	wanted := p.making == k
	if wanted {
		p.making, p.image = nil, img
		if i != nil {
			p.idle = append(p.idle, i)
		}
	}
	if k.giveUp != nil {
		k.giveUp.Stop()
	}
	p.mu.Unlock()
	if !wanted { // it was given up, and has come to its end all the same
		p.discard(i)
		p.remove(img)
	}
	p.ended(time.Now())
	close(k.done)
}

// giveUp ends a making for which nobody waits. Who comes now begins another one.
func (p *pool) giveUp(k *making) {
	p.mu.Lock()
	unwanted := p.making == k && k.waiters == 0
	if unwanted {
		p.making = nil
	}
	p.mu.Unlock()
	if unwanted {
		k.cancel(errUnwanted)
	}
}

// wait waits until the making has ended, and returns what ends the call before that, or with it.
func (p *pool) wait(ctx context.Context, c *Call, limits Limits, begun time.Time, k *making) *Outcome {
	var late <-chan time.Time
	if limits.Timeout > 0 {
		timer := time.NewTimer(time.Until(begun.Add(limits.Timeout)))
		defer timer.Stop()
		late = timer.C
	}
	var outcome Outcome
	select {
	case <-k.done:
		return p.failure(k)
	case <-ctx.Done():
		outcome = cancelledOutcome(context.Cause(ctx))
	case <-late:
		outcome = unbegun(p.module.info.Kind, limitOutcome(timeoutExceeded(limits.Timeout, c.Timeout > 0)))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if k.waiters--; k.waiters == 0 && p.making == k {
		k.giveUp = time.AfterFunc(unwanted, func() { p.giveUp(k) })
	}
	return &outcome
}

// failure is the outcome for one of those who have waited; nil if there is an image. The first one's account has
// what was burned.
func (p *pool) failure(k *making) *Outcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k.failed == nil {
		return nil
	}
	outcome := *k.failed
	if k.billed {
		outcome.Fuel, outcome.CPU = 0, 0
	}
	k.billed = true
	return &outcome
}

// first makes the image of the pool, and the instance that it is taken of.
func (p *pool) first(ctx context.Context, start *Call) (*instance, *image, *Outcome) {
	i, failed := p.fresh(ctx, start, time.Now())
	if failed != nil {
		return nil, nil, failed
	}
	img, err := i.capture()
	if err == nil && start.Warm != nil && p.module.info.Kind == Handler {
		img, err = p.warm(ctx, start, i, img)
	}
	if err == nil {
		return i, img, nil
	}
	p.discard(i)
	outcome := faultOutcome(err)
	if ctx.Err() != nil {
		outcome = cancelledOutcome(context.Cause(ctx))
	}
	return nil, nil, &outcome
}

// warm runs a call without a task in the instance, and makes its image one of what that leaves. If the guest
// does not come to its end, the image stays the cold one. It returns that which holds; an error is the host's, or
// the end of the context.
func (p *pool) warm(ctx context.Context, start *Call, i *instance, cold *image) (*image, error) {
	c := *start
	c.Input = c.Warm
	limits := c.limits()
	if limits.Timeout == 0 {
		limits.Timeout, c.Limits.Timeout = maxWarm, maxWarm
	}
	now := time.Now()
	r := p.module.newRun(ctx, &c, limits, c.environment(Handler), abi.Warming, now)
	r.meter.start(now)
	r.enter(i)
	code, err := i.callEntry(Handler)
	if err == nil {
		r.code = code
	}
	r.leave(i)
	r.meter.stop()
	outcome := r.finish(err)
	logger := p.module.engine.logger.With("plugin", c.Plugin, "tenant", c.Tenant, "digest", p.module.info.Digest)
	switch refused := r.abi.Misused(); {
	case outcome.Kind == HostFault, outcome.Kind == Cancelled:
		return nil, errors.Join(outcome.Err, cold.close())
	case refused != "":
		logger.Warn("the image stays cold: the warm call needs a task", "function", refused)
	case outcome.Kind != Complete:
		logger.Warn("the image stays cold: the warm call failed", "outcome", outcome.Kind, "error", outcome.Message)
	default:
		hot, err := i.capture()
		if err != nil {
			return nil, errors.Join(err, cold.close())
		}
		return hot, cold.close()
	}
	if err := i.reset(p.resetMode); err != nil {
		return nil, errors.Join(err, cold.close())
	}
	return cold, nil
}
