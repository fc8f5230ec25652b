package runtime

import "sync"

// gate lets as many guests compute at once as it has places. More places than processors would gain nothing, and would
// delay the host's goroutines, since Go cannot interrupt a guest. Guests that wait for their first turn alternate with
// guests that have computed before. So a short task does not queue behind long ones, and a flood of short tasks does
// not stop long ones.
type gate struct {
	mu     sync.Mutex
	free   int    // number of free places
	first  queue  // guests that wait for their first turn
	others queue  // guests that have computed before and wait for another turn
	last   *queue // the queue that got a place last; nil at first
}

// queue holds the waiting guests, the longest-waiting first. A guest gets its place when its channel is closed.
type queue []chan struct{}

// leave gives the caller's place to a waiting guest; if none waits, the place becomes free.
func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	next, after := &g.first, &g.others
	if g.last == next {
		next, after = after, next
	}
	switch {
	case next.call():
		g.last = next
	case after.call():
		g.last = after
	default:
		g.free++
	}
}

// wanted reports whether a guest waits for a place.
func (g *gate) wanted() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.first)+len(g.others) > 0
}

// enter gets a place for a guest, and reports whether the guest had to wait. The guest waits in q: &g.first for its
// first turn, &g.others for a later turn. enter needs no context, since no call keeps a place much longer than a slice:
// calls leave before they wait for the host.
func (g *gate) enter(q *queue) (waited bool) {
	g.mu.Lock()
	if g.free > 0 {
		g.free--
		g.mu.Unlock()
		return false
	}
	turn := make(chan struct{})
	*q = append(*q, turn)
	g.mu.Unlock()
	<-turn
	return true
}

// call gives a place to the guest that has waited longest, and reports whether a guest was waiting.
func (q *queue) call() bool {
	if len(*q) == 0 {
		return false
	}
	close((*q)[0])
	*q = (*q)[1:]
	return true
}
