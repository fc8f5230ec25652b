package runtime

import (
	"container/list"
	"sync"
)

// gate lets only so many guests compute at once: one for each core. More would gain nothing, and would keep
// the host's own goroutines from the processors, for Go cannot interrupt a guest. Whoever waits for its
// first turn comes before those that have had one: a short task does not queue behind long ones.
type gate struct {
	mu     sync.Mutex
	free   int
	first  list.List // of chan struct{}: those that wait for their first turn
	others list.List // of the same
}

func newGate(places int) *gate {
	return &gate{free: places}
}

// enter takes a place, and waits for one if there is none.
func (g *gate) enter() { g.wait(&g.first) }

// leave gives a place back.
func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, queue := range []*list.List{&g.first, &g.others} {
		if next := queue.Front(); next != nil {
			close(queue.Remove(next).(chan struct{}))
			return
		}
	}
	g.free++
}

// again takes a place for one that had one before.
func (g *gate) again() { g.wait(&g.others) }

// wanted tells whether anybody waits for a place.
func (g *gate) wanted() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.first.Len()+g.others.Len() > 0
}

// wait takes a place, or queues for one. Places come every millisecond, since nobody keeps one for longer:
// there is no need to look at a context.
func (g *gate) wait(queue *list.List) {
	g.mu.Lock()
	if g.free > 0 {
		g.free--
		g.mu.Unlock()
		return
	}
	turn := make(chan struct{})
	queue.PushBack(turn)
	g.mu.Unlock()
	<-turn
}
