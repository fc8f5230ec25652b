package schedule

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
	"time"
)

// A slot goes to the tenant whose tasks have cost least for its weight, and then to the queue of this tenant whose
// tasks have cost least for its weight.
const (
	// horizon is how far ahead the tasks count that have slots now. So slots that are free at the same time go to
	// different tenants, and a tenant with long tasks in half of the slots gets no more beside a tenant that has none.
	horizon = 50 * time.Millisecond
	// maxCredit bounds how far a tenant or queue that has tasks, but cannot use its share, falls behind the others. It is
	// time of the whole host.
	maxCredit = 250 * time.Millisecond
	// costInterval is the minimum time between two updates of what running tasks have cost so far.
	costInterval = 5 * time.Millisecond
	// A free slot waits for a tenant whose turn it is while a reserve of the tenant is on its way: for reserveWait, or for
	// slowReserve times as long as the tenant's reserves take on average, but at most for maxReserveWait.
	reserveWait    = 2 * time.Millisecond
	slowReserve    = 3
	maxReserveWait = 20 * time.Millisecond
	// leastComputed is the processor time that a task costs at least: about what the host itself spends on a task.
	leastComputed = 50 * time.Microsecond

	// DefaultWeight is the weight of tenants and queues that have none.
	DefaultWeight = 1
)

// flow is a tenant that competes with others for slots, or a queue that competes with the other queues of its tenant.
// Costs are in seconds of the whole host.
type flow struct {
	weight   float64
	virtual  float64 // the flow's virtual time: what its tasks have cost, divided by weight
	rate     float64 // what the tasks that have slots cost in a second, together
	expected float64 // rate of the tasks for which slots wait in this plan
	running  int     // slots that run tasks of the flow, or are allocated to it
	turn     uint64  // Scheduler.turns when the flow's last turn ended; of equals, the one with the lowest number is next
	waits    bool    // the last plan found that the flow has tasks that wait for slots
}

// place returns the virtual time that the flow will have when its tasks have run on for the horizon.
func (f *flow) place() float64 { return f.virtual + (f.rate+f.expected)*horizon.Seconds()/f.weight }

// before reports whether the flow gets the next slot before another one.
func (f *flow) before(other *flow) bool {
	const rounding = 1e-9
	switch a, b := f.place(), other.place(); {
	case math.Abs(a-b) > rounding:
		return a < b
	case f.running != other.running:
		return f.running < other.running
	}
	return f.turn < other.turn
}

// compare compares the turns of two flows: the earlier one is less. Slots that tasks have now do not count.
func (f *flow) compare(other *flow) int {
	return cmp.Or(cmp.Compare(f.virtual, other.virtual), cmp.Compare(f.turn, other.turn))
}

func (f *flow) earlier(other *flow) bool { return f.compare(other) < 0 }

// raise raises the virtual time of a flow to a minimum.
func (f *flow) raise(least float64) { f.virtual = max(f.virtual, least) }

// tenant is a tenant whose queues this host serves or has served; guarded by the scheduler's mu.
type tenant struct {
	flow
	clock   float64            // the virtual time of the queue that got the last slot
	weights map[string]float64 // of its queues; those without an entry have DefaultWeight
	cost    float64            // what its tasks have cost since the start

	plan   uint64        // Scheduler.plans at the last plan that found an active queue of the tenant
	found  bool          // that plan found tasks that wait
	least  float64       // the lowest virtual time of the queues that competed before that plan
	fresh  []*queue      // queues whose tasks did not wait at the plan before
	queues order[*queue] // those that can get slots in this plan
}

// tenant returns the state of a tenant. The caller holds mu.
func (s *Scheduler) tenant(name string) *tenant {
	t := s.tenants[name]
	if t == nil {
		t = &tenant{flow: flow{weight: DefaultWeight}}
		s.tenants[name] = t
	}
	return t
}

// weightOf returns the weight of a queue.
func (t *tenant) weightOf(name string) float64 {
	if w, set := t.weights[name]; set {
		return w
	}
	return DefaultWeight
}

