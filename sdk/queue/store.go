package queue

import (
	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// Connect makes a connection pool for a URL: redis://[USER:PASSWORD@]HOST:PORT/DB, rediss:// for TLS, unix://PATH, and
// for Sentinel redis://SENTINEL:PORT?master_name=NAME[&addr=SENTINEL:PORT], and for a Redis Cluster
// redis://HOST:PORT[,HOST:PORT]?cluster=true. The parameters ca, cert and key name PEM files of a private CA and a
// client certificate. The parameters of go-redis work too. A call dials and sends only once, and observes its context's
// deadline. The first call disables the log of go-redis, which repeats errors on stderr: to have it, call
// redis.SetLogger after that.
func Connect(rawURL string) (redis.UniversalClient, error) { return store.Connect(rawURL) }

// ConnectBounded is Connect for a program that reads data written by others, such as a host of several tenants. If a
// reply of Redis is larger than anything that Quern writes, the call fails with ErrTooLarge before the reply takes
// memory.
func ConnectBounded(rawURL string) (redis.UniversalClient, error) {
	return store.ConnectBounded(rawURL)
}

// Redact returns a URL of Redis or of a proxy with xxxxx instead of every password. If the URL cannot be parsed, Redact
// returns only xxxxx.
func Redact(rawURL string) string { return store.Redact(rawURL) }

// IsUnavailable reports whether err means that Redis could not be reached, or refuses commands for now. The same call
// may succeed later.
func IsUnavailable(err error) bool { return store.IsUnavailable(err) }

// Errors of arguments, of Redis's replies, and of tasks in an unexpected state.
var (
	ErrNoTask  = store.ErrNoTask  // the task never existed, or was deleted
	ErrLost    = store.ErrLost    // another listener or run holds the task; nothing was written
	ErrInvalid = store.ErrInvalid // an argument is invalid; the text names what is accepted
	ErrStatus  = store.ErrStatus  // the call is not possible in the task's status
	ErrDamaged = store.ErrDamaged // a key of the queue has the wrong type, so the queue accepts no tasks
	// ErrNoLetter means that the task has failed for good and has no dead letter, because a key of the dead-letter queue
	// has the wrong type, or the tenant has too many queues. The task keeps its parameters and history, and can be
	// retried by hand.
	ErrNoLetter = store.ErrNoLetter
	// ErrCancelled is the cause of a handler's context when its task is cancelled. A requeue of a cancelled task returns
	// it too, and the task fails for good.
	ErrCancelled = store.ErrCancelled
	// ErrTooLarge means that a value is larger than anything that Quern writes, or than the caller's limit.
	ErrTooLarge = store.ErrTooLarge
)
