package schedule

import (
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/host/account"
)

// Source is the listener under whose ID the tasks of some queues are reserved. Both methods are called with the
// scheduler's lock held, so they must not call the Scheduler.
type Source interface {
	// State reports whether the source can reserve now, and whether a reserve is on its way.
	State(now time.Time) (available, reserving bool)
	// AddAhead adds n to the number of the source's tasks that wait here for a slot. n can be negative.
	AddAhead(n int)
}

// Version is a version of a plugin that serves a queue, with the bounds that its manifest and the tenant's grants set.
type Version struct {
	Code        Code
	Plugin      Plugin
	Concurrency int   // maximum number of the plugin's tasks that run at a time on this host; 0: no bound
	Memory      int64 // maximum memory of a task, in bytes
	MayWait     bool  // tasks can be reserved ahead of free slots
}

// Plugin names a plugin; Tenant is "" if it serves every tenant.
type Plugin struct{ Tenant, Name string }

// Code is the code of a Version, and is retained with it. All tasks of the code start from one snapshot.
type Code interface {
	// PendingSnapshot returns the maximum memory of the snapshot, in bytes, if the next task has to build it. It returns
	// 0 if the snapshot is built.
	PendingSnapshot() int64
	Release()
}

// Config has the settings of a Scheduler. All fields but Memory, Account and Logger are required.
type Config struct {
	Slots                 int   // how many tasks run at a time
	Guests                int   // how many guests compute at a time
	Memory                int64 // maximum memory of running tasks, in bytes; 0: no bound
	Account               *account.Account
	Logger                hclog.Logger
	MaxReserve, MaxSettle int // maximum number of tasks of one queue that one call reserves, or settles
	// Acquire returns the version that serves a queue, and retains it; nil if there is none.
	Acquire func(Queue) *Version
	// Running is called when the number of slots that run a task may have changed, and Wake when there may be something
	// to plan. Both may be called with the scheduler's lock held, and must not block.
	Running func(n int)
	Wake    func()
}

// Scheduler decides which queue gets the next free slot. Events change what it knows, and Plan decides. It does no I/O
// and has no timers. Its methods are safe for concurrent use.
type Scheduler struct {
	config Config

	// mu guards the fields below. While it is held, Acquire and PendingSnapshot take locks of packages plugins and
	// runtime, and sources take their own locks. No other locks are taken.
	mu        sync.Mutex
	admission *admission
	slots
	queues map[Queue]*queue
	active []*queue // the queues that plans look at: thousands of others may be idle
	served map[Source]*serving
	ahead  int    // tasks that wait for a slot
	late   []Task // tasks to give back with the next round
	last   lastPlan
	wakes  uint64 // number of events from outside so far
	turns  uint64 // number of turns that have ended so far
	plans  uint64 // number of plans so far

	tenants map[string]*tenant
	clock   float64   // the virtual time of the tenant that got the last slot
	accrued time.Time // when the running tasks were last charged
}

// serving is a source whose queues are served.
type serving struct {
	queues int       // number of its queues
	asked  time.Time // when it last got allocations
	// took is a moving average of the time from the allocations to the tasks.
	took time.Duration
}

// waits returns how much longer a slot waits for the tasks of a reserve that is on its way.
func (s *serving) waits(now time.Time) time.Duration {
	return min(max(reserveWait, slowReserve*s.took), maxReserveWait) - now.Sub(s.asked)
}

// slots counts the slots of a host.
type slots struct {
	inUse     int            // slots that run a task, or are allocated
	plugins   map[Plugin]int // slots in use, by plugin
	running   int            // slots that run a task
	lastStart time.Time      // when a slot last got a task
	load      load           // how busy short tasks keep the places for guests
	shares    []*share       // of the slots in use
}

// lastPlan has what later events must know of the last plan.
type lastPlan struct {
	refillAt int    // Ended asks for a plan once at most this many tasks wait for a slot
	single   *queue // the only candidate; nil if there were several
	crowded  bool   // there were more candidates than slots: each queue keeps a slot for its turn
}

// share is the memory that one task can use, and its part of the places for guests.
type share struct {
	tenant   string
	bytes    int64
	snapshot int64     // the part of bytes for the snapshot that the task builds
	epoch    uint64    // the value of admission.epoch when the share was given
	load     float64   // how busy the task is expected to keep a place; 0 if the task does not count: see type load
	since    time.Time // when the task got its slot, if it counts for load
	turn     uint64    // the value of queue.turn when the task got its slot

	queue *queue
	index int       // in slots.shares
	limit int64     // maximum memory of the task, in bytes
	begun time.Time // when the task began to run; zero while its reserve is on its way
	rate  float64   // what the task is expected to cost in a second
	paid  float64   // what was charged for the task so far
}

