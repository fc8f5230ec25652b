package runtime

import "sync"

// gate lets as many guests compute at once as it has places. More than one for each processor would gain nothing, and
// delay the host's goroutines, since Go cannot interrupt a guest. Guests that wait for their first turn alternate with
// others, so that a short task does not queue behind long ones, and a flood of short ones does not stop long ones.
type gate struct {
	mu     sync.Mutex
	free   int
	first  queue // of guests that wait for their first turn
	others queue
	last   *queue // that got the last place
}

// queue is the waiting guests, in order.
type queue []chan struct{}

// leave gives a place back.
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

// enter gets a place for a guest, and reports whether it had to wait in q: first for its first turn, others for a later
// one. It needs no context, since no call keeps a place much longer than a slice: calls leave before they wait for the
// host.
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

// call gives the place to the guest that waits longest; false if none does.
func (q *queue) call() bool {
	if len(*q) == 0 {
		return false
	}
	close((*q)[0])
	*q = (*q)[1:]
	return true
}
