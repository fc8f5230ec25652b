package runtime

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// maxCalls is the number of tasks after which an instance is closed. Closing it frees memory that wazero accumulates
// for it.
const maxCalls = 10_000

// abandonAfter is the minimum time for which a snapshot's build goes on while no call waits for it. Otherwise calls
// with short timeouts could prevent the snapshot forever.
const abandonAfter = 10 * time.Second

// The causes of the cancellation of a snapshot's build.
var (
	errPoolClosed = errors.New("the pool is closed")
	errAbandoned  = errors.New("no call waits for the handler's start")
)

// Pool runs calls of a module that share a profile. Its instances start from one snapshot, and each serves one call at
// a time. The pool grows with the number of calls that run at once; Engine.tidy shrinks it.
//
//	acquire ─▶ no snapshot yet: wait for its build ──▶ a place at the gate
//	                                                     │
//	         an idle instance, or a new one from the snapshot
//	                                                     ▼
//	release ◀─ reset, or closed if that fails ◀── the guest's call
type Pool struct {
	module    *Module
	profile   Profile
	entry     string   // the export that tasks call
	limits    Limits   // the profile's limits, with defaults
	granted   []string // the variables that the profile grants
	resetMode ResetMode
	startWait time.Duration // see the constant startWait; tests change it
	startCPU  time.Duration // see the constant startCPU; tests change it

	mu         sync.Mutex // guards the fields below; locked before Module.mu
	registered bool       // the pool is in Module.pools
	closed     bool
	snapshot   *guestSnapshot // nil before it is built, and after a long idle time
	build      *snapshotBuild // the build of the snapshot; nil if none is in progress
	idle       []*instance    // idle instances, the most recently used one last
	busy       int            // number of calls in progress
	peak       int            // the highest value of busy since the last trim
	before     int            // the value of peak at the last trim
	used       time.Time      // when the last call or build ended
}

// snapshotBuild builds a pool's snapshot in the background, within the limits of a call. Calls that need the snapshot
// wait for it as long as their own limits allow.
type snapshotBuild struct {
	done   chan struct{} // closed when the build has ended
	cancel context.CancelCauseFunc

	// Guarded by the pool's mu.
	waiters int       // number of calls that wait
	left    time.Time // when the last waiter left
	failed  *Outcome  // outcome of a failed build, else nil; Fuel and CPU are 0 after one waiter was charged
}

// Bind makes a pool for calls that share the profile. The pool takes no memory before its first call. The caller closes
// the pool before the module.
func (m *Module) Bind(profile Profile) *Pool {
	limits := profile.Limits.WithDefaults()
	profile.Files = profile.Files.Over(m.files)
	return &Pool{
		module: m, profile: profile, entry: cmp.Or(profile.Entry, m.info.Entry), limits: limits,
		granted: profile.granted(), resetMode: m.info.ResetMode, startWait: startWait, startCPU: startCPU,
	}
}

// startup lists the exports that the host calls before an instance's first task. There are none if tasks call _start,
// since _start starts the program anew for each task.
func (p *Pool) startup() []string {
	if p.entry == startExport {
		return nil
	}
	return p.module.startup
}

// PendingSnapshot returns the maximum number of bytes of the snapshots that the next call has to build. It returns 0 if
// the pool has its snapshot or needs none.
func (p *Pool) PendingSnapshot() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.snapshot != nil || p.resetMode == ResetNew:
		return 0
	case p.profile.Warm != nil:
		return 2 * p.limits.Memory
	default:
		return p.limits.Memory
	}
}

// Close closes the idle instances now, and the instances in use when their calls have returned. Later calls end in a
// HostFault. Close can be called twice.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	if p.build != nil && p.build.waiters == 0 {
		p.build.cancel(errPoolClosed)
	}
	p.mu.Unlock()
	p.shrink(0)
	p.module.unregister(p)
}

// allPools returns the registered pools, which the engine trims and counts.
func (m *Module) allPools() []*Pool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.pools))
}