// Slot links a reserved task to its queue and, once the task runs, to its share. A Task embeds a Slot, which
// Allocation.Slot makes.
type Slot struct {
	Queue Queue

	queue   *queue
	version *Version
	share   *share
	arrived time.Time
	returns bool // the task got no share, and goes back to its queue
}

// Task is a reserved task. It embeds a Slot.
type Task interface{ slot() *Slot }

func (s *Slot) slot() *Slot { return s }

// Reply describes how a reserve ended.
type Reply struct {
	Failed  bool // the host does not know which tasks were reserved
	Refused bool // the reserve failed because of this queue alone
	More    bool // there may be tasks behind IDs that were dropped or passed over
	// Elsewhere reports that the reserve found only tasks that other hosts must run. They come again and again, so the
	// queue pauses, longer each time. Early reports that tasks for this host may be behind them: then each pause is short.
	Elsewhere, Early bool
}

// Status is a summary of a scheduler.
type Status struct {
	Queues    int // queues that are served, or are being left
	Busy      int // queues that may have tasks in Redis, or are to be reconciled
	InUse     int // slots that run a task, or are allocated
	Running   int // slots that run a task
	Ahead     int // tasks that wait for a slot
	LastStart time.Time
	Memory    int64         // what running tasks and unsettled results can use, in bytes
	Waited    time.Duration // the sum of all waits for memory since the start
}

// New makes a scheduler without queues.
func New(config Config) *Scheduler {
	if config.Logger == nil {
		config.Logger = hclog.NewNullLogger()
	}
	s := &Scheduler{
		config: config, admission: newAdmission(config.Memory, config.Account, config.Logger),
		queues: make(map[Queue]*queue), served: make(map[Source]*serving),
		tenants: make(map[string]*tenant),
		slots: slots{
			plugins: make(map[Plugin]int), lastStart: time.Unix(0, 0),
			load: load{places: float64(min(config.Guests, config.Slots))},
		},
	}
	config.Account.OnFreed(func() {
		if s.admission.waits.Load() {
			config.Wake()
		}
	})
	return s
}

// Status counts queues, slots and tasks.
func (s *Scheduler) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	status := Status{
		Queues: len(s.queues), InUse: s.inUse, Running: s.running, Ahead: s.ahead, LastStart: s.lastStart,
		Memory: s.admission.used, Waited: s.admission.waitedUntil(time.Now()),
	}
	for _, q := range s.active {
		if q.ready() || q.unsure {
			status.Busy++
		}
	}
	return status
}

// End returns the tasks that wait for a slot, by source. Plan must not be called afterwards.
func (s *Scheduler) End() map[Source][]Task {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, q := range s.active {
		s.returnAhead(q)
	}
	waiting := make(map[Source][]Task)
	for _, t := range s.late {
		from := t.slot().queue.source
		waiting[from] = append(waiting[from], t)
	}
	s.late = nil
	return waiting
}

// occupy gives the queue one more slot, and returns the share for it. It returns nil if the plugin's bound or the
// memory does not allow another task. The caller holds mu.
func (s *Scheduler) occupy(q *queue, v *Version, now time.Time) *share {
	if v.Concurrency > 0 && s.plugins[v.Plugin] >= v.Concurrency {
		return nil
	}
	part := s.admission.admit(q.Queue, v.Memory)
	if part == nil {
		return nil
	}
	s.admission.expect(v.Code, part)
	s.load.add(part, q.pace, now)
	part.turn, part.limit = q.turn, v.Memory
	s.inUse++
	s.plugins[v.Plugin]++
	s.occupies(q, part)
	if q.inTurn--; q.inTurn <= 0 || !q.pace.short() {
		s.endTurn(q)
	}
	return part
}

// started counts n tasks that have just got their slots, and reports how many slots run a task. The caller holds mu.
func (s *Scheduler) started(n int, now time.Time) {
	if s.running += n; n > 0 {
		s.lastStart = now
	}
	s.config.Running(s.running)
}

