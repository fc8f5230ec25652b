package schedule

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/host/account"
)

// admission bounds the sum of the memory that running tasks can use and the memory that the cache holds. A queue whose
// next task does not fit waits for running tasks to end. Meanwhile other queues go on, but the tasks that they begin
// must leave room for the waiting task. So small tasks cannot starve the waiting task, and it does not stop them while
// a long task runs.
//
// Other memory that the account has reserved, such as for payloads of webhooks, counts as well.
//
// If several tenants are served, a tenant whose tasks run leaves a part of the memory to tenants that run nothing.
// These then need not wait for the end of another tenant's task.
//
// The Evictor frees idle memory of the cache when a task does not fit. If that is not enough, and no task runs that
// began before the wait, the waiting task is admitted all the same: the cache may be full of its own plugin. The
// scheduler's mu guards all fields but waits.
type admission struct {
	total   int64 // maximum of used plus occupied memory, in bytes; 0: no bound
	account *account.Account
	logger  hclog.Logger

	// used is the sum of all shares, in bytes.
	used     int64
	byTenant map[string]int64 // used by tenant; no entry for 0
	shared   bool             // several tenants are served
	waiting  waiting
	waits    atomic.Bool // whether a queue waits; readable without the scheduler's mu
	// epoch counts the waits of queues so far, and waited is how long all of them but the present one took together.
	epoch  uint64
	waited time.Duration
	// refused has the queues whose last task did not fit, including the waiting queue. They take turns: the queue that
	// was refused first is the next to wait. refusals counts the refusals so far, to number them.
	refused  map[Queue]refusedTask
	refusals uint64
	// snapshots has the shares that include room for a snapshot that is not built yet, with the code of that snapshot.
	snapshots map[*share]Code

	cache    cacheUse
	exceeded int64 // bytes by which the last task that was admitted all the same exceeded the bound
	warned   bool  // whether exceeded has been logged
}

// waiting describes the queue that waits for memory for its next task. It is zero if no queue waits.
type waiting struct {
	queue    Queue
	need     int64 // the memory that this task needs
	admitted int64 // memory of the tasks that began after the wait did; their shares have the present epoch
	since    time.Time
}

// cacheUse records the memory of the cache, and what is to be evicted from it.
type cacheUse struct {
	held     int64 // bytes in the cache at the last measurement
	returned int64 // bytes that tasks have given back since then, by which the cache may have grown
	// shortfall is how many bytes to evict so that one of the tasks that the last plan refused fits. It is 0 if eviction
	// would help none of them.
	shortfall int64
	exhausted bool          // nothing is idle: the last eviction freed too little, and no task has ended since
	ends      uint64        // number of tasks that have ended so far
	measure   chan struct{} // has a token when the Evictor should measure; never closed
}

// A tenant whose tasks run leaves 1/sparePart of the memory to other tenants.
const sparePart = 8

// refusedTask describes a queue's task that did not fit: the memory that it needs, and the number of the queue's first
// refusal since the last task that was admitted from the queue.
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

// occupied returns the memory that no task can have: what the cache holds, and what the account has reserved.
func (a *admission) occupied() int64 { return a.cache.held + a.account.Reserved() }

// begin begins a plan, and returns the queue that waits, zero if none does. shared reports that several tenants are
// served.
func (a *admission) begin(shared bool) Queue {
	a.shared, a.cache.shortfall = shared, 0
	return a.waiting.queue
}

// picked ends a plan. It asks the Evictor to measure the cache if eviction may make room for a refused task. It also
// does so if tasks and cache together may have grown beyond half of the memory.
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

// admit returns a share of this many bytes for a task of the queue, or nil if the task does not fit.
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

// grow adds bytes to a share.
func (a *admission) grow(s *share, bytes int64) {
	s.bytes += bytes
	a.used += bytes
	a.byTenant[s.tenant] += bytes
}

// bound returns how much memory can be used, including the occupied memory, once another task of this tenant has begun.
func (a *admission) bound(tenant string) int64 {
	if a.shared && a.byTenant[tenant] > 0 {
		return a.total - a.total/sparePart
	}
	return a.total
}

// fits reports whether a task of this many bytes fits, and records which queue waits.
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
		w.need = bytes // the need changes with the version of the plugin
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

// setWaiting records which queue waits; the zero Queue means none.
func (a *admission) setWaiting(at Queue) {
	now := time.Now() // used for statistics alone
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

// expect adds room for a snapshot of the code to the share of the task that will build the snapshot, which is the first
// task of the version.
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

// extend adds room for a snapshot of at most size bytes to a share that was just given. The room comes from free memory
// for which no task waits: a task must not wait for the room of a snapshot, because there may never be enough.
func (a *admission) extend(s *share, size int64) {
	waits := a.waiting.queue != (Queue{})
	total := a.bound(s.tenant)
	free := total - a.occupied() - a.used
	if waits {
		free = min(free, total-a.occupied()-a.waiting.admitted-a.waiting.need)
	}
	s.snapshot = max(0, min(size, free))
	a.grow(s, s.snapshot)
	if waits {
		a.waiting.admitted += s.snapshot
	}
}

// ended shrinks the share of a task that has run to the bytes of its result.
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

// forget ends the wait of a queue that has no tasks any more, or cannot run them.
func (a *admission) forget(at Queue) {
	delete(a.refused, at)
	if a.waiting.queue == at {
		a.setWaiting(Queue{})
	}
}

// builtSnapshots lists the shares with room for a snapshot that has been built meanwhile. A measurement of the cache
// that begins after this call includes the snapshot.
func (a *admission) builtSnapshots() (parts []*share) {
	for part, of := range a.snapshots {
		if of.PendingSnapshot() == 0 {
			parts = append(parts, part)
		}
	}
	return parts
}

// measured records how many bytes the cache holds. It takes the room for built snapshots out of their shares. It
// returns how much the cache has to evict (0 if nothing in it is idle), and whether a refused task may fit now.
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

// setHeld records how many bytes the cache holds, and returns how many of them should be evicted.
func (a *admission) setHeld(held int64) (shortfall int64) {
	c := &a.cache
	if c.shortfall > 0 {
		c.shortfall = max(0, c.shortfall+held-c.held)
	}
	c.held, c.returned = held, 0
	return max(c.shortfall, a.used+a.occupied()-a.total)
}

// evicted records how many bytes the cache holds after an eviction. ends is how many tasks had ended when the eviction
// began. exhausted reports that the eviction freed too little.
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
