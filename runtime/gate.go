package runtime

import "sync"

// gate lets as many guests compute at once as it has places. More than one for each processor would gain nothing, and delay
// the host's goroutines, since Go cannot interrupt a guest. Guests that wait for their first turn alternate with others: a
// short task does not queue behind long ones, and a flood of short ones does not stop long ones.
type gate struct {
	mu     sync.Mutex
	free   int
	first  queued // of those that wait for their first turn
	others queued
	last   *queued // that got the last place
}

// queued are the waiting guests, in order.
type queued []chan struct{}

// enter takes a place for a guest's first turn, again for a later one. Both report whether they had to wait.
func (g *gate) enter() (waited bool) { return g.wait(&g.first) }
func (g *gate) again() (waited bool) { return g.wait(&g.others) }

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

// wait takes a place, and reports whether it had to queue. It needs no context, since no call keeps a place much longer than a
// slice: it leaves it before what takes the host long.
func (g *gate) wait(queue *queued) (waited bool) {
	g.mu.Lock()
	if g.free > 0 {
		g.free--
		g.mu.Unlock()
		return false
	}
	turn := make(chan struct{})
	*queue = append(*queue, turn)
	g.mu.Unlock()
	<-turn
	return true
}

// call gives the place to the guest that waits longest; false if none does.
func (t *queued) call() bool {
	if len(*t) == 0 {
		return false
	}
	close((*t)[0])
	*t = (*t)[1:]
	return true
}
