package queue

import (
	"errors"
	"fmt"
)

// What callers may test for with errors.Is.
var (
	ErrChanged   = errors.New("it has changed since it was read") // and stays as it is
	ErrUnique    = fmt.Errorf("%w: another task has its uniqueness", ErrStatus)
	ErrQueueFull = errors.New("queue is full") // nothing was enqueued
	// ErrManyQueues refuses a queue that does not exist yet: see Manager.SetMaxQueues in package manage.
	ErrManyQueues = errors.New("too many queues")
	// ErrDependency: a task cannot wait for one that does not exist, or still takes dependencies itself. Nothing was enqueued.
	ErrDependency     = errors.New("unusable dependency")
	ErrExists         = errors.New("exists already")
	ErrNoTopic        = errors.New("no such topic")
	ErrNoSubscription = errors.New("no such subscription")
	// ErrUnsubscribe is what the function of a ChangeSubscription returns to delete the subscription.
	ErrUnsubscribe   = errors.New("delete the subscription")
	ErrNoPublication = errors.New("no such publication") // (any more)

	// ErrLetterStays: the task is retried, but one of its dead letters could not be deleted.
	ErrLetterStays = errors.New("one of its dead letters stays")
	// ErrNotReplicated is what a NotReplicatedError is.
	ErrNotReplicated = errors.New("not on enough replicas")
)

// NotReplicatedError lists tasks that are enqueued, but not known to be on as many replicas as asked: they will run unless
// Redis fails over to a replica without them. Enqueueing these IDs again doubles none, and asks the replicas once more.
type NotReplicatedError struct {
	IDs         []string
	Wanted, Got int
	Err         error // why the number of replicas is not known; nil if it is
}

// Unwrap makes errors.Is find ErrNotReplicated and Err.
func (e *NotReplicatedError) Unwrap() []error { return []error{ErrNotReplicated, e.Err} }

// Error names the task, or counts them.
func (e *NotReplicatedError) Error() string {
	what := fmt.Sprintf("%d tasks are", len(e.IDs))
	if len(e.IDs) == 1 {
		what = fmt.Sprintf("task %s is", e.IDs[0])
	}
	if e.Err != nil {
		return fmt.Sprintf("%s enqueued, but whether on %d replicas is not known: %v", what, e.Wanted, e.Err)
	}
	return fmt.Sprintf("%s enqueued, but on %d of %d replicas in time", what, e.Got, e.Wanted)
}
