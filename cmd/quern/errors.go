package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/host/api"
	"github.com/quern-project/quern/host/api/client"
	"github.com/quern-project/quern/sdk/queue"
)

// What a shell sees.
const (
	exitDone    = 0
	exitFailed  = 1 // the task failed
	exitUsage   = 2 // wrong usage
	exitRefused = 3 // refused or not reachable
)

// exitError is an error with its exit status.
type exitError struct {
	status int
	err    error
	// bare leaves the program's name out of the printed line.
	bare bool
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// wrongUsage marks an error that the command line or a setting caused.
func wrongUsage(err error) error { return &exitError{status: exitUsage, err: err} }

// usagef makes an error of wrong usage: WHAT: REMEDY.
func usagef(format string, args ...any) error { return wrongUsage(fmt.Errorf(format, args...)) }

// refusedf makes an error of something refused or not reachable: WHAT: REMEDY.
func refusedf(format string, args ...any) error {
	return &exitError{status: exitRefused, err: fmt.Errorf(format, args...)}
}

// taskFailed is the error of a task that failed, in the form that scripts read: its first line says why.
func taskFailed(id string, failure *queue.Failure) error {
	return &exitError{
		status: exitFailed, bare: true,
		err: fmt.Errorf("task %s failed (%s): %s", id, failure.Reason, failure.Message),
	}
}

// report prints an error as one line, or as the lines of a task's error, and returns the exit status.
func report(err error, stderr io.Writer) int {
	if err == nil {
		return exitDone
	}
	var exit *exitError
	switch {
	case errors.As(err, &exit):
	case errors.Is(err, queue.ErrInvalid):
		exit = &exitError{status: exitUsage, err: trimInvalid(err)}
	default:
		exit = &exitError{status: exitRefused, err: explain(err)}
	}
	if !exit.bare {
		text := oneLine(shorten(exit.Error(), maxErrorLine, "…"))
		if of, ok := errors.AsType[hinted](err); ok {
			text = pasteable(of.cmd, text)
		}
		fmt.Fprintln(stderr, "quern: "+text)
		return exit.status
	}
	for line := range strings.SplitSeq(strings.TrimRight(exit.Error(), "\n"), "\n") {
		fmt.Fprintln(stderr, escape(line))
	}
	return exit.status
}

// maxErrorLine bounds the line of an error, which may quote an argument.
const maxErrorLine = 4000

// shorten keeps the head and the tail of a text that has more bytes than most, with a mark between them.
func shorten(text string, most int, mark string) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most/2], "") + mark + strings.ToValidUTF8(text[len(text)-most/2:], "")
}

// oneLine makes untrusted text one line without control characters.
func oneLine(text string) string { return escape(strings.Join(strings.Fields(text), " ")) }

// escape replaces control characters and bytes that are not UTF-8: no task may control a terminal. A tab becomes four blanks.
func escape(text string) string {
	quoted := fmt.Sprintf("%q", text)
	return strings.NewReplacer(`\"`, `"`, `\\`, `\`, `\t`, "    ").Replace(quoted[1 : len(quoted)-1])
}

// trimInvalid drops the text of queue.ErrInvalid, which the exit status stands for.
func trimInvalid(err error) error {
	if text, ok := strings.CutPrefix(err.Error(), queue.ErrInvalid.Error()+": "); ok {
		return errors.New(text)
	}
	return err
}

// explain adds the remedy to an error of Redis, of a server that does not answer as its API does, or of the system.
func explain(err error) error {
	var reply redis.Error
	var certificate *tls.CertificateVerificationError
	var noTLS tls.RecordHeaderError
	var timeout net.Error
	_, ofServer := errors.AsType[*client.ServerError](err)
	either := func(ofRedis, otherwise string) string {
		if ofServer {
			return otherwise
		}
		return ofRedis
	}
	remedy := ""
	switch {
	case errors.As(err, &certificate):
		remedy = either("name the authority that signed it with ?ca=FILE in the URL of Redis",
			fmt.Sprintf("name the authority that signed the certificate of %s with ?ca=FILE in the URL of --server", certificate.UnverifiedCertificates[0].Subject))
	case errors.As(err, &noTLS), ofServer && strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		remedy = either("Redis speaks no TLS there: use redis:// instead of rediss://", "it speaks no TLS there: use http:// instead of https://")
	case isUndialed(err):
		remedy = either("start Redis there, name another with --redis, or run `quern dev`", "start `quern admin` there, or name another with --server")
	case errors.As(err, &reply):
		word, _, _ := strings.Cut(reply.Error(), " ")
		remedy = replyRemedies[word]
	case errors.Is(err, client.ErrNoToken):
		remedy = "give the token with --token-file, or in QUERN_TOKEN"
	case isStatus(err, http.StatusForbidden):
		remedy = "use a token that may, or ask an admin for one"
	case errors.Is(err, queue.ErrNoTask):
		remedy = "look for it with `quern task ls`, and mind --tenant"
	case errors.Is(err, queue.ErrNoSubscription):
		remedy = "list them with `quern subscription ls`, and mind --tenant"
	case errors.Is(err, queue.ErrNoTopic):
		remedy = "list them with `quern topic ls`, and mind --tenant"
	case errors.Is(err, queue.ErrNoPublication):
		remedy = "it may have been purged, or mind --tenant"
	case errors.Is(err, io.EOF):
		remedy = either("Redis closed the connection: if it wants TLS, use rediss:// instead of redis://",
			"it closed the connection: if it wants TLS, use https:// instead of http://")
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		remedy = either("Redis does not answer: it is stopped or overloaded, or rediss:// meets a Redis without TLS",
			"it does not answer: it is stopped or overloaded, or https:// meets a server without TLS")
	}
	if remedy == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, remedy)
}

// isStatus reports whether the API refused a request with an HTTP status.
func isStatus(err error, status int) bool {
	problem, ok := errors.AsType[*api.Problem](err)
	return ok && problem.Status == status
}

// isUndialed reports whether Redis could not be reached at all.
func isUndialed(err error) bool {
	network, ok := errors.AsType[*net.OpError](err)
	return ok && network.Op == "dial" || errors.Is(err, syscall.ECONNREFUSED)
}

// isUnanswered reports whether Redis may have done the call, but did not answer.
func isUnanswered(err error) bool {
	var reply redis.Error
	return queue.IsUnavailable(err) && !errors.As(err, &reply) && !isUndialed(err)
}

// replyRemedies are the remedies for the errors that Redis answers, by their first word.
var replyRemedies = map[string]string{
	"NOAUTH":    redisLogin,
	"WRONGPASS": redisLogin,
	"NOPERM":    "grant the Redis user what it needs: see Redis users (ACL.md) in the documentation",
	"OOM":       "Redis is full: raise maxmemory, or delete finished tasks",
	"READONLY":  "this Redis is a replica: name the primary with --redis",
	"LOADING":   "Redis is starting: try again",
	"MISCONF":   "Redis cannot write to its disk: see its log",
	"QUEUEFULL": "wait until the queue is shorter, or raise its limit with `quern queue limit`",
	"WRONGTYPE": "something else uses a key of this tenant: delete the key, or take another tenant",
}

const redisLogin = "give user and password in the URL: redis://USER:PASSWORD@HOST:PORT/DB"
