package host

import (
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/host/account"
	"github.com/quern-project/quern/metrics"
	"github.com/quern-project/quern/plugins"
)

// admission bounds the memory that running tasks may take together with the memory of the cache. A queue whose task does not
// fit waits for others to end. Meanwhile other queues go on, but the tasks that they begin must leave room for the waiting
// one: small tasks cannot starve it, and it does not stop them while a long task runs.
//
// What is reserved of the account beside tasks, such as payloads of webhooks, counts as taken: tasks wait until it fits again.
//
// Where several tenants are served, one whose tasks run leaves a part of the memory to those that run nothing: these need not wait for
// the end of a task of another.
//
// The evictor frees idle memory of the cache that stands in the way. A task that waits for no older one is admitted even if
// that is not enough: the cache may hold its own plugin.
type admission struct {
	total  int64 // 0: not bounded
	aside  *account.Account
	logger hclog.Logger
	wake   func() // called when a task may fit now
	// evict has a token when the evictor should measure; never closed.
	evict chan struct{}

	mu       sync.Mutex // guards the fields below; under it only the locks of plugins and runtime are taken, by PendingSnapshot
	used     int64
	byTenant map[string]int64 // what is used, of the tenants that use some
	shared   bool             // there are several tenants
	// waiting is the queue whose task does not fit (zero: none), need what that task takes.
	waiting place
	need    int64
	// refused are the queues whose last task did not fit, waiting among them. They take turns: the next to wait is the one that
	// was refused first. refusals counts those so far.
	refused  map[place]refusedTask
	refusals uint64
	// since is when waiting was set, waited how long queues waited before that.
	since  time.Time
	waited time.Duration
	// admitted is the memory of the tasks that began since waiting was set; epoch tells which tasks those are.
	admitted int64
	epoch    uint64

	held int64 // by the cache, when that was last measured
	// returned is what tasks have given back since then: the cache may hold as much more.
	returned int64
	// shortfall is how much the cache has to evict for one of the tasks that the last pick refused; 0 if eviction would help none.
	shortfall int64
	// exhausted means that nothing is idle: the last eviction gave too little, and no task has ended since.
	exhausted bool
	exceeded  int64  // by how many bytes a task that waited for no older one exceeded the bound
	warned    bool   // of that
	ends      uint64 // tasks that have ended so far
	// snapshots are the shares with a part for a snapshot that is not there yet.
	snapshots map[*share]snapshotOf
}

// A tenant whose tasks run leaves 1/sparePart of the memory to others.
const sparePart = 8

// refusedTask is what a queue's task takes for which there is no memory, and the number of the first refusal since its last task.
type refusedTask struct {
	bytes  int64
	number uint64
}

// snapshotOf names the snapshot from which a version's tasks of a tenant start.
type snapshotOf struct {
	version *plugins.Version
	tenant  string
}

func newAdmission(total int64, aside *account.Account, logger hclog.Logger, wake func()) *admission {
	a := &admission{
		total: total, aside: aside, logger: logger, wake: wake, evict: make(chan struct{}, 1),
		byTenant: make(map[string]int64), refused: make(map[place]refusedTask), snapshots: make(map[*share]snapshotOf),
	}
	aside.OnFreed(a.freed)
	return a
}

// freed is called when memory of the account was given back.
func (a *admission) freed() {
	a.mu.Lock()
	waits := a.waiting != (place{})
	a.mu.Unlock()
	if waits {
		a.wake()
	}
}

// taken is what no task can have: the cache, and what is reserved beside tasks. The caller holds mu.
func (a *admission) taken() int64 { return a.held + a.aside.Reserved() }

// begin begins a pick, and returns which queue waits; shared means that several tenants are served.
func (a *admission) begin(shared bool) (waiting place) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.shared, a.shortfall = shared, 0
	return a.waiting
}

