package runtime

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/quern-project/quern/runtime/abi"
)

// maxCalls is how many calls an instance serves before another takes its place: what wazero may gather for one
// ends with it.
const maxCalls = 10_000

// poolKey says whose instances those of a pool are. Nothing but code is shared wider.
type poolKey struct {
	pool, tenant string
	memory       int64
}

// pool is the image and the instances of a module for one tenant under one manifest. It grows with the calls that
// run at once; Engine.tidy takes back what is not used any more.
//
//	take ──▶ an idle instance ─────────────────────────────┐
//	  ├────▶ nil: call makes one from the image ───────────┤
//	  └────▶ no image yet: wait for its making, once more  │
//	                                                       ▼
//	give ◀── reset, or closed if that fails ◀── judge ◀── call of the guest
type pool struct {
	module    *Module
	key       poolKey
	resetMode ResetMode

	mu      sync.Mutex
	image   *image
	making  *making     // of the image; nil if it is not under way
	idle    []*instance // the last one was used last
	busy    int
	peak    int // of busy, since the last tidy
	before  int // peak until then
	retired bool
	used    time.Time // when the last call ended, or the pool was made
}

// take takes an instance for a call that has begun from its pool: see pool.take. It tells when it had it.
func (m *Module) take(ctx context.Context, c *Call, limits Limits, begun time.Time) (*pool, *instance, *Outcome, time.Time) {
	for {
		p := m.pool(c, limits)
		i, ended, at := p.take(ctx, c, limits, begun)
		if !at.IsZero() {
			return p, i, ended, at
		}
		m.forget(p)
	}
}

// pool finds the pool of a call, or makes it.
func (m *Module) pool(c *Call, limits Limits) *pool {
	if c.Pool == "" {
		return &pool{module: m, key: poolKey{memory: limits.Memory}, resetMode: ResetNew}
	}
	key := poolKey{c.Pool, c.Tenant, limits.Memory}
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.pools[key]
	if p == nil {
		p = &pool{module: m, key: key, resetMode: m.info.ResetMode, used: time.Now()}
		m.pools[key] = p
	}
	return p
}

// Coming is how many bytes at most the image of a pool will take that is not there yet, with the one that it is warmed
// from; 0 if there is one, or there will be none.
func (m *Module) Coming(pool, tenant string, limits Limits, warm bool) int64 {
	if m.info.ResetMode == ResetNew {
		return 0
	}
	memory := limits.WithDefaults().Memory
	m.mu.Lock()
	p := m.pools[poolKey{pool, tenant, memory}]
	m.mu.Unlock()
	if p != nil && p.ready() {
		return 0
	}
	if warm {
		return 2 * memory
	}
	return memory
}

// ready tells whether there is an image.
func (p *pool) ready() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.image != nil
}

// take returns an idle instance, or nil if one is to be made from the image, for which the code is held then; and when
// it had it. What ends the call before that is its outcome. Else give has to be called. A pool that was retired takes
// nothing: then the time is zero.
func (p *pool) take(ctx context.Context, c *Call, limits Limits, begun time.Time) (i *instance, ended *Outcome, at time.Time) {
	at = begun
	for {
		p.mu.Lock()
		switch {
		case p.retired:
			p.mu.Unlock()
			return nil, nil, time.Time{}
		case len(p.idle) > 0:
			i = p.idle[len(p.idle)-1]
			p.idle = p.idle[:len(p.idle)-1]
			p.begun()
			return i, nil, at
		case p.resetMode == ResetNew && p.module.info.Kind == Handler:
			p.begun()
			if i, ended = p.fresh(ctx, c.start(c.Timeout), begun); ended != nil {
				p.ended(time.Now())
			}
			return i, ended, time.Now()
		case p.image != nil || p.resetMode == ResetNew:
			p.begun()
			if ended = p.hold(ctx, limits, c.Timeout > 0, begun); ended != nil {
				p.ended(time.Now())
			}
			return nil, ended, time.Now()
		}
		k := p.join(c)
		p.mu.Unlock()
		if ended := p.wait(ctx, c, limits, begun, k); ended != nil {
			return nil, ended, at
		}
		at = time.Now()
	}
}

// begun counts a call in, and unlocks the pool.
func (p *pool) begun() {
	p.busy++
	p.peak = max(p.peak, p.busy)
	p.mu.Unlock()
}

// ended counts it out. The last one of a retired pool takes what is left of it along.
func (p *pool) ended(now time.Time) {
	p.mu.Lock()
	p.busy--
	p.used = now
	last := p.retired && p.busy == 0
	p.mu.Unlock()
	if last {
		p.drop(0)
	}
}

// hold holds the code for a call that has begun, for which it may have to be loaded again, and returns what ends the
// call before that. own tells that the timeout is the task's own.
func (p *pool) hold(ctx context.Context, limits Limits, own bool, begun time.Time) *Outcome {
	if limits.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, begun.Add(limits.Timeout), timeoutExceeded(limits.Timeout, own))
		defer cancel()
	}
	err := p.module.code.hold(ctx)
	if err == nil {
		return nil
	}
	outcome := faultOutcome(err)
	if ctx.Err() != nil {
		var late *limitError
		if outcome = cancelledOutcome(context.Cause(ctx)); errors.As(outcome.Err, &late) {
			outcome = limitOutcome(late)
		}
	}
	return &outcome
}