// Close closes the module's pools and unloads its code. Run must not be in progress. Close can be called twice.
func (m *Module) Close(ctx context.Context) (err error) {
	m.closeOnce.Do(func() {
		m.onClose()
		for _, p := range m.allPools() {
			p.Close()
		}
		m.builds.Wait()
		err = m.code.Close(ctx)
	})
	return err
}

func (m *Module) unregister(p *Pool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.pools, p)
}

// hold takes a hold of the module's code for a call that began at the time begun, and loads the code if necessary. It
// returns nil, or the outcome of a call that ends before it has the code.
func (p *Pool) hold(ctx context.Context, c *Call, begun time.Time) *Outcome {
	ctx, cancel := p.bounded(ctx, c, begun)
	defer cancel()
	if err := p.module.code.Hold(ctx, p.module.owner, p.module.info.Digest); err != nil {
		return errorOutcome(ctx, err)
	}
	return nil
}

// startWait is the minimum time for which a call waits until it can begin, even if the call's timeout is shorter.
// Loading the code and starting a handler take none of the task's own time, and can take long if many handlers start at
// once.
const startWait = time.Minute

// startCPU is the minimum fuel limit of a handler's start. Starting an interpreter with a plugin's imports burns more
// than many tasks are allowed to burn.
const startCPU = 10 * time.Second

// startLimits returns the limits of a handler's start. A start that serves many tasks has a fuel limit of at least
// startCPU; a start for one task has the task's fuel limit.
func (p *Pool) startLimits(start *Call) Limits {
	l := p.limitsOf(start)
	if l.CPU > 0 && p.resetMode != ResetNew {
		l.CPU = max(l.CPU, p.startCPU)
	}
	return l
}

// bounded returns a context for the time before a call can begin. The context ends at the call's timeout, but at the
// earliest startWait after begun.
func (p *Pool) bounded(ctx context.Context, c *Call, begun time.Time) (context.Context, context.CancelFunc) {
	timeout := p.limitsOf(c).Timeout
	switch {
	case timeout == 0:
		return ctx, func() {}
	case timeout < p.startWait:
		return context.WithDeadlineCause(ctx, begun.Add(p.startWait), startExceeded(p.startWait))
	}
	return context.WithDeadlineCause(ctx, begun.Add(timeout), p.limits.Remedies.timeoutExceeded(timeout, c.Timeout))
}

func (p *Pool) limitsOf(c *Call) Limits {
	l := p.limits
	if c.Timeout > 0 {
		l.Timeout = min(c.Timeout, cmp.Or(p.profile.MaxTimeout, c.Timeout))
	}
	return l
}

// newInstance makes an instance, from the snapshot if the pool has one. The instance takes over the caller's hold of
// the code.
func (p *Pool) newInstance() (*instance, error) {
	i, err := p.module.instantiate(p.limits.Memory)
	if err != nil {
		return nil, err
	}
	i.startup, i.export = p.startup(), p.entry
	p.mu.Lock()
	s := p.snapshot
	p.mu.Unlock()
	if s == nil {
		return i, nil
	}
	if err := i.adopt(s); err != nil {
		return nil, &faultError{errors.Join(err, i.close())}
	}
	return i, nil
}

// release ends what acquire began for a call. If sound is true and the instance can be reset, release resets the
// instance and keeps it for later calls; otherwise it closes the instance. used is the processor time of the call, and
// now is when the call ended. release leaves the gate after the reset, so that the next call finds the instance. If the
// reset could take longer than a slice, release leaves the gate first.
func (p *Pool) release(i *instance, sound bool, used time.Duration, now time.Time) {
	keep := sound && i != nil && i.snapshot != nil && i.calls < maxCalls
	gate, brief := p.module.host.gate, keep && used <= slice && p.resetMode != ResetCopy
	if !brief {
		gate.leave()
	}
	if keep {
		if err := i.reset(p.resetMode); err != nil {
			p.log("cannot reset an instance; closing it", err)
			keep = false
		}
	}
	p.mu.Lock()
	if keep = keep && !p.closed; keep {
		p.idle = append(p.idle, i)
	}
	p.mu.Unlock()
	if brief {
		gate.leave()
	}
	if !keep {
		p.discard(i)
	}
	p.end(now)
}