// picked ends a pick. It asks the evictor to measure if eviction may make room for a refused task, or if the cache may have
// grown beyond half of the memory.
func (a *admission) picked() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.shortfall > 0 && !a.exhausted || a.returned > 0 && a.used+a.taken()+a.returned > a.total/2 {
		poke(a.evict)
	}
	if a.exceeded > 0 && !a.warned {
		a.warned = true
		a.logger.Warn("memory is too small for a task and what its plugin needs beside it: such tasks run all the same; give the host more by --memory",
			"memory", a.total, "held", a.held, "over", a.exceeded)
	}
}

// take gives a share to a task of the queue, if it fits.
func (a *admission) take(at place, bytes int64) (*share, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.total > 0 && !a.admits(at, bytes) {
		first, again := a.refused[at]
		if !again {
			a.refusals++
			first.number = a.refusals
		}
		a.refused[at] = refusedTask{bytes, first.number}
		return nil, false
	}
	delete(a.refused, at)
	part := &share{tenant: at.tenant, epoch: a.epoch}
	a.grow(part, bytes)
	return part, true
}

// grow adds to a share. The caller holds mu.
func (a *admission) grow(s *share, bytes int64) {
	s.bytes += bytes
	a.used += bytes
	a.byTenant[s.tenant] += bytes
}

// bound is what all tasks may take together with what is taken, for a further one of the tenant. The caller holds mu.
func (a *admission) bound(tenant string) int64 {
	if a.shared && a.byTenant[tenant] > 0 {
		return a.total - a.total/sparePart
	}
	return a.total
}

// admits tells whether a task fits, and notes who waits.
func (a *admission) admits(at place, bytes int64) bool {
	sum, taken, total := a.used+bytes, a.taken(), a.bound(at.tenant)
	fits := sum+taken <= total
	if a.waiting == (place{}) && !fits {
		next, first := at, a.refused[at]
		for other, task := range a.refused {
			if first.number == 0 || task.number < first.number {
				next, first = other, task
			}
		}
		a.setWaiting(next)
		a.need = first.bytes
		a.admitted = 0
		a.epoch++
	}
	switch {
	case a.waiting == (place{}):
		return true
	case a.waiting == at && fits:
		a.setWaiting(place{})
		return true
	case a.waiting == at && a.exhausted && a.used == a.admitted && sum <= a.total:
		a.setWaiting(place{})
		a.exceeded = sum + taken - a.total
		return true
	case a.waiting == at:
		a.need = bytes // its plugin may have changed
	case fits && a.admitted+bytes+a.need+taken <= total:
		a.admitted += bytes
		return true
	default:
		sum = max(sum, a.admitted+bytes+a.need)
	}
	if shortfall := sum + taken - total; sum <= total && (a.shortfall == 0 || shortfall < a.shortfall) {
		a.shortfall = shortfall
	}
	return false
}

// setWaiting notes which queue waits, zero for none.
func (a *admission) setWaiting(at place) {
	now := time.Now()
	a.waited = a.waitedUntil(now)
	a.waiting, a.since = at, now
}

func (a *admission) waitedUntil(now time.Time) time.Duration {
	if a.waiting == (place{}) {
		return a.waited
	}
	return a.waited + now.Sub(a.since)
}

// sample is what the metrics show.
func (a *admission) sample() metrics.MemorySample {
	a.mu.Lock()
	defer a.mu.Unlock()
	reserved := map[string]int64{string(account.Tasks): a.used}
	for kind, bytes := range a.aside.ByKind() {
		reserved[string(kind)] = bytes
	}
	return metrics.MemorySample{Limit: a.total, Reserved: reserved, Waited: a.waitedUntil(time.Now())}
}

// expect adds room for the snapshot to the share of the task that will bring it about: the first one of its version.
func (a *admission) expect(of snapshotOf, part *share) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.total == 0 {
		return
	}
	for _, other := range a.snapshots {
		if other == of {
			return
		}
	}
	if coming := of.version.PendingSnapshot(of.tenant); coming > 0 {
		a.extend(part, coming)
		a.snapshots[part] = of
	}
}

