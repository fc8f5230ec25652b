package host

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/quern-project/quern/sdk/queue/listen"
)

// taskSet is the tasks of a session, from when they are taken until they are settled. A task runs once at a time: if
// Redis hands out an ID again that still runs here, because a replica that lagged has taken over, or somebody deleted
// the task and enqueued another of its ID, the former run is stopped, and the new one waits for its end.
type taskSet struct {
	mu    sync.Mutex // guards what follows; no other lock is taken while it is held
	tasks map[string]*task
	taken uint64 // tasks taken so far
	// active counts the tasks that run or wait for a slot, and the reserve that is on its way.
	active    int
	reserving bool
	stopped   error // why tasks are stopped; nil while they may run
	// idle is made by close, and closed when nothing is active any more.
	idle chan struct{}
}

// state reports whether reserves may begin, and whether one is on its way.
func (s *taskSet) state() (open, reserving bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.idle == nil && s.stopped == nil, s.reserving
}

// beginReserve begins a reserve, unless one is on its way, or none may begin any more.
func (s *taskSet) beginReserve() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.idle != nil || s.reserving {
		return false
	}
	s.active, s.reserving = s.active+1, true
	return true
}

func (s *taskSet) endReserve() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reserving = false
	s.end()
}

// add adds a task that a reserve has brought. replaces means that its ID still runs here.
func (s *taskSet) add(t *task) (replaces bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.active++
	s.taken++
	t.number = s.taken
	if t.former = s.tasks[t.ID]; t.former != nil {
		t.former.replace()
	}
	s.tasks[t.ID] = t
	return t.former != nil
}

// replace stops a task whose ID was handed out again. The caller holds the set's mu.
func (t *task) replace() {
	if t.over {
		return
	}
	if t.replaced == nil {
		t.replaced = make(chan struct{})
	}
	if t.stop != nil {
		t.stop(errReplaced)
	}
}

// begin lets a task be stopped.
func (s *taskSet) begin(t *task, stop context.CancelCauseFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.began, t.stop = time.Now(), stop
	switch {
	case t.replaced != nil:
		stop(errReplaced)
	case s.stopped != nil:
		stop(s.stopped)
	}
}

// waitsFor is closed when the run ends that t has to wait for next; nil if it may run. A run that went back without
// having begun has waited for nobody: the one before it counts.
func (s *taskSet) waitsFor(t *task) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.skipEnded(); t.former == nil {
		return nil
	}
	return t.former.replaced
}

// skipEnded makes former the last run of the same ID that has not ended. The caller holds the set's mu.
func (t *task) skipEnded() {
	for t.former != nil && t.former.over {
		t.former = t.former.former
	}
}

// ran ends the run of tasks.
func (s *taskSet) ran(tasks ...*task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range tasks {
		if t.over = true; t.replaced != nil {
			close(t.replaced)
		}
		s.end()
	}
}

func (s *taskSet) end() {
	s.active--
	if s.idle != nil && s.active == 0 {
		close(s.idle)
	}
}

// remove removes tasks that are settled. One that went back without a run leaves the former run that it was to wait
// for.
func (s *taskSet) remove(tasks ...*task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range tasks {
		t.skipEnded()
		switch {
		case s.tasks[t.ID] != t:
		case t.former != nil:
			s.tasks[t.ID] = t.former
		default:
			delete(s.tasks, t.ID)
		}
	}
}

// unknown lists the IDs of tasks that are not in the set, and were not before the IDs were read: a settled task leaves Redis
// first, and then the set.
func (s *taskSet) unknown(ids []string, before map[string]*task) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(ids, func(id string) bool { return s.tasks[id] != nil || before[id] != nil })
}

// all are the tasks that run, wait for a slot or wait to be settled.
func (s *taskSet) all() map[string]*task {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.tasks)
}

// stop stops some tasks.
func (s *taskSet) stop(ids []string, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if t := s.tasks[id]; t != nil && t.stop != nil {
			t.stop(cause)
		}
	}
}

// stopAll stops what runs, and what begins later.
func (s *taskSet) stopAll(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = cause
	for _, t := range s.tasks {
		if t.stop != nil {
			t.stop(cause)
		}
	}
}

// close lets no reserve begin any more. It is called once; the channel is closed when nothing is active.
func (s *taskSet) close() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = make(chan struct{})
	if s.active == 0 {
		close(s.idle)
	}
	return s.idle
}

// byQueue are the tasks whose guests run.
func (s *taskSet) byQueue() map[string]listen.Running {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]listen.Running)
	for _, t := range s.tasks {
		if t.stop == nil || t.over {
			continue
		}
		since, r := float64(t.clock(t.began).UnixMilli())/1000, all[t.Queue.Name]
		if r.Tasks++; r.Since == 0 || since < r.Since {
			r.Since = since
		}
		r.Last = max(r.Last, since)
		all[t.Queue.Name] = r
	}
	return all
}

// running counts what is active.
func (s *taskSet) running() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.active
}
