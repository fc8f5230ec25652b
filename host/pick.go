package host

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/quern-project/quern/host/backoff"
	"github.com/quern-project/quern/metrics"
	"github.com/quern-project/quern/plugins"
)

// place names a queue of a tenant.
type place struct{ tenant, queue string }

// source reserves the tasks of a session's queues: see intake.
type source interface {
	// state tells whether it may reserve now, and whether a reserve is on its way.
	state(now time.Time) (available, reserving bool)
	// beginReserve begins a reserve, unless it may not. reserve then asks for what is allocated, and closes or cancels each allocation.
	beginReserve() bool
	reserve(ctx context.Context, allocations []*allocation)
	// start runs a task that has got a slot, and giveBack returns those to their queues that have not got one.
	start(ctx context.Context, t *task)
	giveBack(tasks []*task)
	// reservedAhead counts its tasks that wait for a slot here; while there are any its settler gathers results.
	reservedAhead() *atomic.Int64
}

// served is a queue that this host serves, as the scheduler sees it; guarded by the scheduler's mu.
type served struct {
	place
	source source
	// ready means that there may be work: a message came, the poll saw some, or the last reserve brought as much as was asked.
	ready bool
	// woken is the scheduler's count of wakes when ready was last set from outside. An answer of Redis to an older question
	// knows nothing of it.
	woken uint64
	// vain means that a poll saw tasks and no reserve has brought one since: they may not run now, or another host took them.
	vain bool
	// reconcile means that the reserved list may hold tasks that the host does not know.
	reconcile bool
	// left means that the session serves the queue no more: it is dropped once it is reconciled.
	left bool
	// blocked means that results of the queue's tasks cannot be written: no more are taken until they can.
	blocked bool
	// refused is the pause after Redis refused to reserve from this queue, but not from others.
	refused backoff.Pause
	// ahead are tasks that are reserved and wait for a slot, the oldest first; lasts is about how long its tasks run (aheadWait
	// at most), 0 if that is not known: see lookahead.go.
	ahead []*task
	fed   time.Time // when the last of them got a slot, or came here
	lasts time.Duration
	waits time.Duration // how much of that they wait for others, not for the processor
	// mayWait means that its tasks may be reserved ahead of free slots, as far as is known.
	mayWait    bool
	bound      int  // of its plugin, on the tasks that run side by side on this host, when it was last allocated; 0: none
	reservable bool // in this round: a reserve may be sent

	running   int    // slots that run its tasks, or are allocated to it
	unsettled int    // its tasks that have ended but are not settled in Redis
	returning int    // of them, those that had no slot: what is reserved before they are back comes after them
	turn      uint64 // the scheduler's turns when its last one ended: the queue with the lowest number is next
	inTurn    int    // how many tasks it may still start in its turn
}

// wants tells whether there is something to reserve or to reconcile, as far as is known.
func (q *served) wants(now time.Time) bool {
	return !q.blocked && (q.ready || q.reconcile) && q.refused.Over(now)
}

// able tells whether a reserve may be sent for the queue, now or when the one on its way has ended.
func (q *served) able(now time.Time) bool {
	available, _ := q.source.state(now)
	return available && q.wants(now)
}

// allocation lets a source reserve tasks of one queue for one version of its plugin: one for each share, and others ahead of
// free slots. The version is retained for the allocation, and once more for each task that comes of it. With reconcile the
// queue's reserved list is looked through first; then there may be no shares, and no version.
type allocation struct {
	served    *served
	version   *plugins.Version
	shares    []*share
	ahead     int
	reconcile bool
	wakes     uint64 // the scheduler's count when it was made
}

// release gives back the allocation's own hold of its version.
func (a *allocation) release() {
	if a.version != nil {
		a.version.Release()
	}
}

// share is what one task may take: memory, and of the places for guests.
type share struct {
	tenant   string
	bytes    int64
	snapshot int64 // the part for the snapshot that the task brings about
	epoch    uint64
	load     float64   // how busy the task is expected to keep a place; 0 if that does not count: see load
	since    time.Time // when it got its slot, if that counts
	turn     uint64    // its queue's, in which it got its slot
}

// slot is what a running task occupies, and counts what becomes of it.
type slot struct {
	served  *served
	version *plugins.Version
	share   *share
	counts  *metrics.Tasks
	returns bool // it has none, and goes back to its queue
}

// plugin names a plugin; tenant is "" for one that serves every tenant.
type plugin struct{ tenant, name string }

func pluginOf(v *plugins.Version) plugin { return plugin{v.Tenant, v.Name} }

// pick gives the free slots to queues, one at a time to the queue with the fewest running tasks, and among equals to the
// one that was served longest ago. give tells whether the queue got the slot: then it has counted it in the queue's running
// and turn. A queue that does not get one is passed over.
func pick(candidates []*served, quota quota, give func(*served) bool) {
	for quota.free > 0 && len(candidates) > 0 {
		best := 0
		for i, q := range candidates {
			if b := candidates[best]; q.running < b.running || q.running == b.running && q.turn < b.turn {
				best = i
			}
		}
		if q := candidates[best]; quota.has(q.source) && give(q) {
			quota.free--
			quota.given[q.source]++
		} else {
			candidates[best] = candidates[len(candidates)-1]
			candidates = candidates[:len(candidates)-1]
		}
	}
}

// candidates lists the active queues that may have work, here or in Redis, and those to be reconciled, and counts what each
// source may be given now. The caller holds mu.
func (s *scheduler) candidates(quota *quota, now time.Time) (candidates, reconcile []*served) {
	mayReserve := make(map[source]bool) // each is asked once: there may be thousands of queues
	for at, q := range s.active {
		if q.idle() {
			delete(s.active, at)
			s.admission.forget(at)
			continue
		}
		may, asked := mayReserve[q.source]
		if !asked {
			available, reserving := q.source.state(now)
			may = available && !reserving
			mayReserve[q.source] = may
		}
		quota.unsettled[q.source] += q.heldBack()
		may = may && q.wants(now)
		if q.reservable = may && !q.left && q.returning == 0; q.reservable || len(q.ahead) > 0 {
			candidates = append(candidates, q)
		}
		if may && q.reconcile {
			reconcile = append(reconcile, q)
		}
	}
	return candidates, reconcile
}

// idle tells whether there is nothing to do for a queue, and no task of it is on its way.
func (q *served) idle() bool {
	return !q.ready && !q.reconcile && len(q.ahead)+q.running+q.unsettled == 0
}

// heldBack is how many tasks that wait to be settled keep the queue's source from getting slots.
func (q *served) heldBack() int {
	switch {
	case q.blocked:
		return 0
	case q.short():
		return max(0, q.unsettled-2*batchTasks)
	}
	return q.unsettled
}

// quota is how many slots are free, and how many of them one pick may give to each source. With several sources that is
// half of all slots, for a source whose Redis hangs must not take them all; and less for one with more tasks that wait to be
// settled than there are slots, and two batches for each queue of short ones.
type quota struct {
	slots, free, sources int
	unsettled            map[source]int // tasks that wait to be settled: see heldBack
	given                map[source]int
}

func newQuota(slots, free, sources int) quota {
	return quota{slots: slots, free: free, sources: sources, unsettled: make(map[source]int), given: make(map[source]int)}
}

// has tells whether a source may be given one slot more.
func (q *quota) has(s source) bool {
	most := q.slots
	if q.sources > 1 {
		most = (q.slots + 1) / 2
	}
	return q.given[s] < min(most, q.free+q.given[s]-max(0, q.unsettled[s]-q.slots))
}
