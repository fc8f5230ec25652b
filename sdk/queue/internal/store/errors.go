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

// Errors for replies of scripts and for invalid arguments. Package queue documents them.
var (
	ErrNoTask    = errors.New("no such task")
	ErrLost      = errors.New("task is held by another listener or run")
	ErrInvalid   = errors.New("invalid")
	ErrStatus    = errors.New("not possible in this status")
	ErrDamaged   = errors.New("a key of the queue is of another type")
	ErrNoLetter  = errors.New("its dead letter cannot be written")
	ErrCancelled = errors.New("the task was cancelled")
)

// Answered returns the text of an error that Redis replied with. ok is false if err is not a reply of Redis.
func Answered(err error) (text string, ok bool) {
	var reply redis.Error
	if !errors.As(err, &reply) {
		return "", false
	}
	text = reply.Error()
	// Before Redis 7.0, the error of a command in a script is preceded by the position in the script.
	if _, inner, found := strings.Cut(text, "@user_script: "); found && strings.HasPrefix(text,
		"ERR Error running script") {
		_, text, _ = strings.Cut(inner, ": -")
	}
	return text, true
}

// IsNil reports whether Redis replied that there is no value.
func IsNil(err error) bool { return errors.Is(err, redis.Nil) }

// Wrap adds what the caller was doing to an error. It returns nil if err is nil.
func Wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// PassReplies returns nil for an error with which Redis refused one command of a pipeline, for example because a key
// has the wrong type: the other commands have been executed. It returns every other error.
func PassReplies(err error) error {
	var reply redis.Error
	if errors.As(err, &reply) && !IsUnavailable(err) {
		return nil
	}
	return err
}

// IsUnavailable reports whether err means that Redis could not be reached, or refuses commands for now. The same call
// may succeed later.
func IsUnavailable(err error) bool {
	// The text of an ErrTooLarge contains a key, which may contain any of the words below.
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, ErrTooLarge) {
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

// refusals are the prefixes of errors with which Redis refuses commands for a while.
var refusals = []string{
	"OOM", "READONLY", "LOADING", "MISCONF", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MOVED ", "ASK ", "BUSY",
	"NOREPLICAS", "ERR max number of clients",
}
