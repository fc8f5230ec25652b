package queue

import (
	"errors"
	"fmt"

	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// Errors that callers can test for with errors.Is.
var (
	ErrChanged = errors.New("it has changed since it was read") // the call changed nothing
	ErrUnique  = fmt.Errorf("%w: another task has its uniqueness", ErrStatus)
	// ErrQueueFull means that nothing was enqueued, and that there may be room later: the queue has as many waiting tasks
	// as it may have; or the tenant has used up a quota, and the error is a manage.QuotaError; or a pause refuses new
	// tasks, and the error is a manage.ErrPaused, too.
	ErrQueueFull = store.ErrQueueFull
	// ErrManyQueues means that the call needs a new queue, but the tenant has its maximum number of queues: see
	// listen.Fleet.SetMaxQueues.
	ErrManyQueues = errors.New("too many queues")
	// ErrDependency means that a named dependency does not exist, or is open. The task was not enqueued. If it has more
	// than 32 dependencies, it may have been enqueued without some of them; it then fails after a minute.
	ErrDependency     = errors.New("unusable dependency")
	ErrExists         = errors.New("exists already")
	ErrNoTopic        = errors.New("no such topic")
	ErrNoSubscription = errors.New("no such subscription")
	// ErrUnsubscribe is returned by the function passed to ChangeSubscription, to delete the subscription.
	ErrUnsubscribe   = errors.New("delete the subscription")
	ErrNoPublication = errors.New("no such publication") // it never existed, or was deleted

	// ErrLetterStays means that the task was retried, but one of its dead letters could not be deleted.
	ErrLetterStays = errors.New("one of its dead letters stays")
	// ErrNotReplicated matches every NotReplicatedError.
	ErrNotReplicated = errors.New("not on enough replicas")
)

// NotReplicatedError lists tasks, or one publication, that are stored, but not confirmed by as many replicas as
// Config.Replicas. The tasks will run, unless Redis fails over to a replica that lacks them. Enqueueing the same IDs
// again makes no task twice, and waits for the replicas once more.
type NotReplicatedError struct {
	IDs         []string
	Wanted, Got int   // numbers of replicas
	Err         error // why the number of replicas is unknown; nil if it is known
}

// Unwrap makes errors.Is find ErrNotReplicated and Err.
func (e *NotReplicatedError) Unwrap() []error { return []error{ErrNotReplicated, e.Err} }

// Error names the task, or gives the number of tasks if there are several.
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
