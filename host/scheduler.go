package host

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/sdk/queue"
)

// maxBatch is the most tasks of one queue that one allocation covers.
const maxBatch = queue.MaxReserve

// scheduler decides which queue gets the next free slot. Its methods are safe for concurrent use.
type scheduler struct {
	acquire   func(tenant, queue string) *plugins.Version // the version that serves a queue; nil: none
	slots     int
	rerun     bool // a task whose host died is run again
	gauge     func(running int)
	admission *admission
	// poke has a token when there may be something to allocate; never closed.
	poke chan struct{}
	// running counts the slots that run a task, began is when the last one got its task, in nanoseconds since 1970, and wakes the wakes
	// so far. They change only under mu.
	running, began atomic.Int64
	wakes          atomic.Uint64

	// mu guards the fields below. Under it admission.mu, taskSet.mu and health.mu are taken, never the other way round.
	mu       sync.Mutex
	queues   map[place]*served
	active   map[place]*served // of them, those that a pick looks at: there may be thousands of idle ones
	sources  map[source]int    // how many queues each has
	plugins  map[plugin]int    // slots that run a plugin's tasks, or are allocated to it
	inUse    int               // slots that run a task, or are allocated
	load     load              // of those with short tasks
	ahead    int               // tasks that are reserved ahead
	refillAt int               // when no more of them wait, there is a pick
	late     []*task           // of them, that are to be given back
	// sole is the only queue that the last pick could serve, nil if there were others. A queue whose reserve was on its way is not
	// counted: the pick after it finds both.
	sole *served
	// many means that the last pick had more queues to serve than slots: each keeps a slot for its turn.
	many    bool
	overdue *time.Timer // picks again when others may be late; nil before any was reserved ahead
	turns   uint64
}

func newScheduler(acquire func(tenant, queue string) *plugins.Version, config Config, gauge func(running int)) *scheduler {
	s := &scheduler{
		acquire: acquire, slots: config.Concurrency, rerun: config.MaxCrashes != 1, gauge: gauge,
		queues: make(map[place]*served), active: make(map[place]*served), sources: make(map[source]int), plugins: make(map[plugin]int),
		poke: make(chan struct{}, 1),
		load: load{places: float64(min(config.Guests, config.Concurrency))},
	}
	s.admission = newAdmission(config.Memory, config.Account, config.Logger, s.again)
	return s
}

// again has the scheduler pick once more.
func (s *scheduler) again() { poke(s.poke) }

// Run allocates slots until ctx ends, and returns when the last reserve has come back. Each source has one reserve on its
// way at most, and one whose Redis hangs keeps no other waiting.
func (s *scheduler) Run(ctx context.Context) {
	reserves := &workers{next: make(chan func())}
	defer s.end()
	defer reserves.wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.poke:
		}
		for ctx.Err() == nil && s.runOnce(ctx, reserves.run) {
		}
	}
}

// end returns the tasks that wait for a slot, also those of reserves that came back late: their versions must not be held.
func (s *scheduler) end() {
	s.mu.Lock()
	for _, q := range s.active {
		s.putOff(q)
	}
	late := s.late
	s.late = nil
	s.mu.Unlock()
	giveBack(late)
}

// giveBack returns tasks that have got no slot to their queues.
func giveBack(tasks []*task) {
	bySource := make(map[source][]*task)
	for _, t := range tasks {
		bySource[t.served.source] = append(bySource[t.served.source], t)
	}
	for from, list := range bySource {
		from.giveBack(list)
	}
}

// runOnce hands each source what is allocated to it, and tells whether there may be more at once.
func (s *scheduler) runOnce(ctx context.Context, run func(func())) bool {
	now := s.allocate(time.Now())
	for _, a := range now.idle {
		a.release()
	}
	for _, t := range now.begun {
		t.served.source.start(context.WithoutCancel(ctx), t) // tasks end when they are told
	}
	giveBack(now.late)
	bySource := make(map[source][]*allocation)
	for _, a := range now.allocations {
		from := a.served.source
		bySource[from] = append(bySource[from], a)
	}
	for from, list := range bySource {
		if from.beginReserve() {
			run(func() { from.reserve(ctx, list); s.again() })
			continue
		}
		for _, a := range list {
			s.cancel(a)
		}
	}
	return now.sources > 1 && len(bySource)+len(now.begun) > 0 // one pick gives each source only a share of the slots
}

