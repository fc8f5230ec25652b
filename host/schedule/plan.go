package schedule

import (
	"container/heap"
	"slices"
	"time"
)

// Round is the decision of one plan.
type Round struct {
	Work map[Source]*Work
	// Idle has allocations without a task to reserve or a list to reconcile. The caller releases them, which can close a
	// module.
	Idle []*Allocation
	// More reports that there may be more to plan at once, because a plan gives each source only a part of the slots.
	More bool
	// Next is the time until the next plan, unless an event asks for one before. It is 0 if no plan is needed.
	Next time.Duration
}

// Work lists what a source has to do in a round.
type Work struct {
	Allocations []*Allocation // what to reserve or to reconcile
	Begin       []Task        // tasks that were reserved ahead, and have a slot now
	Return      []Task        // tasks to give back to their queues
}

// Allocation lets a source reserve tasks of one queue for one version of its plugin: one task for each slot, and others
// ahead of free slots. If Reconcile is true, the source instead compares the queue's reserved list with the host's
// tasks, and there may be no slots and no Version.
type Allocation struct {
	Queue
	Version   *Version // retained for the allocation
	Reconcile bool

	queue  *queue
	shares []*share
	ahead  int
	wakes  uint64 // Scheduler.wakes when the allocation was made, to detect later events
}

// Slots returns how many of the tasks get a slot as soon as they are reserved.
func (a *Allocation) Slots() int { return len(a.shares) }

// Tasks returns how many tasks to reserve, with a slot or ahead of one.
func (a *Allocation) Tasks() int { return len(a.shares) + a.ahead }

// Release releases the version that the allocation retains.
func (a *Allocation) Release() {
	if a.Version != nil {
		a.Version.Code.Release()
	}
}

// Slot makes the Slot of a task that was reserved for the allocation. arrived is when the reply with the task came.
func (a *Allocation) Slot(arrived time.Time) Slot {
	return Slot{Queue: a.Queue, queue: a.queue, version: a.Version, arrived: arrived}
}

// plan is the state of one call of Plan, which holds the scheduler's mu.
type plan struct {
	*Scheduler
	now          time.Time
	sources      map[Source]*sourcePlan // State is called once per source, which may have thousands of queues
	recent       *sourcePlan
	recentSource Source
	allocations  map[*queue]*Allocation
	tenants      []*tenant // those that have an active queue
	round        Round
}

// sourcePlan is the state of a source during a plan.
type sourcePlan struct {
	available, reserving bool
	expected             time.Duration // how long to wait for a reserve that is on its way; 0 or less if not any more
	unsettled            int           // tasks that wait to be settled: see queue.heldBack
	given                int           // slots that this plan has given to the source
}

// Plan gives the free slots to queues. It does no I/O; the caller carries out the round. It passes each Allocation of
// Work to Reserved or Cancel, and calls Release for those in Idle.
func (s *Scheduler) Plan(now time.Time) Round {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &plan{Scheduler: s, now: now, sources: make(map[Source]*sourcePlan), allocations: make(map[*queue]*Allocation)}
	p.round.Work = make(map[Source]*Work)
	s.plans++
	s.accrue(now)
	p.returnLate()
	for _, t := range s.late {
		w := p.work(t.slot().queue.source)
		w.Return = append(w.Return, t)
	}
	s.late = nil
	candidates, expected, unsure := p.candidates()
	s.last = lastPlan{crowded: len(candidates) > s.config.Slots}
	if len(candidates) == 1 {
		s.last.single = candidates[0]
	}
	if q := s.queues[s.admission.begin(len(s.served) > 1)]; q != nil {
		if (!p.source(q).available || !q.wants(now)) && len(q.ahead) == 0 {
			s.admission.forget(q.Queue) // so that other queues do not wait behind it for memory
		}
	}
	full := p.pick(slices.Concat(candidates, expected))
	s.admission.picked()
	p.lookAhead(candidates)
	for _, q := range unsure {
		if p.allocations[q] == nil {
			p.allocations[q] = &Allocation{Queue: q.Queue, queue: q, Reconcile: true, wakes: s.wakes}
		}
	}
	for q, a := range p.allocations {
		if a.Tasks() == 0 && !a.Reconcile {
			p.round.Idle = append(p.round.Idle, a)
			continue
		}
		q.unsure = false // set again if reconciling fails, or by Reconcile
		w := p.work(q.source)
		w.Allocations = append(w.Allocations, a)
		if source := s.served[q.source]; source != nil {
			source.asked = now
		}
	}
	for _, w := range p.round.Work {
		p.round.More = p.round.More || len(s.served) > 1 && len(w.Allocations)+len(w.Begin) > 0
	}
	if full && len(s.load.shares) > 0 { // the load may not be full any more when the oldest share ceases to count
		p.replan(aheadTime - now.Sub(s.load.shares[0].since))
	}
	return p.round
}

// work returns the work of a source in this round.
func (p *plan) work(s Source) *Work {
	w := p.round.Work[s]
	if w == nil {
		w = new(Work)
		p.round.Work[s] = w
	}
	return w
}

// source returns the state of a queue's source.
func (p *plan) source(q *queue) *sourcePlan {
	if p.recent != nil && p.recentSource == q.source { // spares a look-up for each of many queues
		return p.recent
	}
	s := p.sources[q.source]
	if s == nil {
		s = new(sourcePlan)
		s.available, s.reserving = q.source.State(p.now)
		if source := p.served[q.source]; source != nil && s.available && s.reserving && len(p.served) > 1 {
			s.expected = source.waits(p.now)
		}
		p.sources[q.source] = s
	}
	p.recent, p.recentSource = s, q.source
	return s
}