// Reserved ends an allocation whose reserve has ended. The first of the tasks get the allocation's slots, and are
// returned. The other tasks wait for a slot.
func (s *Scheduler) Reserved(a *Allocation, tasks []Task, reply Reply, now time.Time) (begun []Task) {
	s.mu.Lock()
	q := a.queue
	begun = tasks[:min(len(tasks), len(a.shares))]
	s.activate(q)
	for i, t := range begun {
		t.slot().share = a.shares[i]
		a.shares[i].begun = now
	}
	if source := s.served[q.source]; source != nil && !reply.Failed {
		source.took += (now.Sub(source.asked) - source.took) / 8
	}
	s.freeSlots(a, len(begun))
	s.keepAhead(q, tasks[len(begun):])
	switch {
	case reply.Failed:
		q.unsure = true
		if reply.Refused || a.Version == nil { // otherwise the source itself pauses
			q.refused.Failed(now)
		}
	case a.Reconcile && q.leaving && !q.unsure:
		s.drop(q)
	case !a.Reconcile:
		// Fewer tasks than asked for mean that there are no more, except for those announced meanwhile, and those
		// behind IDs that were dropped.
		if len(tasks) == a.Tasks() {
			s.wakes++
			q.woken = s.wakes // an older poll does not show whether tasks are left
		}
		reply.More = reply.More || q.woken > a.wakes
		if !reply.Elsewhere || reply.Early {
			q.refused.Succeeded()
		}
		if reply.Elsewhere {
			q.refused.Failed(now)
		}
	}
	q.reserved(len(tasks) > 0, reply.More || reply.Failed || a.Reconcile)
	if (reply.Failed || !q.ready()) && s.queues[q.Queue] == q { // otherwise the queue was dropped, or is served anew
		s.admission.forget(q.Queue)
	}
	s.started(len(begun), now)
	s.mu.Unlock()
	a.Release()
	s.config.Wake()
	return begun
}

// reserved changes the backlog after a reserve. tasks reports that the reserve brought tasks, and more that there may
// be others.
func (q *queue) reserved(tasks, more bool) {
	switch {
	case tasks && more:
		q.apply(gotMore)
	case tasks:
		q.apply(gotLast)
	case more:
		q.apply(gotUnsure)
	default:
		q.apply(gotNone)
	}
}

// Cancel ends an allocation for which no reserve was sent.
func (s *Scheduler) Cancel(a *Allocation) {
	s.mu.Lock()
	s.freeSlots(a, 0)
	a.queue.unsure = a.queue.unsure || a.Reconcile
	s.activate(a.queue)
	s.mu.Unlock()
	a.Release()
	s.config.Wake()
}

// freeSlots frees the slots that an allocation did not use. The caller holds mu.
func (s *Scheduler) freeSlots(a *Allocation, used int) {
	for _, part := range a.shares[used:] {
		s.admission.release(part)
		s.freeSlot(a.queue, a.Version, part, 0)
	}
}

// freeSlot frees one slot, whose task has cost so much. The caller holds mu.
func (s *Scheduler) freeSlot(q *queue, v *Version, part *share, cost float64) {
	s.load.remove(part)
	s.inUse--
	s.leaves(q, part, cost)
	if s.plugins[v.Plugin]--; s.plugins[v.Plugin] == 0 {
		delete(s.plugins, v.Plugin)
	}
}

// Ended frees the slot of a task that has run. It also frees the task's memory, except for the bytes of its result,
// which Settled frees. The task still retains its version.
//
// If a task of the same queue waits for a slot, it can get this slot at once; Ended then returns it. This happens only
// if the last plan had no other queue to serve, or had more queues than slots and the queue's turn is not over.
func (s *Scheduler) Ended(of *Slot, run Run, now time.Time) (next Task) {
	s.mu.Lock()
	s.admission.ended(of.share, int64(run.Result))
	q, cost := of.queue, s.costOf(&run, of.share, now)
	s.freeSlot(q, of.version, of.share, cost)
	q.tenant.cost += cost
	q.pace.record(run.Took, run.Waited)
	q.pace.recordCost(cost, now.Sub(of.share.begun))
	if q.inTurn > 1 && !q.pace.short() {
		s.endTurn(q)
	}
	q.unsettled++
	s.running--
	keepsSlot := s.last.single == q || s.last.crowded && of.share.turn == q.turn
	if keepsSlot && len(q.ahead) > 0 && q.pace.short() && !q.leaving && !q.blocked &&
		q.heldBack(s.config.MaxSettle) <= s.config.Slots && !s.load.full(now, s.inUse) {
		next = s.startAhead(q, now)
	}
	if next == nil {
		s.started(0, now)
	}
	wake := next == nil || s.ahead <= s.last.refillAt
	s.mu.Unlock()
	if wake {
		s.config.Wake()
	}
	return next
}

// update calls change, which changes the state under mu, and asks for a plan.
func (s *Scheduler) update(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	s.config.Wake()
}

// updateQueue calls change under mu with a queue, if the queue is served, and asks for a plan.
func (s *Scheduler) updateQueue(at Queue, change func(*queue)) {
	s.update(func() {
		if q := s.queues[at]; q != nil {
			change(q)
			s.activate(q)
		}
	})
}

// Settled frees the memory that the results of tasks kept.
func (s *Scheduler) Settled(of ...*Slot) {
	s.update(func() {
		for _, slot := range of {
			s.admission.release(slot.share)
			slot.queue.unsettled--
			if slot.returns {
				slot.queue.returning--
			}
		}
	})
}

// wake applies an event that came from outside. The caller holds mu.
func (s *Scheduler) wake(q *queue, e event) {
	s.wakes++
	q.woken = s.wakes
	q.apply(e)
}

