package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/sdk/queue"
)

// Exit statuses of the program.
const (
	ExitDone    = 0
	ExitFailed  = 1 // a task, test, build or check failed
	ExitUsage   = 2 // wrong usage
	ExitRefused = 3 // refused or not reachable
)

// ExitError is an error with its exit status.
type ExitError struct {
	Status int
	Err    error
	// bare makes Report print the error as it is, without the program's name.
	bare bool
}

func (e *ExitError) Error() string { return e.Err.Error() }

func (e *ExitError) Unwrap() error { return e.Err }

// WrongUsage gives exit status 2 to an error that the command line or a setting caused.
func WrongUsage(err error) error { return &ExitError{Status: ExitUsage, Err: err} }

// Usagef makes an error about wrong usage. Its text has the form WHAT: REMEDY.
func Usagef(format string, args ...any) error { return WrongUsage(fmt.Errorf(format, args...)) }

// Refusedf makes an error about something that is refused or not reachable. Its text has the form WHAT: REMEDY.
func Refusedf(format string, args ...any) error {
	return &ExitError{Status: ExitRefused, Err: fmt.Errorf(format, args...)}
}

// TaskFailed makes the error of a failed task. Scripts read its first line, which gives the reason. The others are
// indented, so none looks like a message of the program.
func TaskFailed(id string, failure *queue.Failure) error {
	return &ExitError{
		Status: ExitFailed, bare: true,
		Err: fmt.Errorf("task %s failed (%s): %s", id, failure.Word(), strings.Join(failure.Lines(), "\n  ")),
	}
}

// Report prints an error as one line, or as the lines of a task's error, and returns the exit status.
func Report(err error, stderr io.Writer) int {
	if err == nil {
		return ExitDone
	}
	var exit *ExitError
	switch {
	case errors.As(err, &exit):
	case errors.Is(err, queue.ErrInvalid):
		exit = &ExitError{Status: ExitUsage, Err: TrimInvalid(err)}
	default:
		exit = &ExitError{Status: ExitRefused, Err: Explain(err)}
	}
	if !exit.bare {
		text := show.OneLine(show.Shorten(exit.Error(), maxErrorLine, "…")) + missingFolder(err)
		if of, ok := errors.AsType[hinted](err); ok {
			text = Pasteable(of.cmd, text)
		}
		fmt.Fprintln(stderr, "quern: "+text)
		return exit.Status
	}
	for line := range strings.SplitSeq(strings.TrimRight(exit.Error(), "\n"), "\n") {
		fmt.Fprintln(stderr, show.Escape(line))
	}
	return exit.Status
}

// missingFolder names the folder that is missing, if an error is about a file in it. It returns "" for other errors.
func missingFolder(err error) string {
	file, ok := errors.AsType[*fs.PathError](err)
	if !ok || !errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	missing := ""
	for dir := filepath.Dir(file.Path); ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		missing = dir
	}
	if missing == "" || missing == file.Path {
		return ""
	}
	return fmt.Sprintf(" (there is no folder %q)", show.OneLine(missing))
}

// maxErrorLine is the maximum length of an error's line in bytes, because an error can quote a long argument.
const maxErrorLine = 4000

// TrimInvalid removes the text of queue.ErrInvalid from an error, because the exit status says the same.
func TrimInvalid(err error) error {
	if text, ok := strings.CutPrefix(err.Error(), queue.ErrInvalid.Error()+": "); ok {
		return errors.New(text)
	}
	return err
}

// Explain adds a remedy to an error of Redis, of an API server, or of the system.
func Explain(err error) error {
	var reply redis.Error
	var certificate *tls.CertificateVerificationError
	var noTLS tls.RecordHeaderError
	var timeout net.Error
	_, ofServer := errors.AsType[*admin.ServerError](err)
	either := func(ofRedis, otherwise string) string {
		if ofServer {
			return otherwise
		}
		return ofRedis
	}
	remedy, known := "", admin.Known(err).Command
	switch {
	case errors.As(err, &certificate):
		remedy = either("name the authority that signed it with ?ca=FILE in the URL of Redis",
			fmt.Sprintf("name the authority that signed the certificate of %s with ?ca=FILE in the URL of --server",
				certificate.UnverifiedCertificates[0].Subject))
	case errors.As(err, &noTLS), ofServer && strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		remedy = either("Redis speaks no TLS there: use redis:// instead of rediss://",
			"it speaks no TLS there: use http:// instead of https://")
	case isUndialed(err):
		remedy = either("start Redis there, name another with --redis, or run `quern dev`",
			"start `quern admin` there, or name another with --server")
	case known != "":
		remedy = known
	case errors.As(err, &reply):
		word, _, _ := strings.Cut(reply.Error(), " ")
		remedy = replyRemedies[word]
	case errors.Is(err, admin.ErrNoToken):
		remedy = "give the token with --token-file, or in QUERN_TOKEN"
	case errors.Is(err, admin.ErrForbidden):
		remedy = "use a token that may, or ask an admin for one"
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

// isUndialed reports whether no connection to Redis or to the API server could be made.
func isUndialed(err error) bool {
	network, ok := errors.AsType[*net.OpError](err)
	return ok && network.Op == "dial" || errors.Is(err, syscall.ECONNREFUSED)
}

// IsUnanswered reports whether Redis may have executed the call, although no reply arrived.
func IsUnanswered(err error) bool {
	var reply redis.Error
	return queue.IsUnavailable(err) && !errors.As(err, &reply) && !isUndialed(err)
}

// replyRemedies maps the first word of an error reply of Redis to the remedy.
var replyRemedies = map[string]string{
	"NOPERM":      "grant the Redis user what it needs: see Redis users (ACL.md) in the documentation",
	"OOM":         "Redis is full: raise maxmemory, or delete finished tasks",
	"READONLY":    "this Redis is a replica: name the primary with --redis",
	"LOADING":     "Redis is starting: try again",
	"MISCONF":     "Redis cannot write to its disk: see its log",
	"TRYAGAIN":    clusterMoves,
	"ASK":         clusterMoves,
	"MOVED":       "the servers of the Redis Cluster do not agree yet: try again",
	"CLUSTERDOWN": "a part of the Redis Cluster has no primary: see `redis-cli --cluster check`",
	"WRONGTYPE":   "something else uses a key of this tenant: delete the key, or take another tenant",
}

// clusterMoves is the remedy while a Cluster moves the keys of a tenant.
const clusterMoves = "the Redis Cluster moves this tenant to another server: try again when it has"

// Cause returns the cause of ctx's end if ctx has ended, else err. A read can time out shortly before ctx ends at the
// same deadline. Therefore Cause waits for the end of ctx once its deadline has passed.
func Cause(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		<-ctx.Done()
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