// replan asks for another plan after this time at the latest.
func (p *plan) replan(wait time.Duration) {
	if p.round.Next == 0 || wait < p.round.Next {
		p.round.Next = max(wait, 1)
	}
}

// mayAsk reports whether the queue can get an allocation in this round, if only to be reconciled.
func (p *plan) mayAsk(q *queue) bool {
	s := p.source(q)
	return s.available && !s.reserving && q.wants(p.now)
}

// mayReserve reports whether tasks of the queue can be reserved in this round.
func (p *plan) mayReserve(q *queue) bool { return !q.leaving && q.returning == 0 && p.mayAsk(q) }

// candidates lists the active queues that may have tasks, here or in Redis, and the queues to reconcile. It also counts
// the unsettled tasks that hold back their sources. expected are queues that can get slots when a reserve has ended
// that is on its way.
func (p *plan) candidates() (candidates, expected, unsure []*queue) {
	for i := 0; i < len(p.active); {
		q := p.active[i]
		if q.idle() {
			p.deactivate(q) // another queue takes its place in the list
			p.admission.forget(q.Queue)
			continue
		}
		i++
		p.found(q, q.ready() || len(q.ahead) > 0)
		source := p.source(q)
		source.unsettled += q.heldBack(p.config.MaxSettle)
		if left := q.refused.Left(p.now); left > 0 {
			if q.ready() || q.unsure {
				p.replan(left)
			}
		} else if source.available && !source.reserving && q.wants(p.now) {
			if q.unsure {
				unsure = append(unsure, q)
			}
			if !q.leaving && q.returning == 0 { // as mayReserve
				candidates = append(candidates, q)
				continue
			}
		} else if source.expected > 0 && q.wants(p.now) && !q.leaving && len(q.ahead) == 0 {
			expected = append(expected, q)
		}
		if len(q.ahead) > 0 {
			candidates = append(candidates, q)
		}
	}
	p.level()
	return candidates, expected, unsure
}

// pick gives the free slots to queues, one at a time: see fair.go. A queue that cannot have the slot is passed over
// from then on. full reports that a queue was passed over because short tasks keep all places for guests busy.
//
// If it is the turn of a tenant whose reserve is on its way, the slot waits for it, unless places for guests would be
// idle. Else a tenant with a large weight would lose each slot that becomes free during its reserves.
func (p *plan) pick(candidates []*queue) (full bool) {
	free := p.config.Slots - p.inUse
	if free <= 0 {
		return false
	}
	for tenants := p.order(candidates, (*flow).before); free > 0 && tenants.Len() > 0; {
		t := tenants.list[0]
		q := t.queues.list[0]
		if s := p.source(q); s.reserving && len(q.ahead) == 0 && p.inUse >= int(p.load.places) && p.hasRoom(s, free) {
			p.replan(s.expected)
			free--
			s.given++
			t.expected += p.rateOf(q)
			heap.Fix(&tenants, 0)
			continue
		}
		clock, clockOfQueues := t.virtual, q.virtual
		given := p.hasRoom(p.source(q), free)
		if given && q.pace.short() && q.mayWait && p.load.full(p.now, p.inUse) {
			full, given = true, false
		}
		if given && p.give(q) {
			free--
			p.source(q).given++
			p.clock, t.clock = max(p.clock, clock), max(t.clock, clockOfQueues)
			heap.Fix(&t.queues, 0)
			heap.Fix(&tenants, 0)
			continue
		}
		heap.Pop(&t.queues)
		if t.queues.Len() == 0 {
			heap.Pop(&tenants)
		}
	}
	return full
}

// hasRoom reports whether a source can get one of the free slots. If there are several sources, one plan gives each at
// most half of all slots, because a source whose Redis hangs must not get them all. A source gets fewer if it has more
// unsettled tasks than there are slots; queue.heldBack says which tasks count.
func (p *plan) hasRoom(s *sourcePlan, free int) bool {
	most := p.config.Slots
	if len(p.served) > 1 {
		most = (most + 1) / 2
	}
	return s.given < min(most, free+s.given-max(0, s.unsettled-p.config.Slots))
}

// give gives the queue one more slot: for the oldest of its waiting tasks, or else for a task to reserve. It reports
// whether the queue got the slot.
func (p *plan) give(q *queue) bool {
	if len(q.ahead) > 0 {
		t := p.startAhead(q, p.now)
		if t != nil {
			w := p.work(q.source)
			w.Begin = append(w.Begin, t)
		}
		return t != nil
	}
	a := p.allocation(q)
	if a == nil || len(a.shares) >= p.config.MaxReserve {
		return false
	}
	part := p.occupy(q, a.Version, p.now)
	if part != nil {
		a.shares = append(a.shares, part)
	}
	return part != nil
}

// allocation returns the queue's allocation in this round, and makes it if there is none. It returns nil if no task of
// the queue can be reserved.
func (p *plan) allocation(q *queue) *Allocation {
	if p.allocations[q] == nil && p.mayReserve(q) {
		if version := p.config.Acquire(q.Queue); version != nil { // nil if no plugin serves the queue any more
			q.bound, q.mayWait = version.Concurrency, version.MayWait
			p.allocations[q] = &Allocation{Queue: q.Queue, queue: q, Version: version, Reconcile: q.unsure, wakes: p.wakes}
		}
	}
	return p.allocations[q]
}
