package queue

import (
	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// Connect makes a connection pool for a URL: redis://[USER:PASSWORD@]HOST:PORT/DB, rediss:// for TLS, unix://PATH, and for
// Sentinel redis://SENTINEL:PORT?master_name=NAME[&addr=SENTINEL:PORT]. The parameters ca, cert and key name PEM files of a
// private CA and a client certificate; go-redis's own work too. Each call dials and sends once, within its context's deadline.
func Connect(rawURL string) (redis.UniversalClient, error) { return store.Connect(rawURL) }

// ConnectBounded is Connect for a program that others make read what they wrote, such as a host of several tenants: what Redis answers is
// refused with ErrTooLarge before it takes memory if it is larger than anything that Quern writes.
func ConnectBounded(rawURL string) (redis.UniversalClient, error) {
	return store.ConnectBounded(rawURL)
}

// Redact shows a URL of Redis or of a proxy with xxxxx for every password, or for all of one that cannot be read.
func Redact(rawURL string) string { return store.Redact(rawURL) }

// IsUnavailable reports whether Redis cannot be reached, or refuses for now, so that the same call may succeed later.
func IsUnavailable(err error) bool { return store.IsUnavailable(err) }

// Errors of arguments, of Redis's answers, and of tasks that are not as the caller thinks.
var (
	ErrNoTask  = store.ErrNoTask  // (any more)
	ErrLost    = store.ErrLost    // another listener or run holds the task: nothing was written
	ErrInvalid = store.ErrInvalid // an argument; the text names what is accepted
	ErrStatus  = store.ErrStatus  // not possible in the task's status
	ErrDamaged = store.ErrDamaged // a key of the queue is of another type: the queue takes no tasks
	// ErrNoLetter: the task has failed for good and has no dead letter, because a key of the dead-letter queue is of another type. It
	// keeps its parameters and history, and can be retried by hand.
	ErrNoLetter = store.ErrNoLetter
	// ErrCancelled is the cause with which a handler's context ends when its task is cancelled, and the answer to a retry of such a
	// task: it has failed for good.
	ErrCancelled = store.ErrCancelled
	// ErrTooLarge: a value is larger than anything that Quern writes, or than its reader has room for.
	ErrTooLarge = store.ErrTooLarge
)
