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

// What callers may test for with errors.Is.
var (
	ErrNoTask    = errors.New("no such task") // (any more)
	ErrNoNode    = errors.New("no such listener")
	ErrLost      = errors.New("task is held by another listener or run") // nothing was written
	ErrLeaseLost = errors.New("the listener's lease is lost")            // its tasks belong to others
	ErrDraining  = errors.New("the listener is draining")                // it takes nothing more
	ErrInvalid   = errors.New("invalid")                                 // an argument; the text names what is accepted
	ErrStatus    = errors.New("not possible in this status")
	ErrChanged   = errors.New("it has changed since it was read") // and stays as it is
	ErrUnique    = fmt.Errorf("%w: another task has its uniqueness", ErrStatus)
	ErrQueueFull = errors.New("queue is full") // nothing was enqueued
	// ErrManyQueues refuses a queue that does not exist yet: see Client.SetMaxQueues.
	ErrManyQueues = errors.New("too many queues")
	// ErrDependency: a task cannot wait for one that does not exist, or still takes dependencies itself. Nothing was enqueued.
	ErrDependency     = errors.New("unusable dependency")
	ErrDamaged        = errors.New("a key of the queue is of another type") // the queue takes no tasks
	ErrExists         = errors.New("exists already")
	ErrNoTopic        = errors.New("no such topic")
	ErrNoSubscription = errors.New("no such subscription")
	ErrNoPublication  = errors.New("no such publication")      // (any more)
	ErrVersion        = errors.New("unknown protocol version") // of the data in Redis: newer, or not a number

	// ErrNoLetter: the task has failed for good and has no dead letter, because a key of the dead-letter queue is of another
	// type. It keeps its parameters and history, and can be retried by hand.
	ErrNoLetter = errors.New("its dead letter cannot be written")
	// ErrLetterStays: the task is retried, but one of its dead letters could not be deleted.
	ErrLetterStays = errors.New("one of its dead letters stays")
	// ErrNotReplicated is what a NotReplicatedError is.
	ErrNotReplicated = errors.New("not on enough replicas")
	// ErrCancelled is the cause with which a handler's context ends when its task is cancelled, and the answer to a retry of
	// such a task: it has failed for good.
	ErrCancelled = errors.New("the task was cancelled")
)

// refusals are the first words of Redis's errors that pass by themselves.
var refusals = []string{
	"OOM", "READONLY", "LOADING", "MISCONF", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "NOREPLICAS",
	"ERR max number of clients",
}

// IsUnavailable tells whether Redis cannot be reached, or refuses for now, so that the same call may succeed later.
func IsUnavailable(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, ErrTooLarge) { // its text may have words of others
		return false
	}
	if text, ok := answered(err); ok {
		return slices.ContainsFunc(refusals, func(word string) bool { return strings.HasPrefix(text, word) })
	}
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, redis.ErrPoolTimeout) || strings.Contains(err.Error(), "connection")
}

// answered is the error that Redis answered with.
func answered(err error) (text string, ok bool) {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return "", false
	}
	text = reply.Error()
	// Before Redis 7.0 the position in the script precedes the error of a command.
	if _, inner, found := strings.Cut(text, "@user_script: "); found && strings.HasPrefix(text, "ERR Error running script") {
		_, text, _ = strings.Cut(inner, ": -")
	}
	return text, true
}

// Refusal is the first word of the error that Redis answered with, such as OOM; "" if it answered none.
func Refusal(err error) string {
	text, _ := answered(err)
	word, _, _ := strings.Cut(text, " ")
	return word
}

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

func isNil(err error) bool { return errors.Is(err, redis.Nil) }

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// passReplies drops Redis's answer to one command of a pipeline, such as one on a key of another type: the others have theirs.
func passReplies(err error) error {
	var reply redis.Error
	if errors.As(err, &reply) && !IsUnavailable(err) {
		return nil
	}
	return err
}
