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
	Empty   Backlog = iota // there are no tasks
	Ready                  // there may be tasks: a message came, or the last reserve left some
	Seen                   // a poll saw tasks, and no reserve has followed
	Stalled                // a poll saw tasks, but the reserve since brought none: they may not run now, or another host has them
)

// An event changes what is known of a backlog.
type event uint8

const (
	announced   event = iota // a message came
	polled                   // a poll saw tasks
	polledEmpty              // a poll saw none, and no event since it was asked
	gotMore                  // a reserve brought tasks, and there may be more
	gotLast                  // a reserve brought the last tasks
	gotUnsure                // a reserve brought no task, but there may be some
	gotNone                  // a reserve brought no task, and there are none
)

// transitions map an event and the backlog before it to the backlog after it.
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
	source  Source
	backlog Backlog
	woken   uint64 // the scheduler's wakes at the last event from outside; the answer to an older question does not include it

	pace      pace
	ahead     []Task    // reserved, and waiting for a slot, the oldest first
	lastStart time.Time // when the last of them got a slot, or came
	bound     int       // on the tasks of its plugin side by side on this host, when it was last allocated; 0: none
	mayWait   bool      // its tasks may be reserved ahead of free slots, as far as is known

	running   int    // slots that run its tasks, or are allocated to it
	unsettled int    // tasks that have ended but are not settled in Redis
	returning int    // of the unsettled ones, those that never had a slot: a reserve would overtake them
	turn      uint64 // the scheduler's turns when its last one ended: the lowest is next
	inTurn    int    // how many tasks it may still start in its turn
}

// standing decides, beside the backlog, whether a queue may be asked.
type standing struct {
	leaving bool           // the session has left the queue, which is dropped once it is reconciled
	unsure  bool           // the reserved list may have tasks that the host does not know: it is to be reconciled
	blocked bool           // results cannot be written: nothing is asked until they can
	refused periodic.Pause // after Redis refused to reserve from this queue, but not from others
}

// apply changes the backlog after an event.
func (q *queue) apply(e event) { q.backlog = transitions[e][q.backlog] }

// ready reports whether there may be tasks to reserve.
func (q *queue) ready() bool { return q.backlog == Ready || q.backlog == Seen }

// wants reports whether there is something to reserve or to reconcile, as far as is known.
func (q *queue) wants(now time.Time) bool {
	return !q.blocked && (q.ready() || q.unsure) && q.refused.Over(now)
}

// idle reports whether there is nothing to do for a queue, and none of its tasks is on its way.
func (q *queue) idle() bool {
	return !q.ready() && !q.unsure && len(q.ahead)+q.running+q.unsettled == 0
}

// heldBack is how many tasks that wait to be settled count against the slots of the queue's source. Short tasks are
// settled in batches of this many.
func (q *queue) heldBack(batch int) int {
	switch {
	case q.blocked:
		return 0
	case q.pace.short():
		return max(0, q.unsettled-2*batch)
	}
	return q.unsettled
}
