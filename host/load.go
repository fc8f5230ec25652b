package host

import "time"

// load is how busy short tasks keep the places for guests. More slots than keep them all busy would gain nothing: the tasks would
// take turns at the places, each on a goroutine of its own, and with instances whose memory has left the processor's caches. So
// while the load is full, slots stay free for other tasks. A task that still runs after aheadTime waits, or is not short: it does
// not count from then on, and keeps no other from its slot. Beside each such task one short one more may have a slot: it waits at
// the gate, so that the next turn is a short task's. Guarded by the scheduler's mu.
type load struct {
	places float64
	taken  float64  // of them, by the shares that count
	count  int      // of these shares
	shares []*share // that count, and some that do not any more, in the order in which they got their slots
}

// full tells whether short tasks keep all places busy, when so many slots are in use.
func (l *load) full(now time.Time, inUse int) bool {
	l.forget(now)
	return l.taken >= l.places+float64(inUse-l.count)-1e-6 // a sum of fractions
}

// forget ends the count of the shares that have had their slots for aheadTime.
func (l *load) forget(now time.Time) {
	for len(l.shares) > 0 && (l.shares[0].load == 0 || now.Sub(l.shares[0].since) >= aheadTime) {
		l.remove(l.shares[0])
		l.shares = l.shares[1:]
	}
}

// add counts a share that has got a slot for a task of the queue, if its tasks are short.
func (l *load) add(s *share, q *served, now time.Time) {
	if !q.short() {
		return
	}
	l.forget(now)
	s.load, s.since = float64(q.computes())/float64(q.lasts), now
	l.taken, l.count = l.taken+s.load, l.count+1
	l.shares = append(l.shares, s)
}

// remove ends the count of a share, if it counts.
func (l *load) remove(s *share) {
	if s.load > 0 {
		l.taken, l.count, s.load = l.taken-s.load, l.count-1, 0
	}
	if l.count == 0 {
		l.taken = 0 // what is left of sums of fractions
	}
}
