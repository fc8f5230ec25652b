package schedule

import "time"

// load estimates how many of the places for guests are kept busy by short tasks. Once all places are busy, more slots
// for short tasks would gain nothing. The tasks would take turns at the places, each on another goroutine, with
// instances whose memory has left the processor's caches. So while the load is full, slots stay free for other tasks.
//
// A task that still runs after aheadTime waits for something or is not short, so it does not count from then on. For
// each task that does not count, one more short task can have a slot. That task waits at the gate, so that a short task
// gets the next turn. The scheduler's mu guards all fields.
type load struct {
	places float64
	busy   float64  // how many places the counted shares keep busy
	count  int      // how many shares are counted
	shares []*share // the counted shares, and some that count no longer, in the order in which they got slots
}

// full reports whether short tasks keep all places busy. inUse is how many slots are in use.
func (l *load) full(now time.Time, inUse int) bool {
	l.expire(now)
	return l.busy >= l.places+float64(inUse-l.count)-1e-6 // tolerates rounding errors
}

// expire stops counting the shares that have had their slots for aheadTime.
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

// remove stops counting a share, if it counts.
func (l *load) remove(s *share) {
	if s.load > 0 {
		l.busy, l.count, s.load = l.busy-s.load, l.count-1, 0
	}
	if l.count == 0 {
		l.busy = 0 // drop rounding errors
	}
}
