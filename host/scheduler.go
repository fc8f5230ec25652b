package host

import (
	"sync"
	"time"

	"github.com/quern-project/quern/plugins"
)

// maxBatch is the most tasks of one queue that one grant covers.
const maxBatch = 256

// place names a queue of a tenant.
type place struct{ tenant, queue string }

// served is a queue that this host serves, as the scheduler sees it; guarded by the scheduler's mu.
type served struct {
	place
	session *session
	// ready says that there may be work: a message came, the poll saw some, or the last reserve
	// brought as much as was asked.
	ready bool
	// woken says that ready was set while a reserve was on its way, whose answer knows nothing of it.
	woken bool
	// suspect says that the reserved list may hold tasks that the host does not know.
	suspect bool
	// touched says that something was reserved since the last comparison with the reserved list.
	touched bool
	running int    // slots that run its tasks, or are granted to it
	turn    uint64 // when it was last granted a slot
}

// scheduler decides which queue gets the next free slot. Its methods are safe for concurrent use.
type scheduler struct {
	directory *plugins.Directory
	slots     int
	gauge     func(inUse int)

	mu     sync.Mutex
	queues map[place]*served
	inUse  int // slots that run a task, or are granted
	// unsettled counts tasks that have ended but are not settled in Redis; when more pile up than
	// there are slots, nothing new begins.
	unsettled int
	memory    memory
	turns     uint64

	// poke has a token when there may be something to grant; never closed.
	poke chan struct{}
}

func newScheduler(directory *plugins.Directory, slots int, memoryBytes int64, gauge func(int)) *scheduler {
	return &scheduler{
		directory: directory, slots: slots, gauge: gauge,
		queues: make(map[place]*served), memory: memory{total: memoryBytes}, poke: make(chan struct{}, 1),
	}
}

// grant is leave to reserve for one queue: len(shares) tasks on this version of its plugin. The
// version is retained for the grant, and once more for each task that comes of it.
type grant struct {
	served  *served
	session *session
	version *plugins.Version
	shares  []share
	suspect bool
}

// pick grants the free slots: one at a time to the queue with the fewest running tasks, among equals
// to the one that was served longest ago.
func (s *scheduler) pick() []*grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	free := s.slots - s.inUse - max(0, s.unsettled-s.slots)
	if free <= 0 {
		return nil
	}
	now := time.Now()
	open := make([]*served, 0, len(s.queues))
	for _, q := range s.queues {
		if (q.ready || q.suspect) && q.session.available(now) {
			open = append(open, q)
		}
	}
	grants := make(map[*served]*grant)
	for free > 0 && len(open) > 0 {
		best := 0
		for i, q := range open {
			if b := open[best]; q.running < b.running || q.running == b.running && q.turn < b.turn {
				best = i
			}
		}
		if s.grantOne(open[best], grants) {
			free--
		} else {
			open[best] = open[len(open)-1]
			open = open[:len(open)-1]
		}
	}
	s.gauge(s.inUse)
	list := make([]*grant, 0, len(grants))
	for _, g := range grants {
		if len(g.shares) == 0 {
			g.version.Release()
			continue
		}
		g.served.woken = false
		list = append(list, g)
	}
	return list
}

// grantOne gives the queue one slot more, if its plugin, its bound and the memory allow it.
func (s *scheduler) grantOne(q *served, grants map[*served]*grant) bool {
	g := grants[q]
	if g == nil {
		version := s.directory.Acquire(q.tenant, q.queue)
		if version == nil {
			return false // its plugin has just gone
		}
		g = &grant{served: q, session: q.session, version: version, suspect: q.suspect}
		grants[q] = g
	}
	if bound := g.version.Concurrency(); bound > 0 && q.running >= bound || len(g.shares) >= maxBatch {
		return false
	}
	part, ok := s.memory.take(q, g.version.Footprint())
	if !ok {
		return false
	}
	g.shares = append(g.shares, part)
	s.inUse++
	q.running++
	s.turns++
	q.turn = s.turns
	return true
}

// settleGrant takes back what a reserve did not use: it asked for all shares of the grant and got
// the first used ones.
func (s *scheduler) settleGrant(g *grant, used int, failed bool) {
	s.mu.Lock()
	q := g.served
	for _, part := range g.shares[used:] {
		s.free(q, part)
	}
	switch {
	case failed:
		q.suspect, q.ready = true, true
	case used < len(g.shares):
		// It brought less than asked: there is no more, but for what was announced meanwhile.
		q.suspect = false
		q.ready = q.woken || g.suspect
	case !g.suspect:
		q.ready = true
	}
	if used > 0 {
		q.touched = true
	}
	if !q.ready {
		s.memory.forget(q)
	}
	s.mu.Unlock()
	g.version.Release()
	s.wakeIntake()
}

// end frees the slot of a task that has run; settled ends what it began.
func (s *scheduler) end(q *served, part share) {
	s.mu.Lock()
	s.free(q, part)
	s.unsettled++
	s.gauge(s.inUse)
	s.mu.Unlock()
	s.wakeIntake()
}

func (s *scheduler) free(q *served, part share) {
	s.memory.give(part)
	s.inUse--
	q.running--
}

// settled says that n ended tasks are done with.
func (s *scheduler) settled(n int) {
	s.mu.Lock()
	s.unsettled -= n
	s.mu.Unlock()
	s.wakeIntake()
}

// wake says that there may be work in a queue.
func (s *scheduler) wake(at place) {
	s.mu.Lock()
	if q := s.queues[at]; q != nil {
		q.ready, q.woken = true, true
	}
	s.mu.Unlock()
	s.wakeIntake()
}

// empty says that the poll saw nothing in a queue: it does not wait for memory any more.
func (s *scheduler) empty(at place) {
	s.mu.Lock()
	if q := s.queues[at]; q != nil && !q.woken && !q.suspect {
		q.ready = false
		s.memory.forget(q)
	}
	s.mu.Unlock()
}

// suspect makes the intake compare a queue's reserved list with what runs.
func (s *scheduler) suspect(at place) {
	s.mu.Lock()
	if q := s.queues[at]; q != nil {
		q.suspect = true
	}
	s.mu.Unlock()
	s.wakeIntake()
}

// serve adds a queue, for a session that is registered as its listener.
func (s *scheduler) serve(at place, session *session) {
	s.mu.Lock()
	s.queues[at] = &served{place: at, session: session, ready: true}
	s.mu.Unlock()
	s.wakeIntake()
}

// leave drops a queue; its running tasks go on.
func (s *scheduler) leave(at place) {
	s.mu.Lock()
	if q := s.queues[at]; q != nil {
		s.memory.forget(q)
		delete(s.queues, at)
	}
	s.mu.Unlock()
}

// takeTouched lists the session's queues that reserved something since they were last asked.
func (s *scheduler) takeTouched(session *session) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var queues []string
	for _, q := range s.queues {
		if q.session == session && q.touched {
			q.touched = false
			queues = append(queues, q.queue)
		}
	}
	return queues
}

// used is how many slots are taken.
func (s *scheduler) used() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inUse
}

func (s *scheduler) wakeIntake() {
	select {
	case s.poke <- struct{}{}:
	default:
	}
}
