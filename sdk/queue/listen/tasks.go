package listen

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// ErrReplaced is why a run is stopped whose task's ID was reserved again: after a failover to a replica that lagged, or
// because somebody deleted the task and enqueued another one with its ID.
var ErrReplaced = errors.New("the task's ID was reserved again")

// Task is a task that a listener holds, from the reserve until it is settled.
type Task struct {
	Reservation
	state
	// Value is for the listener's user.
	Value any
	queue string
	// reserved and taken are when the listener got the task: by Redis's clock, and by its own.
	reserved, taken time.Time
}

// state is the state of a task in Tasks. Tasks sets the fields, and its mu guards them.
type state struct {
	// number orders the tasks by when they were reserved. began is when the run began, and stop ends it with a cause;
	// they are zero and nil before it began.
	number uint64
	began  time.Time
	stop   context.CancelCauseFunc
	// former is the run of the same ID that this one replaces; nil if there is none, or it is over. replaced is made
	// when another run replaces this one, and closed when this one is over.
	former   *Task
	replaced chan struct{}
	over     bool
}

// NewTask makes a Task of a reservation; the reply to its reserve has arrived now.
func NewTask(queue string, r Reservation, reply *ReserveReply, now time.Time) Task {
	return Task{Reservation: r, queue: queue, reserved: reply.Clock, taken: now}
}

// Clock estimates Redis's time: the time of the reserve, plus the time that has passed here since then.
func (t *Task) Clock(now time.Time) time.Time { return t.reserved.Add(now.Sub(t.taken)) }

// Waited returns how long the task had waited when it was reserved; known is false if its hash does not say since when.
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

// Tasks are the tasks of a listener, from their reserve until they are settled. A task never runs twice at a time: if
// an ID is reserved again whose task still runs here, the former run is stopped with ErrReplaced, and the new run waits
// for its end. The zero value is empty. The methods are safe for concurrent use.
type Tasks struct {
	mu    sync.Mutex // guards the fields below; no other lock is taken while it is held
	tasks map[string]*Task
	taken uint64 // tasks added so far
	// active counts the tasks that run or wait to run, plus one while a reserve is on its way.
	active    int
	reserving bool
	stopped   error // why tasks are stopped; nil while they may run
	// idle is made by Close, and closed when active is 0.
	idle chan struct{}
}

// State reports whether reserves may begin, and whether one is on its way.
func (s *Tasks) State() (open, reserving bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.idle == nil && s.stopped == nil, s.reserving
}

// BeginReserve begins a reserve, and returns true. It returns false if one is on its way, or Close was called.
func (s *Tasks) BeginReserve() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.idle != nil || s.reserving {
		return false
	}
	s.active, s.reserving = s.active+1, true
	return true
}

// EndReserve ends a reserve, after its tasks were added.
func (s *Tasks) EndReserve() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reserving = false
	s.end()
}

// Add adds a task that a reserve has brought. replaces: a task with this ID is still here, and is stopped.
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

// replace stops a task whose ID was reserved again. The caller holds the set's mu.
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

// Begin makes stop the function that stops the task, and waits until the runs that the task replaces are over. Then the
// task may run, unless stop was called.
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

// waitsFor returns a channel that is closed when the next run ends that t has to wait for; nil if t may run. It skips
// runs that are over. Such a run may not have waited for the run before it, because it never began; so t waits for that
// one, too.
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

// Remove removes settled tasks. If a task was given back without a run, while the run that it replaces still goes on,
// that run takes its place.
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

// Unknown returns the IDs that are not in the set, and were not in it before the IDs were read from Redis: a settled
// task leaves Redis first, and then the set.
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

// Stop stops the tasks with these IDs that run.
func (s *Tasks) Stop(ids []string, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		if t := s.tasks[id]; t != nil && t.stop != nil {
			t.stop(cause)
		}
	}
}

// StopAll stops all running tasks, and all that begin later.
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

// Close lets no reserve begin any more. It must be called only once. The channel is closed when Active is 0.
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
