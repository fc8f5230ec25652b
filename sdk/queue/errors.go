package queue

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

var (
	// ErrNoTask: there is no task of that ID (any more).
	ErrNoTask = errors.New("no such task")
	// ErrLost: the caller no longer holds the task; nothing was written.
	ErrLost = errors.New("task is held by another listener or run")
	// ErrLeaseLost: the listener's lease is over; its tasks belong to others.
	ErrLeaseLost = errors.New("the listener's lease is lost")
	// ErrInvalid: an argument can never be accepted; the text names what would be.
	ErrInvalid = errors.New("invalid")
	// ErrStatus: the task's status forbids the operation.
	ErrStatus = errors.New("not possible in this status")
	// ErrQueueFull: the queue has reached its limit; nothing was enqueued.
	ErrQueueFull = errors.New("queue is full")
	// ErrDamaged: the queue takes no tasks, because one of its keys is of another type.
	ErrDamaged = errors.New("a key of the queue is of another type")
	// ErrNoLetter: the task has failed for good and has no dead letter, because a key of the dead-letter queue is of
	// another type. It keeps its parameters and history, and can be retried by hand.
	ErrNoLetter = errors.New("its dead letter cannot be written")
	// ErrNotReplicated: too few replicas have what was enqueued; see NotReplicatedError.
	ErrNotReplicated = errors.New("not on enough replicas")
	// ErrCancelled is the cause with which a handler's context ends when its task is cancelled, and the answer to a retry
	// of such a task: it has failed for good.
	ErrCancelled = errors.New("the task was cancelled")
	// ErrDraining: the listener was told to take nothing more.
	ErrDraining = errors.New("the listener is draining")
	// ErrNoNode: no such listener is known.
	ErrNoNode = errors.New("no such listener")
	// ErrVersion: a newer or unknown protocol wrote the data in Redis.
	ErrVersion = errors.New("unknown protocol version")
)

// refusals are the first words of Redis's errors that pass by themselves.
var refusals = []string{
	"OOM", "READONLY", "LOADING", "MISCONF", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "NOREPLICAS",
	"ERR max number of clients",
}

// IsUnavailable tells whether Redis cannot be reached or refuses for now (full, loading, read-only, cannot persist), so
// that the same call may succeed later.
func IsUnavailable(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	var reply redis.Error
	if errors.As(err, &reply) {
		text := reply.Error()
		// Before Redis 7.0 the position in the script precedes the error of a command.
		if _, inner, found := strings.Cut(text, "@user_script: "); found && strings.HasPrefix(text, "ERR Error running script") {
			_, text, _ = strings.Cut(inner, ": -")
		}
		return slices.ContainsFunc(refusals, func(word string) bool { return strings.HasPrefix(text, word) })
	}
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, redis.ErrPoolTimeout) || strings.Contains(err.Error(), "connection")
}

// NotReplicatedError lists tasks that are enqueued, but not known to be on as many replicas as asked: they will run unless
// Redis fails over to a replica without them. Enqueueing these IDs again doubles none, and asks the replicas once more.
type NotReplicatedError struct {
	IDs         []string
	Wanted, Got int
	// Err is why the number of replicas is not known; nil if it is.
	Err error
}

// Unwrap makes errors.Is find Err.
func (e *NotReplicatedError) Unwrap() error { return e.Err }

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

// Is makes it an ErrNotReplicated.
func (e *NotReplicatedError) Is(target error) bool { return target == ErrNotReplicated }

// verdict maps a script's answer for one task to an error.
func verdict(answer any, id string) error {
	switch answer {
	case "ok":
		return nil
	case "gone":
		return fmt.Errorf("task %s: %w", id, ErrNoTask)
	case "cancelled":
		return fmt.Errorf("task %s has failed: %w", id, ErrCancelled)
	case "lost":
		return fmt.Errorf("task %s: %w", id, ErrLost)
	}
	if queue, ok := strings.CutPrefix(asString(answer), "closed "); ok {
		return fmt.Errorf("enqueue in %q: %w", queue, ErrDamaged)
	}
	if why, ok := strings.CutPrefix(asString(answer), "unburied "); ok {
		return fmt.Errorf("task %s has failed: %w: %s", id, ErrNoLetter, why)
	}
	return fmt.Errorf("task %s is %v: %w", id, answer, ErrStatus)
}

func isNil(err error) bool { return errors.Is(err, redis.Nil) }

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// passReplies drops an error with which Redis answered one command of a pipeline, such as one on a key of another type:
// the other commands have their answers.
func passReplies(err error) error {
	var reply redis.Error
	if errors.As(err, &reply) && !IsUnavailable(err) {
		return nil
	}
	return err
}