// round is what one pick decides.
type round struct {
	allocations []*allocation
	idle        []*allocation // that reserve nothing and have no list to reconcile. To release them may close a module
	begun       []*task       // tasks reserved ahead that have got a slot
	late        []*task       // and those to be given back
	sources     int           // that have queues
}

// allocate gives the free slots to queues.
func (s *scheduler) allocate(now time.Time) (r round) {
	s.mu.Lock()
	defer s.mu.Unlock()
	again, full := s.dropLate(now), false
	r.late, s.late, r.sources = s.late, nil, len(s.sources)
	quota := newQuota(s.slots, s.slots-s.inUse, len(s.sources))
	candidates, reconcile := s.candidates(&quota, now)
	s.many = len(candidates) > s.slots
	if s.refillAt, s.sole = 0, nil; len(candidates) == 1 {
		s.sole = candidates[0]
	}
	if q := s.queues[s.admission.begin(len(s.sources) > 1)]; q != nil {
		if !q.able(now) && len(q.ahead) == 0 {
			s.admission.forget(q.place) // nobody waits for the memory that it needs
		}
	}
	allocations := make(map[*served]*allocation)
	pick(slices.Clone(candidates), quota, func(q *served) bool {
		switch {
		case q.short() && q.mayWait && s.load.full(now, s.inUse):
			full = true
			return false
		case len(q.ahead) == 0:
			return s.give(q, allocations, now)
		}
		t := s.giveAhead(q, now)
		if t != nil {
			r.begun = append(r.begun, t)
		}
		return t != nil
	})
	s.admission.picked()
	s.lookAhead(candidates, allocations)
	for _, q := range reconcile {
		if allocations[q] == nil {
			allocations[q] = &allocation{served: q, reconcile: true, wakes: s.wakes.Load()}
		}
	}
	for _, a := range allocations {
		if len(a.shares)+a.ahead == 0 && !a.reconcile {
			r.idle = append(r.idle, a)
			continue
		}
		a.served.reconcile = false // until that fails, or somebody asks again
		r.allocations = append(r.allocations, a)
	}
	if full && len(s.load.shares) > 0 { // it is not when the oldest of them does not count any more
		again = min(again, aheadTime-now.Sub(s.load.shares[0].since))
	}
	s.pickAfter(again)
	return r
}

// allocation is the queue's in this round; nil if it may not reserve. The caller holds mu.
func (s *scheduler) allocation(q *served, allocations map[*served]*allocation) *allocation {
	if allocations[q] == nil && q.reservable {
		if version := s.acquire(q.tenant, q.queue); version != nil { // else its plugin has just gone
			q.bound, q.mayWait = version.Manifest.Concurrency, s.mayWait(version, q.tenant)
			allocations[q] = &allocation{served: q, version: version, reconcile: q.reconcile, wakes: s.wakes.Load()}
		}
	}
	return allocations[q]
}

// give gives the queue one slot more, for a task that is to be reserved. The caller holds mu.
func (s *scheduler) give(q *served, allocations map[*served]*allocation, now time.Time) bool {
	a := s.allocation(q, allocations)
	if a == nil || len(a.shares) >= maxBatch {
		return false
	}
	part := s.takeSlot(q, a.version, now)
	if part != nil {
		a.shares = append(a.shares, part)
	}
	return part != nil
}

// takeSlot gives the queue one slot more, if its plugin's bound and the memory allow it. The caller holds mu.
func (s *scheduler) takeSlot(q *served, v *plugins.Version, now time.Time) *share {
	of := pluginOf(v)
	if bound := v.Manifest.Concurrency; bound > 0 && s.plugins[of] >= bound {
		return nil
	}
	part, ok := s.admission.take(q.place, v.Footprint(q.tenant))
	if !ok {
		return nil
	}
	s.admission.expect(snapshotOf{v, q.tenant}, part)
	s.load.add(part, q, now)
	part.turn = q.turn
	s.inUse++
	s.plugins[of]++
	q.running++
	if q.inTurn--; q.inTurn <= 0 || !q.short() {
		s.endTurn(q)
	}
	return part
}

