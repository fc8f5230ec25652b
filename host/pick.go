package host

import "time"

// pick gives the free slots to queues, one at a time to the queue with the fewest running tasks, and among equals to the
// one that was served longest ago. give tells whether the queue got the slot: then it has counted it in the queue's running
// and turn. A queue that does not get one is passed over.
func pick(open []*served, quota quota, give func(*served) bool) {
	for quota.free > 0 && len(open) > 0 {
		best := 0
		for i, q := range open {
			if b := open[best]; q.running < b.running || q.running == b.running && q.turn < b.turn {
				best = i
			}
		}
		if q := open[best]; quota.has(q.source) && give(q) {
			quota.take(q.source)
		} else {
			open[best] = open[len(open)-1]
			open = open[:len(open)-1]
		}
	}
}

// candidates lists the queues that may have work and those to be reconciled, and counts what each source may be given now.
// forget is called for a queue that cannot take a task now: nobody waits for the memory that it needs.
func candidates(queues map[place]*served, slots, free int, now time.Time, forget func(place)) (quota quota, open, reconcile []*served) {
	quota = newQuota(slots, free)
	for _, q := range queues {
		quota.add(q)
		if q.blocked || !(q.ready || q.reconcile) || !q.refused.over(now) || !q.source.available(now) {
			forget(q.place)
			continue
		}
		if q.source.reserving() {
			continue
		}
		if !q.left {
			open = append(open, q)
		}
		if q.reconcile {
			reconcile = append(reconcile, q)
		}
	}
	return quota, open, reconcile
}

// quota is how many slots are free, and how many of them one pick may give to each source. With several sources that is
// half of all slots, for a source whose Redis hangs must not take them all; and less for one with more tasks that wait to be
// settled than there are slots.
type quota struct {
	slots, free int
	unsettled   map[source]int
	given       map[source]int
}

func newQuota(slots, free int) quota {
	return quota{slots: slots, free: free, unsettled: make(map[source]int), given: make(map[source]int)}
}

// add counts the tasks of a queue that wait to be settled; those of blocked queues do not count.
func (r *quota) add(q *served) {
	unsettled := q.unsettled
	if q.blocked {
		unsettled = 0
	}
	r.unsettled[q.source] += unsettled
}

// has tells whether a source may be given one slot more.
func (r *quota) has(s source) bool {
	most := r.slots
	if len(r.unsettled) > 1 {
		most = (r.slots + 1) / 2
	}
	return r.free > 0 && r.given[s] < min(most, r.free+r.given[s]-max(0, r.unsettled[s]-r.slots))
}

func (r *quota) take(s source) {
	r.free--
	r.given[s]++
}
