package listen

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// ErrReplaced is the cause with which a run is stopped when the ID of its task is reserved again. This happens after a
// failover to a replica that lagged, or if somebody deletes the task and enqueues another one with the same ID.
var ErrReplaced = errors.New("the task's ID was reserved again")

// Task is a task that a listener holds, from the reserve until it is settled.
type Task struct {
	Reservation
	state
	// Value is for the listener's user; this package does not use it.
	Value any
	queue string
	// reserved is when the listener got the task by Redis's clock, taken by the listener's own clock.
	reserved, taken time.Time
}

// state has the fields of a Task that Tasks sets. Tasks.mu guards them, except for number, which never changes after
// Add.
type state struct {
	// number orders the tasks by the time of their reserve. began is when the run began, and stop cancels the run with a
	// cause. Before the run begins, began is zero and stop is nil.
	number uint64
	began  time.Time
	stop   context.CancelCauseFunc
	// former is the earlier task with the same ID that this one replaces, or nil. replaced is made when a later task
	// replaces this one, and closed when this task's run is over. over is true once the run is over.
	former   *Task
	replaced chan struct{}
	over     bool
}

// NewTask makes a Task of a reservation. now is when the reply to its reserve arrived, by the listener's own clock.
func NewTask(queue string, r Reservation, reply *ReserveReply, now time.Time) Task {
	return Task{Reservation: r, queue: queue, reserved: reply.Clock, taken: now}
}

// Clock estimates Redis's time at the local time now: the time of the reserve, plus the local time since the reply.
func (t *Task) Clock(now time.Time) time.Time { return t.reserved.Add(now.Sub(t.taken)) }

// Waited returns how long the task had waited when it was reserved. known is false if the task's hash does not say
// since when it had waited.
func (t *Task) Waited() (wait time.Duration, known bool) {
	if since := t.Since(); !since.IsZero() {
		return max(0, t.reserved.Sub(since)), true
	}
	return 0, false
}

// Taken returns when the listener got the task, by its own clock.
func (t *Task) Taken() time.Time { return t.taken }

// Number returns a number that orders a listener's tasks by when they were reserved.
func (t *Task) Number() uint64 { return t.number }

// Tasks are the tasks of a listener, from their reserve until they are settled. An ID never has two runs at a time: if
// the ID of a running task is reserved again, the earlier run is stopped with ErrReplaced, and the new run waits until
// the earlier one is over. The zero value is empty. The methods are safe for concurrent use.
type Tasks struct {
	mu    sync.Mutex       // guards the fields below; no other lock is taken while it is held
	tasks map[string]*Task // by ID, the task that was added last
	taken uint64           // number of tasks added so far
	// active counts the tasks that run or wait to run, plus one while a reserve is on its way.
	active    int
	reserving bool
	stopped   error // the cause given to StopAll; nil before StopAll
	// idle is made by Close, and closed when active is 0.
	idle chan struct{}
}

// State returns whether reserves can begin (open), and whether a reserve is on its way (reserving).
func (s *Tasks) State() (open, reserving bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.idle == nil && s.stopped == nil, s.reserving
}

// BeginReserve records that a reserve begins, and returns true. It returns false if another reserve is on its way, or
// Close was called.
func (s *Tasks) BeginReserve() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.idle != nil || s.reserving {
		return false
	}
	s.active, s.reserving = s.active+1, true
	return true
}

// EndReserve records that a reserve has ended. The caller must have added the reserved tasks before.
func (s *Tasks) EndReserve() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reserving = false
	s.end()
}

// Add adds a reserved task. It returns true if an earlier task with this ID is still in the set; the run of that task
// is stopped.
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

// replace stops the run of a task whose ID was reserved again. The caller holds Tasks.mu.
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

// Begin begins the run of a task. From now on Tasks calls stop to stop the run. Begin waits until the runs of all tasks
// that this one replaces are over. Then the caller runs the task, unless stop was called.
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

// waitsFor returns a channel that is closed when the last earlier run of the same ID that is not over ends. It returns
// nil if t need not wait. It skips runs that are over: a skipped run that never began did not wait for the run before
// it, so t waits for that one itself.
func (s *Tasks) waitsFor(t *Task) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.skipEnded(); t.former == nil {
		return nil
	}
	return t.former.replaced
}

// skipEnded sets t.former to the last earlier task with the same ID whose run is not over. The caller holds Tasks.mu.
func (t *Task) skipEnded() {
	for t.former != nil && t.former.over {
		t.former = t.former.former
	}
}

// Ran records that the runs of tasks are over.
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

// Remove removes settled tasks. If a removed task was given back before its run began, while the run of the task that
// it replaced still goes on, the replaced task takes its place in the set.
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

// Unknown returns those of ids whose tasks are not in the set. before is what All returned before ids were read from
// Redis. Unknown also leaves out the tasks in before: a settled task leaves Redis first, and then the set.
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

// Stop stops the runs of the tasks with these IDs, with the given cause.
func (s *Tasks) Stop(ids []string, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if t := s.tasks[id]; t != nil && t.stop != nil {
			t.stop(cause)
		}
	}
}

// StopAll stops all runs, and all that begin later, with the given cause.
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

// Close makes BeginReserve return false from now on. It must be called only once. The returned channel is closed when
// Active is 0.
func (s *Tasks) Close() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = make(chan struct{})
	if s.active == 0 {
		close(s.idle)
	}
	return s.idle
}

// ByQueue describes the running tasks of each queue.
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

// Active counts the tasks that run or wait to run, plus one while a reserve is on its way.
func (s *Tasks) Active() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.active
}