// extend adds room for a snapshot of most bytes to a share that was just taken: as much as is free and no task waits for. No
// task waits for that room, for there may never be enough.
func (a *admission) extend(s *share, most int64) {
	waits := a.waiting != (place{})
	total := a.bound(s.tenant)
	free := total - a.taken() - a.used
	if waits {
		free = min(free, total-a.taken()-a.admitted-a.need)
	}
	s.snapshot = max(0, min(most, free))
	a.grow(s, s.snapshot)
	if waits {
		a.admitted += s.snapshot
	}
}

// ended shrinks the share of a task that has run to what its result still takes.
func (a *admission) ended(s *share, result int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.shrink(s, result)
	a.exhausted = false // what the task used is idle now
	a.ends++
}

// release gives a share back.
func (a *admission) release(s *share) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.shrink(s, 0)
}

func (a *admission) shrink(s *share, bytes int64) {
	over := max(0, s.bytes-bytes)
	s.bytes -= over
	s.snapshot = 0
	a.used -= over
	if a.byTenant[s.tenant] -= over; a.byTenant[s.tenant] == 0 {
		delete(a.byTenant, s.tenant)
	}
	a.returned += over
	if a.waiting != (place{}) && s.epoch == a.epoch {
		a.admitted -= over
	}
	delete(a.snapshots, s)
}

// forget ends the waiting of a queue that has no work any more, or cannot take it.
func (a *admission) forget(at place) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.refused, at)
	if a.waiting == at {
		a.setWaiting(place{})
	}
}

// arrived lists the shares with a part for a snapshot that is there now: a measurement after this includes it.
func (a *admission) arrived() (parts []*share) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for part, of := range a.snapshots {
		if of.version.PendingSnapshot(of.tenant) == 0 {
			parts = append(parts, part)
		}
	}
	return parts
}

// measured notes what the cache holds, with the snapshots that arrived listed before. It returns how much the cache has to
// evict, 0 if nothing in it is idle, and how many tasks have ended so far.
func (a *admission) measured(held int64, arrived []*share) (shortfall int64, ends uint64) {
	a.mu.Lock()
	for _, part := range arrived {
		if _, runs := a.snapshots[part]; runs {
			a.shrink(part, part.bytes-part.snapshot)
		}
	}
	asked := a.shortfall > 0
	shortfall = a.setHeld(held)
	if a.exhausted {
		shortfall = 0
	}
	ends = a.ends
	fits := asked && a.shortfall == 0 || len(arrived) > 0 && a.waiting != (place{})
	a.mu.Unlock()
	if fits {
		a.wake()
	}
	return shortfall, ends
}

// setHeld returns how much less the cache would have to hold.
func (a *admission) setHeld(held int64) (shortfall int64) {
	if a.shortfall > 0 {
		a.shortfall = max(0, a.shortfall+held-a.held)
	}
	a.held, a.returned = held, 0
	return max(a.shortfall, a.used+a.taken()-a.total)
}

// evicted notes what the cache holds after an eviction that began when ends tasks had ended; exhausted means that it gave too
// little.
func (a *admission) evicted(held int64, ends uint64, exhausted bool) {
	a.mu.Lock()
	a.exhausted = (exhausted || held >= a.held) && ends == a.ends
	a.setHeld(held)
	a.mu.Unlock()
	a.wake()
}

// waitingOf lists the queues of a tenant whose next task does not fit, and what is reserved in all.
func (a *admission) waitingOf(tenant string) (queues []string, used int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	queues = []string{}
	for at := range a.refused {
		if at.tenant == tenant {
			queues = append(queues, at.queue)
		}
	}
	slices.Sort(queues)
	return queues, a.used + a.aside.Reserved()
}

// retryEviction lets the next measurement evict again: memory may have become idle without a task.
func (a *admission) retryEviction() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.exhausted = false
}
