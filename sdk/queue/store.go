package queue

import (
	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// Connect makes a lazy connection to the Redis that a URL names.
func Connect(rawURL string) (redis.UniversalClient, error) { return store.Connect(rawURL) }

// ConnectBounded is Connect.
func ConnectBounded(rawURL string) (redis.UniversalClient, error) { return store.ConnectBounded(rawURL) }

// Redact hides the secrets of a URL.
func Redact(rawURL string) string { return store.Redact(rawURL) }

// IsUnavailable reports whether.
func IsUnavailable(err error) bool { return store.IsUnavailable(err) }

// ReplyError is the error of an answer that is larger than any that Quern needs.
type ReplyError = store.ReplyError

// Errors of the store.
var (
	ErrTooLarge = store.ErrTooLarge
	ErrNoTask = store.ErrNoTask
	ErrLost = store.ErrLost
	ErrInvalid = store.ErrInvalid
	ErrStatus = store.ErrStatus
	ErrDamaged = store.ErrDamaged
	ErrNoLetter = store.ErrNoLetter
	ErrCancelled = store.ErrCancelled
)
