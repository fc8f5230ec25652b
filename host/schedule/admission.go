package schedule

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/host/account"
)

// admission bounds the memory that running tasks may use together with the memory of the cache. A queue whose task does
// not fit waits for running tasks to end. Meanwhile other queues go on, but the tasks that they begin must leave room
// for the waiting task: small tasks cannot starve it, and it does not stop them while a long task runs.
//
// Memory that the account has reserved beside tasks, such as payloads of webhooks, counts as well.
//
// If several tenants are served, a tenant whose tasks run leaves a part of the memory to tenants that run nothing:
// these need not wait for the end of another tenant's task.
//
// The Evictor frees idle memory of the cache when a task does not fit. If that is not enough, and no older task runs
// that the waiting one could wait for, it is admitted all the same: the cache may hold its own plugin. Guarded by the
// scheduler's mu.
type admission struct {
	total   int64 // 0: no bound
	account *account.Account
	logger  hclog.Logger

	used     int64
	byTenant map[string]int64 // the part of used for each tenant; no entry for 0
	shared   bool             // there are several tenants
	waiting  waiting
	waits    atomic.Bool // a queue waits; read without the scheduler's mu
	// epoch counts the queues that have waited so far. waited is how long those before the present one waited in all.
	epoch  uint64
	waited time.Duration
	// refused are the queues whose last task did not fit, including the waiting one. They take turns: the queue that
	// was refused first is the next to wait. refusals counts the refusals so far, to number them.
	refused  map[Queue]refusedTask
	refusals uint64
	// snapshots are the shares that include room for a snapshot that is not built yet.
	snapshots map[*share]Code

	cache    cacheUse
	exceeded int64 // by how many bytes the last task that was admitted all the same went beyond the bound
	warned   bool  // that was logged
}

// waiting is the queue that waits for memory for its next task; zero: none.
type waiting struct {
	queue    Queue
	need     int64 // the memory of that task
	admitted int64 // memory of the tasks that began since the wait did; their shares have the present epoch
	since    time.Time
}

// cacheUse is the memory of the cache.
type cacheUse struct {
	held     int64 // as last measured
	returned int64 // what tasks have given back since: the cache may have grown by as much
	// shortfall is how much to evict so that one of the tasks that the last plan refused fits; 0 if eviction would help
	// none of them.
	shortfall int64
	exhausted bool          // nothing is idle: the last eviction freed too little, and no task has ended since
	ends      uint64        // tasks that have ended so far
	measure   chan struct{} // has a token when the Evictor should measure; never closed
}

// A tenant whose tasks run leaves 1/sparePart of the memory to other tenants.
const sparePart = 8

// refusedTask is the memory of a queue's task that did not fit, and the number of the queue's first refusal since its
// last admitted task.
type refusedTask struct {
	bytes  int64
	number uint64
}

func newAdmission(total int64, account *account.Account, logger hclog.Logger) *admission {
	return &admission{
		total: total, account: account, logger: logger, byTenant: make(map[string]int64),
		refused: make(map[Queue]refusedTask), snapshots: make(map[*share]Code),
		cache: cacheUse{measure: make(chan struct{}, 1)},
	}
}

// occupied returns the memory that no task can have: what the cache holds, and what is reserved beside tasks.
func (a *admission) occupied() int64 { return a.cache.held + a.account.Reserved() }

// begin begins a plan, and returns which queue waits; shared means that several tenants are served.
func (a *admission) begin(shared bool) Queue {
	a.shared, a.cache.shortfall = shared, 0
	return a.waiting.queue
}

// picked ends a plan. It asks the Evictor to measure if eviction may make room for a refused task, or if the cache may
// have grown beyond half of the memory.
func (a *admission) picked() {
	c := &a.cache
	if c.shortfall > 0 && !c.exhausted || c.returned > 0 && a.used+a.occupied()+c.returned > a.total/2 {
		select {
		case c.measure <- struct{}{}:
		default:
		}
	}
	if a.exceeded > 0 && !a.warned {
		a.warned = true
		a.logger.Warn("--memory is too small for a task together with its plugin's code and snapshot: such tasks run all the same; raise --memory",
			"memory", a.total, "held", c.held, "over", a.exceeded)
	}
}

// admit gives a share to a task of the queue; nil if it does not fit.
func (a *admission) admit(at Queue, bytes int64) *share {
	if a.total > 0 && !a.fits(at, bytes) {
		first, repeated := a.refused[at]
		if !repeated {
			a.refusals++
			first.number = a.refusals
		}
		a.refused[at] = refusedTask{bytes, first.number}
		return nil
	}
	delete(a.refused, at)
	part := &share{tenant: at.Tenant, epoch: a.epoch}
	a.grow(part, bytes)
	return part
}

// grow adds to a share.
func (a *admission) grow(s *share, bytes int64) {
	s.bytes += bytes
	a.used += bytes
	a.byTenant[s.tenant] += bytes
}

// bound returns the memory that tasks may use, occupied memory included, once another task of this tenant has begun.
func (a *admission) bound(tenant string) int64 {
	if a.shared && a.byTenant[tenant] > 0 {
		return a.total - a.total/sparePart
	}
	return a.total
}