// close ends an allocation whose reserve brought tasks, and gives those their shares. It returns the tasks that have one: the
// others wait for a slot.
func (s *scheduler) close(a *allocation, tasks []*task, reply queue.ReserveReply) (begun []*task) {
	s.mu.Lock()
	q := a.served
	used := min(len(tasks), len(a.shares))
	begun = tasks[:used]
	s.activate(q)
	for i, t := range begun {
		t.share = a.shares[i]
	}
	s.freeSlots(a, used)
	s.keepAhead(q, tasks[used:])
	q.vain = q.vain && len(tasks) == 0
	switch {
	case reply.Err != nil:
		q.reconcile, q.ready = true, true
		if !queue.IsUnavailable(reply.Err) || a.version == nil { // else health pauses all queues
			time.AfterFunc(q.refused.Failed(time.Now()), s.again)
		}
	case a.reconcile && q.left && !q.reconcile:
		s.drop(q)
	case a.reconcile:
		q.ready = true
	default:
		// Fewer tasks than asked for mean that there are no more, except for those announced meanwhile, and those behind IDs
		// that were dropped.
		if len(tasks) == len(a.shares)+a.ahead {
			q.woken = s.wakes.Add(1) // a poll that was asked before knows nothing of what lies behind
		}
		q.ready = q.woken > a.wakes || reply.Dropped > 0 || reply.Passed > 0
		q.refused.Succeeded()
	}
	if (reply.Err != nil || !q.ready) && s.queues[q.place] == q { // else the queue was left and is served anew
		s.admission.forget(q.place)
	}
	if used > 0 {
		s.began.Store(time.Now().UnixNano())
	}
	s.gauge(int(s.running.Add(int64(used))))
	s.mu.Unlock()
	a.release()
	s.again()
	return begun
}

// cancel takes back an allocation that was not tried.
func (s *scheduler) cancel(a *allocation) {
	s.mu.Lock()
	s.freeSlots(a, 0)
	a.served.reconcile = a.served.reconcile || a.reconcile
	s.activate(a.served)
	s.mu.Unlock()
	a.release()
	s.again()
}

// freeSlots frees what an allocation did not use. The caller holds mu.
func (s *scheduler) freeSlots(a *allocation, used int) {
	for _, part := range a.shares[used:] {
		s.admission.release(part)
		s.freeSlot(a.served, a.version, part)
	}
}

// freeSlot frees one slot. The caller holds mu.
func (s *scheduler) freeSlot(q *served, v *plugins.Version, part *share) {
	s.load.remove(part)
	s.inUse--
	q.running--
	if s.plugins[pluginOf(v)]--; s.plugins[pluginOf(v)] == 0 {
		delete(s.plugins, pluginOf(v))
	}
}

// ended frees the slot of a task that took so long, and waited for so much of that; and its memory except for what its result
// takes until it is settled. The task holds its version still. If the last pick could serve no other queue, or more queues than there
// are slots and its turn is not over, the slot goes on to the next task of its queue that was reserved ahead.
func (s *scheduler) ended(of *slot, result int, took, waited time.Duration, now time.Time) (next *task) {
	s.admission.ended(of.share, int64(result))
	s.mu.Lock()
	q := of.served
	s.freeSlot(q, of.version, of.share)
	q.lasted(took, waited)
	if q.inTurn > 1 && !q.short() {
		s.endTurn(q)
	}
	q.unsettled++
	running := s.running.Add(-1)
	goesOn := s.sole == q || s.many && of.share.turn == q.turn
	if goesOn && len(q.ahead) > 0 && q.short() && !q.left && !q.blocked && q.heldBack() <= s.slots && !s.load.full(now, s.inUse) {
		next = s.giveAhead(q, now)
	}
	if next == nil {
		s.gauge(int(running))
	}
	again := next == nil || s.ahead <= s.refillAt
	s.mu.Unlock()
	if again {
		s.again()
	}
	return next
}

