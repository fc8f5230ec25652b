package listen

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// ErrReplaced is the cause with which a run is stopped when Redis hands out its task again: after a failover to a
// replica that lagged, or because somebody deleted the task and enqueued another of its ID.
var ErrReplaced = errors.New("its ID was handed out again")

// Task is a task that a listener holds, from its reserve until it is settled.
type Task struct {
	Reservation
	state
	// Value is what the listener's user keeps with it.
	Value any
	queue string
	// reserved is the moment of the reserve by Redis's clock, and taken by this process's.
	reserved, taken time.Time
}

// state is the state of a task in its Tasks, which set the fields and whose mu guards them.
type state struct {
	// number orders the tasks by when they were reserved; began is when the run began, and stop ends it, with a cause:
	// zero and nil before.
	number uint64
	began  time.Time
	stop   context.CancelCauseFunc
	// former is the run of the same ID that this one replaces and has not waited for yet. Once a run is replaced
	// itself, replaced is closed when it is over.
	former   *Task
	replaced chan struct{}
	over     bool
}

// NewTask makes a task of a reply that came at now.
func NewTask(queue string, r Reservation, reply *ReserveReply, now time.Time) Task {
	return Task{Reservation: r, queue: queue, reserved: reply.Clock, taken: now}
}

// Clock estimates Redis's time: when the task was reserved, and the time that has passed here since then.
func (t *Task) Clock(now time.Time) time.Time { return t.reserved.Add(now.Sub(t.taken)) }

// Waited is how long the task had waited when it was reserved; false if nobody knows since when.
func (t *Task) Waited() (wait time.Duration, known bool) {
	if since := t.Since(); !since.IsZero() {
		return max(0, t.reserved.Sub(since)), true
	}
	return 0, false
}

// Taken is when the listener got the task, by its own clock.
func (t *Task) Taken() time.Time { return t.taken }

// Number orders a listener's tasks by when they were reserved.
func (t *Task) Number() uint64 { return t.number }

// Tasks are the tasks of a listener, from their reserve until they are settled. A task runs once at a time: if Redis
// hands out an ID again that still runs here, the former run is stopped with ErrReplaced, and the new one waits for its
// end. The zero value is empty. The methods are safe for concurrent use.
//
// A task passes Add, Begin, then Ran when no other run of its ID need wait any more, and Remove when Redis has its end; the
// last two in either order.
type Tasks struct {
	mu    sync.Mutex // guards what follows; no other lock is taken while it is held
	tasks map[string]*Task
	taken uint64 // tasks taken so far
	// active counts the tasks that run or wait to run, and the reserve that is on its way.
	active    int
	reserving bool
	stopped   error // why tasks are stopped; nil while they may run
	// idle is made by close, and closed when nothing is active any more.
	idle chan struct{}
}

// State reports whether reserves may begin, and whether one is on its way.
func (s *Tasks) State() (open, reserving bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.idle == nil && s.stopped == nil, s.reserving
}

// BeginReserve begins a reserve, unless one is on its way, or none may begin any more.
func (s *Tasks) BeginReserve() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.idle != nil || s.reserving {
		return false
	}
	s.active, s.reserving = s.active+1, true
	return true
}

// EndReserve ends a reserve whose tasks are added.
func (s *Tasks) EndReserve() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reserving = false
	s.end()
}

// Add adds a task that a reserve has brought. replaces means that its ID still runs here.
func (s *Tasks) Add(t *Task) (replaces bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tasks == nil {
		s.tasks = make(map[string]*Task)
	}
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
func (t *Task) replace() {
	if t.over {
		return
	}
	if t.replaced == nil {
		t.replaced = make(chan struct{})
	}
	if t.stop != nil {
		t.stop(ErrReplaced)
	}
}

// Begin lets a task be stopped, and waits until the runs that it replaces are over. It may run then, unless stop was
// called.
func (s *Tasks) Begin(t *Task, stop context.CancelCauseFunc) {
	s.mu.Lock()
	t.began, t.stop = time.Now(), stop
	switch {
	case t.replaced != nil:
		stop(ErrReplaced)
	case s.stopped != nil:
		stop(s.stopped)
	}
	s.mu.Unlock()
	for former := s.waitsFor(t); former != nil; former = s.waitsFor(t) {
		<-former
	}
}

// waitsFor is closed when the run ends that t has to wait for next; nil if it may run. A run that went back without
// having begun has waited for nobody: the one before it counts.
func (s *Tasks) waitsFor(t *Task) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.skipEnded(); t.former == nil {
		return nil
	}
	return t.former.replaced
}

// skipEnded makes former the last run of the same ID that has not ended. The caller holds the set's mu.
func (t *Task) skipEnded() {
	for t.former != nil && t.former.over {
		t.former = t.former.former
	}
}

// Ran ends the run of tasks.
func (s *Tasks) Ran(tasks ...*Task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range tasks {
		if t.over = true; t.replaced != nil {
			close(t.replaced)
		}
		s.end()
	}
}

func (s *Tasks) end() {
	s.active--
	if s.idle != nil && s.active == 0 {
		close(s.idle)
	}
}

// Remove removes tasks that are settled. One that went back without a run leaves the former run that it was to wait
// for.
func (s *Tasks) Remove(tasks ...*Task) {
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

// Unknown lists the IDs of tasks that are not in the set, and were not before the IDs were read: a settled task leaves
// Redis first, and then the set.
func (s *Tasks) Unknown(ids []string, before map[string]*Task) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(ids, func(id string) bool { return s.tasks[id] != nil || before[id] != nil })
}

// All maps IDs to the tasks that run, wait to run or wait to be settled.
func (s *Tasks) All() map[string]*Task {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.tasks)
}

// Stop stops some tasks.
func (s *Tasks) Stop(ids []string, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if t := s.tasks[id]; t != nil && t.stop != nil {
			t.stop(cause)
		}
	}
}

// StopAll stops what runs, and what begins later.
func (s *Tasks) StopAll(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = cause
	for _, t := range s.tasks {
		if t.stop != nil {
			t.stop(cause)
		}
	}
}

// Close lets no reserve begin any more. It is called once; the channel is closed when nothing is active.
func (s *Tasks) Close() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = make(chan struct{})
	if s.active == 0 {
		close(s.idle)
	}
	return s.idle
}

// ByQueue counts the tasks that run.
func (s *Tasks) ByQueue() map[string]Running {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[string]Running)
	for _, t := range s.tasks {
		if t.stop == nil || t.over {
			continue
		}
		since, r := float64(t.Clock(t.began).UnixMilli())/1000, all[t.queue]
		if r.Tasks++; r.Since == 0 || since < r.Since {
			r.Since = since
		}
		r.Last = max(r.Last, since)
		all[t.queue] = r
	}
	return all
}

// Active counts the tasks that run or wait to run, and the reserve that is on its way.
func (s *Tasks) Active() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.active
}
