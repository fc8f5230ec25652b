package runtime

import (
	"cmp"
	"context"
	goruntime "runtime"
	"slices"
	"time"
)

// tidyInterval is how often the engine looks what is not used any more. An instance that was not needed in two
// intervals is closed.
const tidyInterval = 5 * time.Second

// housekeep takes back what is not used any more until ctx ends.
func (e *Engine) housekeep(ctx context.Context) {
	defer close(e.tidied)
	ticker := time.NewTicker(tidyInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			e.tidy(ctx, now)
		}
	}
}

// tidy closes instances that were not needed lately but one for each pool, and, of modules that were idle for
// long, all instances, images and code. From time to time it prunes the caches.
func (e *Engine) tidy(ctx context.Context, now time.Time) {
	e.mu.Lock()
	due := now.Sub(e.pruned) >= pruneInterval
	if due {
		e.pruned = now
	}
	e.mu.Unlock()
	if due {
		e.prune(ctx, now)
	}
	unloaded := false
	for _, m := range e.allModules() {
		for _, p := range m.allPools() {
			if p.trim(now, e.idleUnload) {
				m.forget(p)
			}
		}
		if e.idleUnload > 0 && m.unusedFor(now) >= e.idleUnload {
			unloaded = e.unload(ctx, m) || unloaded
		}
	}
	if unloaded {
		goruntime.GC() // which unmaps the code
	}
}

// prune removes from the caches what has not been used for long. What the engine serves is in use.
func (e *Engine) prune(ctx context.Context, now time.Time) {
	e.spareMu.Lock()
	caches := []*diskCache{e.cache}
	if e.spare != nil {
		caches = append(caches, e.spare)
	}
	e.spareMu.Unlock()
	for _, c := range caches {
		for _, m := range e.allModules() {
			c.touch(m.code.key, now)
		}
		c.tidy(ctx, now)
	}
}

// Held is what modules take beyond what the calls under way may take by their limits, in bytes: machine code
// and what is kept of its modules, images, idle instances, and the call stacks of guests that run.
func (e *Engine) Held() int64 {
	h := e.Holdings()
	return h.Code + h.Images + h.Instances + h.Stacks
}

// Holdings are what Held is the sum of, and how many instances there are.
type Holdings struct {
	// Code, Images, Instances and Stacks are bytes: of machine code and what is kept of its modules, of the images
	// that instances begin with, at most, of what idle instances have beside them, and of the call stacks of guests
	// that run.
	Code, Images, Instances, Stacks int64
	// Idle and Busy count the instances of calls that name a pool.
	Idle, Busy int
}

// Holdings tells what modules take now.
func (e *Engine) Holdings() Holdings {
	h := Holdings{Stacks: e.stacks.Load()}
	for _, m := range e.allModules() {
		h.Code += m.code.held()
		for _, p := range m.allPools() {
			p.addTo(&h)
		}
	}
	return h
}

func (p *pool) addTo(h *Holdings) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h.Images += p.image.held()
	if p.making != nil && p.making.waiters == 0 {
		h.Instances += 2 * p.key.memory // no call accounts for it, nor for what is to be its image
	}
	h.Idle += len(p.idle)
	h.Busy += p.busy
	for _, i := range p.idle {
		h.Instances += i.held()
	}
}

// Relieve gives back at least so many bytes of what is idle, if there is as much, those first that were used
// longest ago, and tells how many it were. What is given back is made again when it is needed.
func (e *Engine) Relieve(ctx context.Context, bytes int64) (freed int64) {
	modules, now, unused := e.allModules(), time.Now(), map[*Module]time.Duration{}
	for _, m := range modules {
		unused[m] = m.unusedFor(now)
	}
	slices.SortFunc(modules, func(a, b *Module) int { return cmp.Compare(unused[b], unused[a]) })
	unloaded := false
	for _, m := range modules {
		if freed >= bytes {
			break
		}
		for _, p := range m.allPools() {
			freed += p.drop(0)
		}
		if held := m.code.held(); freed < bytes && e.unload(ctx, m) {
			freed += held
			unloaded = true
		}
	}
	if unloaded {
		goruntime.GC()
	}
	return freed
}

func (e *Engine) unload(ctx context.Context, m *Module) bool {
	done, err := m.code.unload(ctx)
	if err != nil {
		e.logger.Error("code was not unloaded", "digest", m.info.Digest, "error", err)
	}
	return done
}

func (e *Engine) allModules() []*Module {
	e.mu.Lock()
	defer e.mu.Unlock()
	modules := make([]*Module, 0, len(e.modules))
	for m := range e.modules {
		modules = append(modules, m)
	}
	return modules
}
