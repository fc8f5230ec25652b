package schedule

import "time"

// load is how busy short tasks keep the places for guests. Once all places are busy, more slots for short tasks would
// gain nothing: the tasks would take turns at the places, each on its own goroutine, with instances whose memory has
// left the processor's caches. So while the load is full, slots stay free for other tasks. A task that still runs after
// aheadTime waits for something or is not short. It does not count from then on. For each task that does not count, one
// more short task may have a slot; it waits at the gate, so that a short task gets the next turn. Guarded by the
// scheduler's mu.
type load struct {
	places float64
	busy   float64  // places that the counted shares keep busy
	count  int      // counted shares
	shares []*share // the counted ones, and some that count no longer, in the order in which they got their slots
}

// full reports whether short tasks keep all places busy. inUse is how many slots are in use.
func (l *load) full(now time.Time, inUse int) bool {
	l.expire(now)
	return l.busy >= l.places+float64(inUse-l.count)-1e-6 // tolerates rounding errors
}

// expire ends the count of the shares that have had their slots for aheadTime.
func (l *load) expire(now time.Time) {
	for len(l.shares) > 0 && (l.shares[0].load == 0 || now.Sub(l.shares[0].since) >= aheadTime) {
		l.remove(l.shares[0])
		l.shares = l.shares[1:]
	}
}

// add counts a share that has just got a slot, if the tasks of its queue are short.
func (l *load) add(s *share, p pace, now time.Time) {
	if !p.short() {
		return
	}
	l.expire(now)
	s.load, s.since = float64(p.computes())/float64(p.lasts), now
	l.busy, l.count = l.busy+s.load, l.count+1
	l.shares = append(l.shares, s)
}

// remove ends the count of a share, if it counts.
func (l *load) remove(s *share) {
	if s.load > 0 {
		l.busy, l.count, s.load = l.busy-s.load, l.count-1, 0
	}
	if l.count == 0 {
		l.busy = 0 // drop rounding errors
	}
}
