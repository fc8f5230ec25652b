package schedule

import (
	"time"

	"github.com/quern-project/quern/sdk/queue/periodic"
)

// Queue names a queue of a tenant.
type Queue struct{ Tenant, Name string }

// Backlog is what the host knows of a queue's tasks in Redis.
type Backlog uint8

// The states of a backlog: see the package comment.
const (
	Empty Backlog = iota // there are no tasks
	Ready                // there may be tasks: a message came, or the last reserve left some
	Seen                 // a poll saw tasks, and no reserve has shown since whether they can run
	// a poll saw tasks, but the reserve after it brought none: they cannot run now, or another host has them
	Stalled
)

// An event changes what is known of a backlog.
type event uint8

const (
	announced   event = iota // a message came
	polled                   // a poll saw tasks
	polledEmpty              // a poll saw no tasks, and no other event came after the poll had begun
	gotMore                  // a reserve brought tasks, and there may be more
	gotLast                  // a reserve brought the last tasks
	gotUnsure                // a reserve brought no task, but there may be some
	gotNone                  // a reserve brought no task, and there are none
)

// transitions maps an event, and the backlog before the event, to the backlog after it.
var transitions = [...][4]Backlog{
	announced:   {Empty: Ready, Ready: Ready, Seen: Seen, Stalled: Seen},
	polled:      {Empty: Seen, Ready: Ready, Seen: Ready, Stalled: Seen},
	polledEmpty: {Empty: Empty, Ready: Empty, Seen: Empty, Stalled: Empty},
	gotMore:     {Empty: Ready, Ready: Ready, Seen: Ready, Stalled: Ready},
	gotLast:     {Empty: Empty, Ready: Empty, Seen: Empty, Stalled: Empty},
	gotUnsure:   {Empty: Ready, Ready: Ready, Seen: Seen, Stalled: Seen},
	gotNone:     {Empty: Empty, Ready: Empty, Seen: Stalled, Stalled: Stalled},
}

// queue is a queue that this host serves; guarded by the scheduler's mu.
type queue struct {
	Queue
	standing
	flow
	source  Source
	tenant  *tenant
	backlog Backlog
	active  int    // its place in Scheduler.active, from 1; 0 if no plan looks at it
	woken   uint64 // Scheduler.wakes at the last event from outside; an older poll does not reflect that event

	pace      pace
	ahead     []Task    // reserved tasks that wait for a slot, the oldest first
	lastStart time.Time // when a task of ahead last got a slot, or last arrived
	bound     int       // Version.Concurrency of the last allocation; 0: no bound
	mayWait   bool      // Version.MayWait of the last allocation

	unsettled int     // tasks that have ended but are not settled in Redis
	returning int     // the part of unsettled that never had a slot: a reserve now would overtake these tasks
	inTurn    int     // how many tasks the queue can still start in its turn
	taking    bool    // the queue has begun its turn
	owed      float64 // what the tasks of this turn have cost, and is not yet in the virtual times
}

// standing decides, together with the backlog, whether tasks of a queue can be reserved.
type standing struct {
	leaving bool // the session has left the queue, which is dropped once it is reconciled
	unsure  bool // the reserved list may have tasks that the host does not know, so it must be reconciled
	blocked bool // results cannot be written: nothing is reserved until they can
	// refused is the pause after Redis refused to reserve from this queue alone, or had only tasks for other hosts.
	refused periodic.Pause
}

// apply changes the backlog after an event.
func (q *queue) apply(e event) { q.backlog = transitions[e][q.backlog] }

// ready reports whether there may be tasks to reserve.
func (q *queue) ready() bool { return q.backlog == Ready || q.backlog == Seen }

// wants reports whether there is something to reserve or to reconcile, as far as the scheduler knows.
func (q *queue) wants(now time.Time) bool {
	return !q.blocked && (q.ready() || q.unsure) && q.refused.Over(now)
}

// idle reports whether there is nothing to do for a queue, and no task of it is on this host.
func (q *queue) idle() bool {
	return !q.ready() && !q.unsure && len(q.ahead)+q.running+q.unsettled == 0
}

// heldBack returns how many of the unsettled tasks count against the slots of the queue's source. batch is how many
// short tasks are settled together; two batches of them do not count.
func (q *queue) heldBack(batch int) int {
	switch {
	case q.blocked:
		return 0
	case q.pace.short():
		return max(0, q.unsettled-2*batch)
	}
	return q.unsettled
}
