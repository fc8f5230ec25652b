package queue

import (
	"errors"
	"fmt"
)

// Errors that callers may test for with errors.Is.
var (
	ErrChanged   = errors.New("it has changed since it was read") // the call changed nothing
	ErrUnique    = fmt.Errorf("%w: another task has its uniqueness", ErrStatus)
	ErrQueueFull = errors.New("queue is full") // nothing was enqueued
	// ErrManyQueues: the call would make a new queue, but the tenant has as many as it may have: see
	// listen.Fleet.SetMaxQueues.
	ErrManyQueues = errors.New("too many queues")
	// ErrDependency: a task that was to be waited for does not exist, or is open. Nothing was enqueued.
	ErrDependency     = errors.New("unusable dependency")
	ErrExists         = errors.New("exists already")
	ErrNoTopic        = errors.New("no such topic")
	ErrNoSubscription = errors.New("no such subscription")
	// ErrUnsubscribe: the function passed to ChangeSubscription returns it to delete the subscription.
	ErrUnsubscribe   = errors.New("delete the subscription")
	ErrNoPublication = errors.New("no such publication") // it never existed, or was deleted

	// ErrLetterStays: the task is retried, but one of its dead letters could not be deleted.
	ErrLetterStays = errors.New("one of its dead letters stays")
	// ErrNotReplicated matches every NotReplicatedError.
	ErrNotReplicated = errors.New("not on enough replicas")
)

// NotReplicatedError lists tasks that are enqueued, but not known to be on as many replicas as Config.Replicas. They
// will run, unless Redis fails over to a replica without them. Enqueueing the same IDs again makes no task twice, and
// asks the replicas once more.
type NotReplicatedError struct {
	IDs         []string
	Wanted, Got int
	Err         error // why the number of replicas is not known; nil if it is known
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