// settled frees what the results of tasks took.
func (s *scheduler) settled(of ...*slot) {
	for _, one := range of {
		s.admission.release(one.share)
	}
	s.mu.Lock()
	for _, one := range of {
		one.served.unsettled--
		if one.returns {
			one.served.returning--
		}
	}
	s.mu.Unlock()
	s.again()
}

// update changes a queue that is served, and picks again.
func (s *scheduler) update(at place, change func(*served)) {
	s.mu.Lock()
	if q := s.queues[at]; q != nil {
		change(q)
		s.activate(q)
	}
	s.mu.Unlock()
	s.again()
}

// wake tells that there may be work in a queue.
func (s *scheduler) wake(at place) {
	s.update(at, func(q *served) {
		q.ready, q.woken = true, s.wakes.Add(1)
	})
}

// found tells that a poll saw tasks in a queue, and returns whether no message had announced them.
func (s *scheduler) found(at place) (unannounced bool) {
	s.update(at, func(q *served) {
		unannounced = !q.ready && !q.vain
		q.ready, q.vain, q.woken = true, !q.ready, s.wakes.Add(1)
	})
	return unannounced
}

// idle are the queues of a tenant that may have no work: those that a poll would find empty, and those where it saw tasks in vain.
func (s *scheduler) idle(tenant string) (empty, vain []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, q := range s.queues {
		switch {
		case at.tenant != tenant || q.ready || q.left:
		case q.vain:
			vain = append(vain, at.queue)
		default:
			empty = append(empty, at.queue)
		}
	}
	return empty, vain
}

// empty tells that a poll, asked when wakes had this value, found nothing in a queue: the queue waits for memory no longer.
func (s *scheduler) empty(at place, wakes uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[at]; q != nil && q.woken <= wakes {
		q.ready, q.vain = false, false
		s.admission.forget(at)
	}
}

// reconcile has a queue's reserved list compared with the tasks that run, also if the session has left the queue.
func (s *scheduler) reconcile(at place, from source) {
	s.mu.Lock()
	q := s.queues[at]
	if q == nil {
		q = s.add(&served{place: at, source: from, left: true})
	}
	q.reconcile = true
	s.activate(q)
	s.mu.Unlock()
	s.again()
}

// block tells whether results of a queue's tasks cannot be written.
func (s *scheduler) block(at place, blocked bool) {
	s.update(at, func(q *served) {
		q.blocked = blocked
		if blocked {
			s.admission.forget(at)
		}
	})
}

// serve adds a queue, for a session that is registered as its listener.
func (s *scheduler) serve(at place, from source) {
	s.mu.Lock()
	before := s.queues[at]
	if before != nil {
		s.drop(before)
	}
	s.activate(s.add(&served{place: at, source: from, ready: true, reconcile: before != nil && before.reconcile}))
	s.mu.Unlock()
	s.again()
}

// leave takes nothing more from a queue. Its running tasks go on; what was reserved from it unknown is given back.
func (s *scheduler) leave(at place) {
	s.update(at, func(q *served) {
		s.admission.forget(at)
		q.left, q.reconcile = true, true
	})
}

// abandon drops all queues of a source whose lease is lost.
func (s *scheduler) abandon(from source) {
	s.mu.Lock()
	for _, q := range s.queues {
		if q.source == from {
			s.drop(q)
		}
	}
	s.mu.Unlock()
	s.again()
}

// add adds a queue in a place that has none. The caller holds mu.
func (s *scheduler) add(q *served) *served {
	s.queues[q.place] = q
	s.sources[q.source]++
	return q
}

// activate has picks look at a queue until it is idle. The caller holds mu.
func (s *scheduler) activate(q *served) {
	if s.queues[q.place] == q {
		s.active[q.place] = q
	}
}

// drop drops a queue, unless it is served again by now. The caller holds mu.
func (s *scheduler) drop(q *served) {
	if s.queues[q.place] == q {
		s.admission.forget(q.place)
		s.putOff(q)
		delete(s.queues, q.place)
		delete(s.active, q.place)
		if s.sources[q.source]--; s.sources[q.source] == 0 {
			delete(s.sources, q.source)
		}
	}
}

// poke leaves a token in a channel of capacity one.
func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
