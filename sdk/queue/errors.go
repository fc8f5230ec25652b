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
	// ErrNoTask says that there is no task of that ID (any more).
	ErrNoTask = errors.New("no such task")
	// ErrLost says that the caller no longer holds the task; nothing was written.
	ErrLost = errors.New("task is held by another listener or run")
	// ErrLeaseLost says that the listener is no longer known: what it held belongs to others.
	ErrLeaseLost = errors.New("the listener's lease is lost")
	// ErrInvalid says that an argument can never be accepted; the text says what would be.
	ErrInvalid = errors.New("invalid")
	// ErrStatus says that the task's status forbids what was asked.
	ErrStatus = errors.New("not possible in this status")
	// ErrQueueFull says that the queue would become longer than it may: nothing was enqueued.
	ErrQueueFull = errors.New("queue is full")
	// ErrDamaged says that a queue takes no tasks, because a key of it is of another type.
	ErrDamaged = errors.New("a key of the queue is of another type")
	// ErrNoLetter says that a task has failed for good and has no dead letter, because a key of the queue of dead letters
	// is of another type. It keeps everything, and can be tried again.
	ErrNoLetter = errors.New("its dead letter cannot be written")
	// ErrNotReplicated says that fewer replicas than asked have what was enqueued: see NotReplicatedError.
	ErrNotReplicated = errors.New("not on enough replicas")
	// ErrCancelled is the cause with which a handler's context ends whose task somebody cancelled, and the
	// answer to whoever would have such a task tried again: it has failed for good.
	ErrCancelled = errors.New("the task was cancelled")
	// ErrDraining says that somebody told the listener to take nothing more.
	ErrDraining = errors.New("the listener is draining")
	// ErrNoNode says that no such listener is known.
	ErrNoNode = errors.New("no such listener")
	// ErrVersion says that the data in Redis was written by a newer protocol, or does not say by which.
	ErrVersion = errors.New("unknown protocol version")
)

// refusals are the first words by which Redis says that it cannot serve now, but may soon.
var refusals = []string{
	"OOM", "READONLY", "LOADING", "MISCONF", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "NOREPLICAS",
	"ERR max number of clients",
}

// IsUnavailable tells whether err means that Redis is away or refuses for now (full, loading,
// read-only, cannot persist), so that the same call may succeed later.
func IsUnavailable(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	var reply redis.Error
	if errors.As(err, &reply) {
		text := reply.Error()
		// Before 7.0 Redis tells an error of a command in a script behind where it was.
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

// NotReplicatedError says that tasks are enqueued, but not known to be on as many replicas as asked:
// they will run unless Redis fails over to a replica that does not have them. Enqueueing again with
// these IDs doubles none, and asks the replicas once more.
type NotReplicatedError struct {
	IDs         []string
	Wanted, Got int
	// Err says why Redis did not even tell how many have them; nil if it did.
	Err error
}

// Unwrap returns Err.
func (e *NotReplicatedError) Unwrap() error { return e.Err }

// Error says what happened, and to which task.
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
