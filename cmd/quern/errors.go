package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
)

// What a shell sees.
const (
	exitDone    = 0
	exitFailed  = 1 // the task failed
	exitUsage   = 2 // wrong usage
	exitRefused = 3 // refused or not reachable
)

// exitError is an error with the exit status that it means.
type exitError struct {
	status int
	err    error
	// bare says that the line is complete as it is, without the program's name before it.
	bare bool
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// wrongUsage marks an error that the caller's words are the cause of.
func wrongUsage(err error) error { return &exitError{status: exitUsage, err: err} }

// usagef makes an error of wrong usage: WHAT: REMEDY.
func usagef(format string, args ...any) error { return wrongUsage(fmt.Errorf(format, args...)) }

// refusedf makes an error of something refused or not reachable: WHAT: REMEDY.
func refusedf(format string, args ...any) error {
	return &exitError{status: exitRefused, err: fmt.Errorf(format, args...)}
}

// taskFailed is the error of a task that failed, as scripts expect it.
func taskFailed(id string, failure *queue.Failure) error {
	return &exitError{
		status: exitFailed, bare: true,
		err: fmt.Errorf("task %s failed (%s): %s", id, failure.Reason, failure.Message),
	}
}

// report prints an error as one line and returns the exit status.
func report(err error, stderr io.Writer) int {
	if err == nil {
		return exitDone
	}
	var exit *exitError
	if !errors.As(err, &exit) {
		exit = &exitError{status: exitRefused, err: explain(err)}
		if errors.Is(err, queue.ErrInvalid) {
			exit = &exitError{status: exitUsage, err: trimInvalid(err)}
		}
	}
	prefix := "quern: "
	if exit.bare {
		prefix = ""
	}
	fmt.Fprintf(stderr, "%s%s\n", prefix, oneLine(exit.Error()))
	return exit.status
}

// oneLine makes text that may come from anywhere one line that a terminal only shows.
func oneLine(text string) string { return escape(strings.Join(strings.Fields(text), " ")) }

// trimInvalid leaves out the word that errors of wrong arguments begin with: the exit status says it.
func trimInvalid(err error) error {
	if text, ok := strings.CutPrefix(err.Error(), queue.ErrInvalid.Error()+": "); ok {
		return errors.New(text)
	}
	return err
}

// explain adds the remedy to errors that come from Redis or the system.
func explain(err error) error {
	remedy := ""
	var reply redis.Error
	var certificate *tls.CertificateVerificationError
	var noTLS tls.RecordHeaderError
	var timeout net.Error
	switch {
	case errors.As(err, &certificate):
		remedy = "name the authority that signed it with ?ca=FILE in the URL of Redis"
	case errors.As(err, &noTLS):
		remedy = "Redis speaks no TLS there: use redis:// instead of rediss://"
	case isUndialed(err):
		remedy = "start Redis there, name another with --redis, or run `quern dev`"
	case errors.As(err, &reply):
		remedy = replyRemedy(reply.Error())
	case errors.Is(err, queue.ErrNoTask):
		remedy = "look for it with `quern task ls QUEUE`, and mind --tenant"
	case errors.Is(err, io.EOF):
		remedy = "Redis closed the connection: if it wants TLS, use rediss:// instead of redis://"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		remedy = "Redis does not answer: it may be stopped, overloaded, or behind rediss:// speak no TLS"
	}
	if remedy == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, remedy)
}

// isUndialed tells whether Redis could not be reached at all.
func isUndialed(err error) bool {
	var network *net.OpError
	return errors.As(err, &network) && network.Op == "dial" || errors.Is(err, syscall.ECONNREFUSED)
}

// isUnanswered tells whether Redis may have done what it was told, but did not answer.
func isUnanswered(err error) bool {
	var reply redis.Error
	return queue.IsUnavailable(err) && !errors.As(err, &reply) && !isUndialed(err)
}

// replyRemedy tells what to do about an error that Redis answered with, by its first word.
func replyRemedy(reply string) string {
	word, _, _ := strings.Cut(reply, " ")
	switch word {
	case "NOAUTH", "WRONGPASS":
		return "give user and password in the URL: redis://USER:PASSWORD@HOST:PORT/DB"
	case "NOPERM":
		return "grant the Redis user what it needs: see Redis users (ACL.md) in the documentation"
	case "OOM":
		return "Redis is full: raise maxmemory, or delete finished tasks"
	case "READONLY":
		return "this Redis is a replica: name the primary with --redis"
	case "LOADING":
		return "Redis is starting: try again"
	case "MISCONF":
		return "Redis cannot write to its disk: see its log"
	case "WRONGTYPE":
		return "something else uses a key of this tenant: delete the key, or take another tenant"
	}
	return ""
}