// end subtracts a call from busy. The last call of a closed pool closes the remaining instances and the snapshot.
func (p *Pool) end(now time.Time) {
	p.mu.Lock()
	p.busy--
	p.used = now
	last := p.closed && p.busy == 0
	p.mu.Unlock()
	if last {
		p.shrink(0)
	}
}

// discard closes an instance, if there is one.
func (p *Pool) discard(i *instance) {
	if i == nil {
		return
	}
	if err := i.close(); err != nil {
		p.log("cannot close an instance", err)
	}
}

// remove closes a snapshot, if there is one.
func (p *Pool) remove(s *guestSnapshot) {
	if err := s.close(); err != nil {
		p.log("cannot close a snapshot", err)
	}
}

func (p *Pool) log(failure string, err error) {
	p.module.host.logger.Error(failure, "digest", p.module.info.Digest, "error", err)
}

// trim closes idle instances. It keeps as many instances as calls ran at once since the trim before the last one, and
// at least one idle instance. If the pool had no calls in that time, trim also frees the memory of that instance. If
// the pool has been idle for tooLong, trim closes all instances and the snapshot; tooLong 0 means never. A build
// without waiting calls is cancelled after abandonAfter; the next call starts another build.
func (p *Pool) trim(now time.Time, tooLong time.Duration) {
	p.mu.Lock()
	if b := p.build; b != nil && b.waiters == 0 && now.Sub(b.left) >= abandonAfter {
		p.build = nil
		b.cancel(errAbandoned)
	}
	if p.busy == 0 && p.build == nil && tooLong > 0 && now.Sub(p.used) >= tooLong {
		p.registered = false
		p.module.unregister(p)
		p.mu.Unlock()
		p.shrink(0)
		return
	}
	keep := max(1, max(p.peak, p.before)-p.busy)
	if p.peak == 0 && p.before == 0 {
		for _, i := range p.idle {
			if i.pages() == 0 {
				continue
			}
			i.entry = nil
			for _, memory := range i.memories {
				if err := memory.space.Trim(); err != nil {
					p.log("cannot give memory back", err)
				}
			}
		}
	}
	p.before, p.peak = p.peak, p.busy
	p.mu.Unlock()
	p.shrink(keep)
}

// shrink closes idle instances until at most keep are left. If keep is 0, it also closes the snapshot, unless a call
// needs it. It returns the number of freed bytes.
func (p *Pool) shrink(keep int) (freed int64) {
	p.mu.Lock()
	n := max(0, len(p.idle)-keep)
	gone := slices.Clone(p.idle[:n])
	p.idle = slices.Delete(p.idle, 0, n)
	var s *guestSnapshot
	if keep == 0 && p.busy == 0 {
		s, p.snapshot = p.snapshot, nil
	}
	p.mu.Unlock()
	for _, i := range gone {
		freed += i.held()
		p.discard(i)
	}
	freed += s.alone()
	p.remove(s)
	return freed
}

// addTo adds the pool's holdings to h.
func (p *Pool) addTo(h *Holdings) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h.Snapshots += p.snapshot.held()
	if p.build != nil && p.build.waiters == 0 {
		h.Instances += 2 * p.limits.Memory // for the build's instance and snapshot, which no call accounts for
	}
	h.Idle += len(p.idle)
	h.Busy += p.busy
	for _, i := range p.idle {
		h.Instances += i.held()
	}
}

// Holdings counts the memory and the instances of modules.
type Holdings struct {
	// Code, Snapshots, Instances and Stacks are in bytes. Code is machine code and its metadata. Snapshots is the maximum
	// that snapshots take. Instances is what idle instances take in addition to their snapshot. Stacks is the size of the
	// call stacks of running guests.
	Code, Snapshots, Instances, Stacks int64
	// Idle counts the idle instances of pools, and Busy the calls in progress in pools.
	Idle, Busy int
}
