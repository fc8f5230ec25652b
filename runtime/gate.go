package runtime

import "sync"

// gate lets only so many guests compute at once: one for each core. More would gain nothing, and would keep
// the host's own goroutines from the processors, for Go cannot interrupt a guest. Those that wait for their
// first turn and those that have had one take turns: a short task does not queue behind long ones, and a
// flood of short ones does not keep long ones from going on.
type gate struct {
	mu     sync.Mutex
	free   int
	first  queued // of those that wait for their first turn
	others queued
	last   *queued // who had the last place that was handed over
}

// queued are those that wait, in order.
type queued []chan struct{}

func newGate(places int) *gate { return &gate{free: places} }

// enter takes a place, and waits for one if there is none. It tells whether it did.
func (g *gate) enter() (waited bool) { return g.wait(&g.first) }

// again takes a place for one that has had one before, as enter does.
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

// wanted tells whether anybody waits for a place.
func (g *gate) wanted() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.first)+len(g.others) > 0
}

// wait takes a place, or queues for one, and tells whether it did. Nobody keeps one for much longer than a slice, so
// there is no need to look at a context.
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

// call gives the place to the one who waits longest; false if nobody does.
func (t *queued) call() bool {
	if len(*t) == 0 {
		return false
	}
	close((*t)[0])
	*t = (*t)[1:]
	return true
}