// SetWeights sets the weight of a tenant, and the weights of its queues by name. Queues that are not named have
// DefaultWeight. Weights are at least 1.
func (s *Scheduler) SetWeights(name string, weight int, queues map[string]int) {
	s.update(func() {
		t := s.tenant(name)
		t.weight, t.weights = float64(weight), make(map[string]float64, len(queues))
		for queue, weight := range queues {
			t.weights[queue] = float64(weight)
		}
		for at, q := range s.queues {
			if at.Tenant == name {
				q.weight = t.weightOf(at.Name)
			}
		}
	})
}

// Share is what a tenant has of a host.
type Share struct {
	Weight int
	// Cost is what the tenant's ended tasks have cost since the start, in time of the whole host.
	Cost time.Duration
}

// Shares returns the share of each tenant.
func (s *Scheduler) Shares() map[string]Share {
	s.mu.Lock()
	defer s.mu.Unlock()
	shares := make(map[string]Share, len(s.tenants))
	for name, t := range s.tenants {
		shares[name] = Share{Weight: int(t.weight), Cost: time.Duration(t.cost * float64(time.Second))}
	}
	return shares
}

// Run describes a run of a task, for what it costs.
type Run struct {
	Took     time.Duration // how long the guest ran; Unknown if the task was stopped before its guest began
	Waited   time.Duration // the part of Took in which the guest waited for a service, or slept
	Computed time.Duration // processor time
	Result   int           // bytes of the result, which the host keeps until Settled
}

// costOf returns what a run has cost: the largest of its shares of the host's processors, memory and slots, in seconds
// of the whole host. The time in which the guest waited for other guests does not count, because they caused it.
func (s *Scheduler) costOf(r *Run, part *share, now time.Time) float64 {
	computed := max(r.Computed, leastComputed)
	held := r.Computed + r.Waited
	if r.Took == Unknown {
		held = now.Sub(part.begun)
	}
	cost := max(computed.Seconds()/s.load.places, held.Seconds()/float64(s.config.Slots))
	if s.config.Memory > 0 {
		cost = max(cost, held.Seconds()*float64(part.limit)/float64(s.config.Memory))
	}
	return cost
}

// charge adds a cost to the virtual times of a queue and its tenant. During a turn of the queue the cost is only noted,
// so that the queue and the tenant keep their places. The caller holds mu.
func (s *Scheduler) charge(q *queue, cost float64) {
	if q.owed += cost; !q.taking {
		q.pay()
	}
}

// pay adds to the virtual times what the tasks of a turn have cost.
func (q *queue) pay() {
	q.virtual += q.owed / q.weight
	q.tenant.virtual += q.owed / q.tenant.weight
	q.owed = 0
}

// rateOf returns what the next task of a queue is expected to cost in a second.
func (s *Scheduler) rateOf(q *queue) float64 {
	if q.pace.rate > 0 {
		return q.pace.rate
	}
	return 1 / float64(s.config.Slots)
}

// occupies counts a slot that the queue has got, and charges what a short task will cost. A long task is charged while
// it runs: see accrue. The caller holds mu.
func (s *Scheduler) occupies(q *queue, part *share) {
	part.rate = s.rateOf(q)
	if q.pace.short() {
		part.paid = q.pace.cost
		q.taking = true
	}
	s.charge(q, part.paid)
	for _, f := range [...]*flow{&q.flow, &q.tenant.flow} {
		f.running++
		f.rate += part.rate
	}
	part.queue, part.index = q, len(s.shares)
	s.shares = append(s.shares, part)
}

// leaves counts a slot that the queue has no more, and charges the rest of what its task has cost. The caller holds mu.
func (s *Scheduler) leaves(q *queue, part *share, cost float64) {
	s.charge(q, cost-part.paid)
	for _, f := range [...]*flow{&q.flow, &q.tenant.flow} {
		f.rate -= part.rate
		if f.running--; f.running == 0 {
			f.rate = 0 // drop rounding errors
		}
	}
	last := len(s.shares) - 1
	s.shares[part.index], s.shares[last].index = s.shares[last], part.index
	s.shares[last] = nil
	s.shares = s.shares[:last]
}