// make makes an instance, from the image if there is one. The hold of the code goes to it.
func (p *pool) make() (*instance, error) {
	i, err := p.module.instantiate(p.key.memory)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	img := p.image
	p.mu.Unlock()
	if img == nil {
		return i, nil
	}
	if err := i.adopt(img); err != nil {
		return nil, &faultError{errors.Join(err, i.close())}
	}
	return i, nil
}

// fresh makes an instance that has come to its first task. What a handler does until then has the limits of a
// call of its own, whose time has begun; if it does not get there, that is the outcome.
func (p *pool) fresh(ctx context.Context, start *Call, begun time.Time) (*instance, *Outcome) {
	m, limits := p.module, start.limits()
	if ended := p.hold(ctx, limits, start.Timeout > 0, begun); ended != nil {
		return nil, ended
	}
	r := m.newRun(ctx, start, limits, start.environment(m.info.Kind), abi.Initializing, begun)
	if m.lasting {
		r.meter.burned = m.price
	}
	r.meter.start(time.Now())
	i, err := p.make()
	if err == nil {
		r.enter(i)
		err = r.begin(i)
		r.leave(i)
	}
	r.meter.stop()
	if err != nil || r.cause != nil {
		outcome := r.finish(err)
		p.discard(i)
		return nil, &outcome
	}
	if p.module.lasting {
		i.begun = expense{r.meter.burned, r.meter.cpu}
	}
	return i, nil
}

// expense is what something took of the machine.
type expense struct {
	fuel int64
	cpu  time.Duration
}

// give takes an instance back, which nothing uses any more; nil if there is none. A sound one is kept if it can be
// reset.
func (p *pool) give(i *instance, sound bool, now time.Time) {
	if sound && i != nil && i.image != nil && i.calls < maxCalls {
		err := i.reset(p.resetMode)
		if err == nil && p.keep(i, now) {
			return
		}
		if err != nil {
			p.module.engine.logger.Error("an instance was not reset, it is discarded", "digest", p.module.info.Digest, "error", err)
		}
	}
	p.discard(i)
	p.ended(now)
}

// keep counts the call of an instance out, which is one for the next call then, unless the pool was retired.
func (p *pool) keep(i *instance, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.retired {
		return false
	}
	p.idle = append(p.idle, i)
	p.busy--
	p.used = now
	return true
}

// discard closes an instance, if there is one.
func (p *pool) discard(i *instance) {
	if i == nil {
		return
	}
	if err := i.close(); err != nil {
		p.module.engine.logger.Error("an instance was not closed", "digest", p.module.info.Digest, "error", err)
	}
}

// trim closes the idle instances that were not needed since the last trim but one, of an idle pool all but one,
// whose memory it gives back. A pool that was idle for too long is retired; it tells whether it is.
func (p *pool) trim(now time.Time, tooLong time.Duration) (gone bool) {
	p.mu.Lock()
	if p.busy == 0 && tooLong > 0 && now.Sub(p.used) >= tooLong {
		p.retired = true
		p.mu.Unlock()
		p.drop(0)
		return true
	}
	keep := max(1, max(p.peak, p.before)-p.busy)
	rests := p.peak == 0 && p.before == 0
	p.before, p.peak = p.peak, p.busy
	if rests {
		p.rest()
	}
	p.mu.Unlock()
	p.drop(keep)
	return false
}

// rest gives back what idle instances hold beside their images.
func (p *pool) rest() {
	for _, i := range p.idle {
		if i.memory.space == nil || i.memory.space.Held() == 0 {
			continue
		}
		i.entry = nil
		if err := i.memory.space.Trim(); err != nil {
			p.module.engine.logger.Error("memory was not given back", "digest", p.module.info.Digest, "error", err)
		}
	}
}

// drop closes the idle instances but so many, and the image as well if none is left and no call needs it. It tells
// how many bytes that gave back.
func (p *pool) drop(keep int) (freed int64) {
	p.mu.Lock()
	n := max(0, len(p.idle)-keep)
	gone := slices.Clone(p.idle[:n])
	p.idle = slices.Delete(p.idle, 0, n)
	var img *image
	if keep == 0 && p.busy == 0 {
		img, p.image = p.image, nil
	}
	p.mu.Unlock()
	for _, i := range gone {
		freed += i.held()
		p.discard(i)
	}
	freed += img.held()
	p.remove(img)
	return freed
}

// remove closes an image, if there is one.
func (p *pool) remove(img *image) {
	if err := img.close(); err != nil {
		p.module.engine.logger.Error("an image was not closed", "digest", p.module.info.Digest, "error", err)
	}
}

// retire ends the pool: what is idle is closed now, what runs when it has returned.
func (p *pool) retire() {
	p.mu.Lock()
	p.retired = true
	if k := p.making; k != nil && k.waiters == 0 {
		k.cancel(errRetired)
	}
	p.mu.Unlock()
	p.drop(0)
}
