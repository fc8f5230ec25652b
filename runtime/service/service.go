// Package service says what a handler may ask of its host beyond its own task, as interfaces that the host
// implements and runtime/abi serves to guests. What an implementation is given has been checked for nothing but
// its size: names, keys and requests are the guest's, and may be hostile.
//
// Every method may take long, and returns when its context ends, with that as the error or in it. Methods are
// called by many goroutines at once. The bytes that they get are the guest's no more: they may be kept.
package service

import (
	"context"
	"errors"
	"time"
)

// What a guest is told of an error. An implementation wraps one of these, with words for the host's log; an error
// that wraps none is the host's own fault.
var (
	// ErrInvalid: an argument means nothing.
	ErrInvalid = errors.New("invalid")
	// ErrDenied: the manifest does not grant it, or the host does not.
	ErrDenied = errors.New("denied")
	// ErrNotFound: there is none of that name.
	ErrNotFound = errors.New("not found")
	// ErrTooBig: it is larger than one may be.
	ErrTooBig = errors.New("too big")
	// ErrQuota: there is no room for more of them.
	ErrQuota = errors.New("over the quota")
	// ErrConflict: it is not as the guest believes.
	ErrConflict = errors.New("conflict")
	// ErrLost: the task is another host's by now.
	ErrLost = errors.New("the task is lost")
	// ErrUnavailable: what is behind the service is away; another attempt may find it.
	ErrUnavailable = errors.New("unavailable")
	// ErrLimit: that many, or that deep, are not allowed.
	ErrLimit = errors.New("over the limit")
)

// Await returns what f does, or the error of ctx if that ends first; f is then left to end by itself. It is for an f that may
// not notice the end of ctx: go-redis waits for its own time-out while it reads, and a file waits without one.
func Await[T any](ctx context.Context, f func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1) // so that f ends even if nobody waits for it
	go func() {
		value, err := f()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// KV is a key-value store as one plugin of one tenant may use it. A bucket that is not granted is ErrDenied. Buckets
// and keys are 1 to 256 bytes of UTF-8 without control characters; else ErrInvalid.
type KV interface {
	// Get answers the value; ErrNotFound if there is none.
	Get(ctx context.Context, bucket, key string) ([]byte, error)
	// Set sets the value, for ttl if that is above 0. ErrQuota if the bucket would hold more bytes than it may.
	Set(ctx context.Context, bucket, key string, value []byte, ttl time.Duration) error
	// Delete tells whether there was one.
	Delete(ctx context.Context, bucket, key string) (bool, error)
	// Increment adds to the decimal number that the value is, 0 if there is none, and answers the sum. It keeps the
	// time until the value expires. ErrConflict if the value is no number, ErrLimit if the sum is none of 64 bits.
	Increment(ctx context.Context, bucket, key string, delta int64) (int64, error)
	// Swap does as Set does if the present value is old, or if there is none and old is nil. Else it answers the
	// present value, nil if there is none, and ErrConflict.
	Swap(ctx context.Context, bucket, key string, old, value []byte, ttl time.Duration) (present []byte, err error)
	// List answers the keys that begin with prefix and come after another one, in the order of their bytes, limit of
	// them at most (1 to 1000, else ErrInvalid).
	List(ctx context.Context, bucket, prefix, after string, limit int) ([]string, error)
}

// Checkpoint keeps what the task's next run begins with.
type Checkpoint interface {
	// Save keeps a value in the place of the one before, and returns when it is durable. ErrTooBig if it is more
	// than 1 MiB, ErrLost if the task is another host's.
	Save(ctx context.Context, value []byte) error
}

// Secrets are those of a plugin.
type Secrets interface {
	// Secret answers the value. ErrDenied if the name is not granted, ErrNotFound if there is no value.
	Secret(ctx context.Context, name string) ([]byte, error)
}

// MaxBody is how large the body of a request or of an answer is at most, in bytes.
const MaxBody = 16 << 20

// Request is an HTTP request. Method and URL are as the guest wrote them.
type Request struct {
	Method, URL string
	// Headers are by name; a name may have several values.
	Headers map[string][]string
	Body    []byte
	// Timeout is the guest's own; 0 leaves it to the host.
	Timeout time.Duration
}

// Response is what came of it.
type Response struct {
	Status  int
	Headers map[string][]string
	Body    []byte
}

// Child is a task that a task has enqueued. What a field leaves out is decided as for any other task.
type Child struct {
	Queue string
	Body  []byte
	// ID is the new task's; "" for one that the host makes.
	ID, Key string
	Labels  map[string]string
	// Priority is 0 to 100; nil for the default.
	Priority *int
	// Delay is how long the task waits, At when it is due; one of them at most.
	Delay       time.Duration
	At          time.Time
	MaxAttempts int
	Timeout     time.Duration
	Unique      *Unique
}

// Unique keeps a second task like it from being enqueued.
type Unique struct {
	// Key is the name for what is the same; "" if the body is.
	Key string
	// For is how long there is no second one; 0 for until the first one is finished.
	For time.Duration
}

// Enqueuer enqueues tasks as one task may. Whether they come into being at once, or with the completion of the task that
// enqueues them, is the grant's.
type Enqueuer interface {
	// Enqueue answers the new task's ID. ErrInvalid if the queue or an option means nothing, ErrDenied if the queue is
	// not granted, ErrLimit if the task has enqueued as many as one may, or if the chain of its parents is as long as
	// one may be. Where they come into being at once also ErrQuota if the queue takes no more, and ErrUnavailable.
	Enqueue(ctx context.Context, child Child) (id string, err error)
}

// Set is all services of one task. A service that is nil is denied.
type Set struct {
	Checkpoint Checkpoint
	KV         KV
	HTTP       HTTP
	Secrets    Secrets
	Enqueue    Enqueuer
	// EnqueueAtOnce tells that nothing of what is enqueued is kept until the task ends, so that it takes nothing of what the
	// task's output may have.
	EnqueueAtOnce bool
	// Config is what the manifest sets, by name.
	Config map[string]string
}

// HTTP sends requests to what is granted. Redirects are not followed but answered. ErrDenied if the method, the
// host or the address that it resolves to is not granted, ErrTooBig if the answer is larger than one may be,
// ErrUnavailable if there is none.
type HTTP interface {
	Do(ctx context.Context, r Request) (Response, error)
}
