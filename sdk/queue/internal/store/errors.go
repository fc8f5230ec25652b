package store

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

// The errors of what scripts answer and callers pass; package queue documents them.
var (
	ErrNoTask  = errors.New("no such task")                            // (any more)
	ErrLost    = errors.New("task is held by another listener or run") // nothing was written
	ErrInvalid = errors.New("invalid")                                 // an argument; the text names what is accepted
	ErrStatus  = errors.New("not possible in this status")
	ErrDamaged = errors.New("a key of the queue is of another type") // the queue takes no tasks
	// ErrNoLetter: the task has failed for good and has no dead letter, because a key of the dead-letter queue is of another
	// type. It keeps its parameters and history, and can be retried by hand.
	ErrNoLetter = errors.New("its dead letter cannot be written")
	// ErrCancelled is the cause with which a handler's context ends when its task is cancelled, and the answer to a retry of
	// such a task: it has failed for good.
	ErrCancelled = errors.New("the task was cancelled")
)

// Answered is the error that Redis answered with.
func Answered(err error) (text string, ok bool) {
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

// IsNil reports whether Redis answered that there is no value.
func IsNil(err error) bool { return errors.Is(err, redis.Nil) }

// Wrap adds to an error what was tried; nil stays nil.
func Wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// PassReplies drops Redis's answer to one command of a pipeline, such as one on a key of another type: the others have theirs.
func PassReplies(err error) error {
	var reply redis.Error
	if errors.As(err, &reply) && !IsUnavailable(err) {
		return nil
	}
	return err
}

// IsUnavailable tells whether Redis cannot be reached, or refuses for now, so that the same call may succeed later.
func IsUnavailable(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, ErrTooLarge) { // its text may have words of others
		return false
	}
	if text, ok := Answered(err); ok {
		return slices.ContainsFunc(refusals, func(word string) bool { return strings.HasPrefix(text, word) })
	}
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, redis.ErrPoolTimeout) || strings.Contains(err.Error(), "connection")
}

// refusals are the first words of Redis's errors that pass by themselves.
var refusals = []string{
	"OOM", "READONLY", "LOADING", "MISCONF", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "NOREPLICAS",
	"ERR max number of clients",
}