// fits reports whether a task fits, and records which queue waits.
func (a *admission) fits(at Queue, bytes int64) bool {
	w := &a.waiting
	sum, occupied, total := a.used+bytes, a.occupied(), a.bound(at.Tenant)
	fits := sum+occupied <= total
	if w.queue == (Queue{}) && !fits {
		next, first := at, a.refused[at]
		for other, task := range a.refused {
			if first.number == 0 || task.number < first.number {
				next, first = other, task
			}
		}
		a.setWaiting(next)
		w.need, w.admitted = first.bytes, 0
		a.epoch++
	}
	switch {
	case w.queue == (Queue{}):
		return true
	case w.queue == at && fits:
		a.setWaiting(Queue{})
		return true
	case w.queue == at && a.cache.exhausted && a.used == w.admitted && sum <= a.total:
		a.setWaiting(Queue{})
		a.exceeded = sum + occupied - a.total
		return true
	case w.queue == at:
		w.need = bytes // its plugin may have changed
	case fits && w.admitted+bytes+w.need+occupied <= total:
		w.admitted += bytes
		return true
	default:
		sum = max(sum, w.admitted+bytes+w.need)
	}
	if shortfall := sum + occupied - total; sum <= total && (a.cache.shortfall == 0 || shortfall < a.cache.shortfall) {
		a.cache.shortfall = shortfall
	}
	return false
}

// setWaiting records which queue waits; zero for none.
func (a *admission) setWaiting(at Queue) {
	now := time.Now() // only for waited
	a.waited = a.waitedUntil(now)
	a.waiting.queue, a.waiting.since = at, now
	a.waits.Store(at != Queue{})
}

func (a *admission) waitedUntil(now time.Time) time.Duration {
	if a.waiting.queue == (Queue{}) {
		return a.waited
	}
	return a.waited + now.Sub(a.waiting.since)
}

// expect adds room for a snapshot to the share of the task that will build it: the first task of its version.
func (a *admission) expect(of Code, part *share) {
	if a.total == 0 {
		return
	}
	for _, code := range a.snapshots {
		if code == of {
			return
		}
	}
	if pending := of.PendingSnapshot(); pending > 0 {
		a.extend(part, pending)
		a.snapshots[part] = of
	}
}

// extend adds room for a snapshot, which needs up to most bytes, to a share that was just given. It takes only memory
// that is free and that no task waits for: a task must not wait for a snapshot's room, of which there may never be
// enough.
func (a *admission) extend(s *share, most int64) {
	waits := a.waiting.queue != (Queue{})
	total := a.bound(s.tenant)
	free := total - a.occupied() - a.used
	if waits {
		free = min(free, total-a.occupied()-a.waiting.admitted-a.waiting.need)
	}
	s.snapshot = max(0, min(most, free))
	a.grow(s, s.snapshot)
	if waits {
		a.waiting.admitted += s.snapshot
	}
}

// ended shrinks the share of a task that has run to the bytes that its result uses.
func (a *admission) ended(s *share, result int64) {
	a.shrink(s, result)
	a.cache.exhausted = false // what the task used is idle now
	a.cache.ends++
}

// release gives a share back.
func (a *admission) release(s *share) { a.shrink(s, 0) }

func (a *admission) shrink(s *share, bytes int64) {
	over := max(0, s.bytes-bytes)
	s.bytes -= over
	s.snapshot = 0
	a.used -= over
	if a.byTenant[s.tenant] -= over; a.byTenant[s.tenant] == 0 {
		delete(a.byTenant, s.tenant)
	}
	a.cache.returned += over
	if a.waiting.queue != (Queue{}) && s.epoch == a.epoch {
		a.waiting.admitted -= over
	}
	delete(a.snapshots, s)
}

// forget ends the waiting of a queue that has no tasks any more, or cannot run them.
func (a *admission) forget(at Queue) {
	delete(a.refused, at)
	if a.waiting.queue == at {
		a.setWaiting(Queue{})
	}
}

// builtSnapshots lists the shares with room for a snapshot that is built by now. Later measurements of the cache
// include the snapshot.
func (a *admission) builtSnapshots() (parts []*share) {
	for part, of := range a.snapshots {
		if of.PendingSnapshot() == 0 {
			parts = append(parts, part)
		}
	}
	return parts
}

// measured records what the cache holds, and takes the room for built snapshots from their shares. It returns how much
// the cache has to evict (0 if nothing in it is idle), and whether a refused task may fit now.
func (a *admission) measured(held int64, built []*share) (shortfall int64, fits bool) {
	for _, part := range built {
		if _, runs := a.snapshots[part]; runs {
			a.shrink(part, part.bytes-part.snapshot)
		}
	}
	refused := a.cache.shortfall > 0
	shortfall = a.setHeld(held)
	if a.cache.exhausted {
		shortfall = 0
	}
	return shortfall, refused && a.cache.shortfall == 0 || len(built) > 0 && a.waiting.queue != (Queue{})
}

// setHeld records what the cache holds, and returns how much of it should be evicted.
func (a *admission) setHeld(held int64) (shortfall int64) {
	c := &a.cache
	if c.shortfall > 0 {
		c.shortfall = max(0, c.shortfall+held-c.held)
	}
	c.held, c.returned = held, 0
	return max(c.shortfall, a.used+a.occupied()-a.total)
}

// evicted records what the cache holds after an eviction that began when ends tasks had ended; exhausted means that it
// freed too little.
func (a *admission) evicted(held int64, ends uint64, exhausted bool) {
	a.cache.exhausted = (exhausted || held >= a.cache.held) && ends == a.cache.ends
	a.setHeld(held)
}

// waitingOf lists the queues of a tenant whose next task does not fit.
func (a *admission) waitingOf(tenant string) []string {
	queues := []string{}
	for at := range a.refused {
		if at.Tenant == tenant {
			queues = append(queues, at.Name)
		}
	}
	slices.Sort(queues)
	return queues
}