// Announced records the arrival of a message that a queue has tasks.
func (s *Scheduler) Announced(at Queue) {
	s.updateQueue(at, func(q *queue) { s.wake(q, announced) })
}

// Wakes counts the events that may have brought tasks. Read it before a poll and pass it to PolledEmpty, which ignores
// the poll if the queue has had such an event since.
func (s *Scheduler) Wakes() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wakes
}

// Polled records that a poll saw tasks, and reports whether they were unannounced.
func (s *Scheduler) Polled(at Queue) (unannounced bool) {
	s.updateQueue(at, func(q *queue) {
		unannounced = q.backlog == Empty
		s.wake(q, polled)
	})
	return unannounced
}

// PolledEmpty records that a poll found a queue empty. wakes is what Wakes returned before the poll. An empty queue no
// longer waits for memory.
func (s *Scheduler) PolledEmpty(at Queue, wakes uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if q := s.queues[at]; q != nil && q.woken <= wakes {
		q.apply(polledEmpty)
		s.admission.forget(at)
	}
}

// Idle lists the queues of a tenant from which nothing is reserved until a message or a poll: those whose backlog is
// Empty, and those whose backlog is Stalled.
func (s *Scheduler) Idle(tenant string) (empty, stalled []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, q := range s.queues {
		switch {
		case at.Tenant != tenant || q.leaving:
		case q.backlog == Empty:
			empty = append(empty, at.Name)
		case q.backlog == Stalled:
			stalled = append(stalled, at.Name)
		}
	}
	return empty, stalled
}

// WaitsForMemory lists the queues of a tenant whose next task does not fit into the memory.
func (s *Scheduler) WaitsForMemory(tenant string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.admission.waitingOf(tenant)
}

// Reconcile makes the next round compare a queue's reserved list with the tasks on this host, even if the session has
// left the queue.
func (s *Scheduler) Reconcile(at Queue, from Source) {
	s.update(func() {
		q := s.queues[at]
		if q == nil {
			q = s.add(&queue{Queue: at, source: from, standing: standing{leaving: true}})
		}
		q.unsure = true
		s.activate(q)
	})
}

// Block records whether results of a queue's tasks cannot be written.
func (s *Scheduler) Block(at Queue, blocked bool) {
	s.updateQueue(at, func(q *queue) {
		q.blocked = blocked
		if blocked {
			s.admission.forget(at)
		}
	})
}

// Serve adds a queue for which a session has registered its listener.
func (s *Scheduler) Serve(at Queue, from Source) {
	s.update(func() {
		before := s.queues[at]
		if before != nil {
			s.drop(before)
		}
		s.activate(s.add(&queue{
			Queue: at, source: from, backlog: Ready,
			standing: standing{unsure: before != nil && before.unsure},
		}))
	})
}

// Leave stops reserving from a queue. Tasks of the queue that run go on. Tasks in its reserved list that the host does
// not know are given back.
func (s *Scheduler) Leave(at Queue) {
	s.updateQueue(at, func(q *queue) {
		s.admission.forget(at)
		q.leaving, q.unsure = true, true
	})
}

// Abandon drops all queues of a source that has left, or has lost its lease.
func (s *Scheduler) Abandon(from Source) {
	s.update(func() {
		for _, q := range s.queues {
			if q.source == from {
				s.drop(q)
			}
		}
	})
}

// add adds a queue that the scheduler does not have. The caller holds mu.
func (s *Scheduler) add(q *queue) *queue {
	q.tenant = s.tenant(q.Tenant)
	q.weight = q.tenant.weightOf(q.Name)
	s.queues[q.Queue] = q
	if s.served[q.source] == nil {
		s.served[q.source] = new(serving)
	}
	s.served[q.source].queues++
	return q
}

// activate makes plans look at a queue until it is idle. The caller holds mu.
func (s *Scheduler) activate(q *queue) {
	if s.queues[q.Queue] == q && q.active == 0 {
		s.active = append(s.active, q)
		q.active = len(s.active)
	}
}

// deactivate makes plans not look at a queue any more. The caller holds mu.
func (s *Scheduler) deactivate(q *queue) {
	q.rest(false)
	if q.active > 0 {
		last := len(s.active) - 1
		s.active[q.active-1], s.active[last].active = s.active[last], q.active
		s.active, q.active = slices.Delete(s.active, last, last+1), 0
	}
}

// drop removes a queue, unless another one has taken its place. The caller holds mu.
func (s *Scheduler) drop(q *queue) {
	if s.queues[q.Queue] == q {
		s.admission.forget(q.Queue)
		s.returnAhead(q)
		s.deactivate(q)
		delete(s.queues, q.Queue)
		if s.served[q.source].queues--; s.served[q.source].queues == 0 {
			delete(s.served, q.source)
		}
	}
}