// accrue charges what the running tasks have cost so far, at the rate of the earlier tasks of their queues. leaves
// corrects it. The caller holds mu.
func (s *Scheduler) accrue(now time.Time) {
	if now.Sub(s.accrued) < costInterval {
		return
	}
	s.accrued = now
	for _, part := range s.shares {
		if part.begun.IsZero() {
			continue
		}
		if cost := part.rate * now.Sub(part.begun).Seconds(); cost > part.paid {
			s.charge(part.queue, cost-part.paid)
			part.paid = cost
		}
	}
}

// found records whether a plan found that tasks of an active queue wait.
func (p *plan) found(q *queue, waits bool) {
	t := q.tenant
	if t.plan != p.plans {
		t.waits = t.waits && t.plan == p.plans-1 // else the tenant had no active queue at the last plan
		t.plan, t.found, t.least = p.plans, false, math.Inf(1)
		t.fresh, t.expected = t.fresh[:0], 0
		p.tenants = append(p.tenants, t)
	}
	t.found = t.found || waits
	switch {
	case waits && !q.waits:
		t.fresh = append(t.fresh, q)
	case waits || q.running > 0:
		t.least = min(t.least, q.virtual)
	}
	q.rest(waits)
}

// rest records whether tasks of a queue wait. If none does, the queue's turn is over.
func (q *queue) rest(waits bool) {
	if q.waits = waits; !waits {
		q.taking = false
		q.pay()
	}
}

// level gives tenants and queues whose tasks have begun to wait the lowest virtual time of those that compete already:
// who uses nothing of a share saves nothing of it.
func (p *plan) level() {
	least := math.Inf(1)
	for _, t := range p.tenants {
		if t.waits || !t.found && t.running > 0 {
			least = min(least, t.virtual)
		}
	}
	if !math.IsInf(least, 1) {
		p.clock = max(p.clock, least)
	}
	for _, t := range p.tenants {
		if t.found && !t.waits {
			t.raise(p.clock)
		}
		t.waits = t.found
		t.raise(p.clock - maxCredit.Seconds()/t.weight)
		if !math.IsInf(t.least, 1) {
			t.clock = max(t.clock, t.least)
		}
		for _, q := range t.fresh {
			q.raise(t.clock)
		}
		clear(t.fresh)
	}
}

// order makes a heap of the tenants of queues, and a heap of the queues of each tenant.
func (p *plan) order(candidates []*queue, before func(a, b *flow) bool) (tenants order[*tenant]) {
	tenants.before = before
	for _, t := range p.tenants {
		t.queues = order[*queue]{list: t.queues.list[:0], before: before}
	}
	for _, q := range candidates {
		t := q.tenant
		if t.queues.Len() == 0 {
			tenants.list = append(tenants.list, t)
		}
		t.queues.list = append(t.queues.list, q)
	}
	for _, t := range tenants.list {
		heap.Init(&t.queues)
	}
	heap.Init(&tenants)
	return tenants
}

// next lists up to n queues in the order of their turns, a queue of each tenant in turns.
func (p *plan) next(candidates []*queue, n int) (queues []*queue) {
	tenants := p.order(candidates, (*flow).earlier)
	slices.SortFunc(tenants.list, func(a, b *tenant) int { return a.compare(&b.flow) })
	for n = min(n, len(candidates)); len(queues) < n; {
		for _, t := range tenants.list {
			if len(queues) < n && t.queues.Len() > 0 {
				queues = append(queues, t.queues.list[0])
				heap.Pop(&t.queues)
			}
		}
	}
	return queues
}

// order is a heap of tenants or queues.
type order[C interface{ competes() *flow }] struct {
	list   []C
	before func(a, b *flow) bool
}

func (t *tenant) competes() *flow { return &t.flow }
func (q *queue) competes() *flow  { return &q.flow }

func (o *order[C]) Len() int           { return len(o.list) }
func (o *order[C]) Less(i, j int) bool { return o.before(o.list[i].competes(), o.list[j].competes()) }
func (o *order[C]) Swap(i, j int)      { o.list[i], o.list[j] = o.list[j], o.list[i] }
func (o *order[C]) Push(any)           {} // nothing is added to a heap

func (o *order[C]) Pop() any {
	o.list = o.list[:len(o.list)-1]
	return nil
}
