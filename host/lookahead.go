package host

import (
	"cmp"
	"slices"
	"time"

	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/plugins/manifest"
)

// Slots would stand idle for a round trip to Redis after each short task. So tasks of a queue whose tasks are short are reserved
// ahead of free slots. They wait here, started as far as Redis knows, and get the next slots of their queue. One that gets none
// in time goes back to the front of its queue, and until shorter tasks have run again none is reserved ahead: nothing waits for a
// long task.
const (
	// aheadTime is how long all slots together may need for the tasks that wait here: longer than Redis may wait for a processor
	// where it shares them with this host, so that no slot stands idle then.
	aheadTime = 4 * time.Millisecond
	// mostAhead bounds how many tasks of a queue wait here. More are reserved when half have gone, so that Redis and the slots work
	// at the same time.
	mostAhead = 3 * maxBatch
	// aheadWait is how long they wait while none of them gets a slot, or their queue's tasks are not short any more.
	aheadWait = 20 * time.Millisecond
	// shortTask is how long a task runs at most for others to be reserved ahead.
	shortTask = time.Millisecond

	// unknown is how long a task took that was stopped before its guest began.
	unknown time.Duration = -1
)

// short tells whether the queue's tasks are known to be short.
func (q *served) short() bool { return q.lasts > 0 && q.lasts <= shortTask }

// computes is how long a task of the queue keeps a processor busy, if they are short.
func (q *served) computes() time.Duration { return max(q.lasts-q.waits, 1) }

// lasted notes how long a task of the queue ran, and how much of that it waited, in moving averages; took is unknown if it has
// not run. One task of aheadWait or more is enough for the queue's tasks not to be short; one that the operating system or Go's
// collector held up for some milliseconds is not.
func (q *served) lasted(took, waited time.Duration) {
	if took == unknown {
		return
	}
	took, waited = min(took, aheadWait), min(waited, took, aheadWait)
	if q.lasts == 0 {
		q.lasts, q.waits = took, waited
	}
	q.lasts = max(q.lasts+(took-q.lasts)/8, 1)
	q.waits = min(q.waits+(waited-q.waits)/8, q.lasts)
}

// endTurn puts a queue behind the others. A queue of short tasks then gets a turn of as many as one slot runs in aheadTime: these
// are reserved together and settled together, however many queues have work. The caller holds mu.
func (s *scheduler) endTurn(q *served) {
	s.turns++
	q.turn, q.inTurn = s.turns, 1
	if q.short() {
		q.inTurn = min(int(aheadTime/q.lasts), maxBatch)
	}
}

// lookAhead has the allocations of the queues whose turn is next reserve tasks ahead, unless enough wait. The caller holds mu.
func (s *scheduler) lookAhead(candidates []*served, allocations map[*served]*allocation) {
	slices.SortFunc(candidates, func(a, b *served) int { return cmp.Compare(a.turn, b.turn) })
	busy := aheadTime * time.Duration(s.load.places)
	room := busy
	for _, q := range candidates {
		room -= time.Duration(len(q.ahead)) * q.computes()
	}
	for _, q := range candidates[:min(len(candidates), 2*s.slots)] { // the others would get no slot soon
		if !q.short() || q.reconcile || !q.ready || !q.reservable {
			continue
		}
		parallel := s.slots
		if q.bound > 0 {
			parallel = min(parallel, q.bound)
		}
		most := min(int(aheadTime*time.Duration(parallel)/q.lasts), int(busy/q.computes()), mostAhead)
		if len(candidates) > 1 {
			most = min(most, q.inTurn)
		}
		s.refillAt = max(s.refillAt, most/2)
		more := most - len(q.ahead)
		if more <= most/2 || time.Duration(more)*q.computes() > room {
			continue
		}
		a := s.allocation(q, allocations)
		if a == nil || a.reconcile || !q.mayWait {
			continue
		}
		a.ahead = max(0, min(more, maxBatch-len(a.shares)))
		room -= time.Duration(a.ahead) * q.computes()
	}
}

// mayWait tells whether tasks of a version may be started in Redis before they run. It would take places of the fleet from
// others, or a host that dies would end tasks for good that never ran.
func (s *scheduler) mayWait(v *plugins.Version, tenant string) bool {
	return s.rerun && v.Manifest.MaxRunning == 0 && v.Manifest.OnCrash != manifest.CrashFail && v.Permissions(tenant).MaxCrashes != 1
}

// keepAhead lets tasks wait for a slot. The caller holds mu.
func (s *scheduler) keepAhead(q *served, tasks []*task) {
	if len(tasks) == 0 {
		return
	}
	q.ahead, q.fed = append(q.ahead, tasks...), tasks[0].taken
	s.countAhead(q, len(tasks))
	if s.queues[q.place] != q {
		s.putOff(q) // it was left meanwhile
	}
}

func (s *scheduler) countAhead(q *served, more int) {
	s.ahead += more
	q.source.reservedAhead().Add(int64(more))
}

// giveAhead gives a slot to the oldest task that waits, nil if there is none. The caller holds mu.
func (s *scheduler) giveAhead(q *served, now time.Time) *task {
	t := q.ahead[0]
	if t.share = s.takeSlot(q, t.version, now); t.share == nil {
		return nil
	}
	q.ahead, q.fed = q.ahead[1:], now
	s.countAhead(q, -1)
	s.began.Store(now.UnixNano())
	s.gauge(int(s.running.Add(1)))
	return t
}

// dropLate puts off what waits in vain, and returns when the next task may be late. While a reserve is on its way it puts off
// nothing: what that brings comes after what waits, and is to go back in front of its queue together with it. The caller holds mu.
func (s *scheduler) dropLate(now time.Time) (next time.Duration) {
	next = noPick
	if s.ahead == 0 {
		return next
	}
	for _, q := range s.active {
		if len(q.ahead) == 0 {
			continue
		}
		if _, reserving := q.source.state(now); reserving {
			continue // there is a pick when it is back
		}
		late := now.Sub(q.fed) >= aheadWait
		if late {
			q.lasted(aheadWait, 0)
		}
		late = late || !q.short() && now.Sub(q.ahead[0].taken) >= aheadWait
		if late || q.left || q.blocked {
			s.putOff(q)
		} else {
			next = min(next, aheadWait-now.Sub(q.fed))
		}
	}
	return next
}

// noPick is longer than any wait for the next pick.
const noPick = time.Hour

// pickAfter picks again after a time, if nothing else does before. The caller holds mu.
func (s *scheduler) pickAfter(wait time.Duration) {
	switch {
	case s.overdue != nil:
		s.overdue.Reset(wait)
	case wait < noPick:
		s.overdue = time.AfterFunc(wait, s.again)
	}
}

// putOff has the tasks that wait for a slot given back. The caller holds mu.
func (s *scheduler) putOff(q *served) {
	for _, t := range q.ahead {
		t.share, t.returns = &share{}, true
	}
	q.unsettled += len(q.ahead)
	q.returning += len(q.ahead)
	s.countAhead(q, -len(q.ahead))
	s.late, q.ahead = append(s.late, q.ahead...), nil
}
