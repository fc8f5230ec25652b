// Package service defines, as interfaces, what a handler may ask of its host beyond its own task. host/guest implements
// the interfaces, and runtime/abi serves them to guests. Arguments come from the guest and may be hostile: only their
// size has been checked.
//
// Every method may take long, and returns when its context ends, with the context's error or an error that wraps it.
// Methods are safe for concurrent use, and may keep the bytes that they are given.
package service

import (
	"context"
	"errors"
	"time"
)

// The errors that a guest can distinguish. An implementation wraps one of them, with details for the host's log. An
// error that wraps none is a fault of the host.
var (
	// ErrInvalid: an argument is not valid.
	ErrInvalid = errors.New("invalid")
	// ErrDenied: the manifest or the host does not allow the call.
	ErrDenied = errors.New("denied")
	// ErrNotFound: there is nothing of that name.
	ErrNotFound = errors.New("not found")
	// ErrTooBig: a value is larger than allowed.
	ErrTooBig = errors.New("too big")
	// ErrQuota: the quota has no room left.
	ErrQuota = errors.New("over the quota")
	// ErrConflict: the present value is not what the guest expects.
	ErrConflict = errors.New("conflict")
	// ErrLost: another host has the task now.
	ErrLost = errors.New("the task is lost")
	// ErrUnavailable: the service cannot be reached; another attempt may reach it.
	ErrUnavailable = errors.New("unavailable")
	// ErrLimit: a limit on numbers or depth is reached.
	ErrLimit = errors.New("over the limit")
)

// Await calls f and returns its result, or the error of ctx if ctx ends first; f then ends by itself. Use it for an f
// that may not notice the end of ctx: go-redis waits for its own timeout while it reads, and a file waits without one.
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
	// Get returns the value; ErrNotFound if there is none.
	Get(ctx context.Context, bucket, key string) ([]byte, error)
	// Set sets the value, for ttl if that is above 0. ErrQuota if the bucket would hold more bytes than it may.
	Set(ctx context.Context, bucket, key string, value []byte, ttl time.Duration) error
	// Delete reports whether there was a value.
	Delete(ctx context.Context, bucket, key string) (bool, error)
	// Increment adds delta to the value, a decimal number, and returns the sum; a missing value counts as 0. The value
	// expires when it would have expired before. ErrConflict if the value is not a number, ErrLimit if the sum needs
	// more than 64 bits.
	Increment(ctx context.Context, bucket, key string, delta int64) (int64, error)
	// Swap sets the value as Set does if the present value is old. If old is nil, it sets the value if there is none.
	// Otherwise it returns the present value, nil if there is none, and ErrConflict.
	Swap(ctx context.Context, bucket, key string, old, value []byte, ttl time.Duration) (present []byte, err error)
	// List returns at most limit keys (1 to 1000, else ErrInvalid) that begin with prefix and come after another key, in
	// the order of their bytes.
	List(ctx context.Context, bucket, prefix, after string, limit int) ([]string, error)
}

// Checkpoint stores what the task's next run starts from.
type Checkpoint interface {
	// Save replaces the checkpoint, and returns when the new checkpoint is durable. ErrTooBig above 1 MiB, ErrLost if
	// another host has the task.
	Save(ctx context.Context, value []byte) error
}

// Secrets are the secrets of a plugin.
type Secrets interface {
	// Secret returns the value. ErrDenied if the name is not granted, ErrNotFound if there is no value.
	Secret(ctx context.Context, name string) ([]byte, error)
}

// MaxBody bounds the body of a request or of a response, in bytes.
const MaxBody = 16 << 20

// Request is an HTTP request. Method and URL are as the guest wrote them.
type Request struct {
	Method, URL string
	// Headers are by name; a name may have several values.
	Headers map[string][]string
	Body    []byte
	// Timeout is the guest's own timeout; 0 leaves it to the host.
	Timeout time.Duration
	// Trace has the traceparent and tracestate of the call. Both are sent unless Headers have a traceparent. Other
	// headers in Trace are not sent.
	Trace map[string]string
}

// Response is the response to a Request.
type Response struct {
	Status  int
	Headers map[string][]string
	Body    []byte
}

// Child is a task that a task enqueues. A zero field means the same as for any other task.
type Child struct {
	Queue string
	Body  []byte
	// ID is the new task's ID; the host makes one if it is "".
	ID, Key string
	Labels  map[string]string
	// Headers are by names in lower case.
	Headers map[string]string
	// Priority is 0 to 100; nil for the default.
	Priority *int
	// Delay is how long the task waits. At is the time from which it may run. At most one of them is set.
	Delay       time.Duration
	At          time.Time
	MaxAttempts int
	Timeout     time.Duration
	Unique      *Unique
	// After lists the IDs of tasks that the new task waits for. When says how they must end: complete ("" too), ended,
	// any or failed.
	After []string
	When  string
}

// Publication is what a task publishes to a topic.
type Publication struct {
	Topic string
	Body  []byte
	// ID is the publication's ID; the host makes one if it is "".
	ID         string
	Attributes map[string]string
	// Trace has the traceparent and tracestate of the call, if the host traces it.
	Trace map[string]string
}

// Unique prevents a second task like this one.
type Unique struct {
	// Key is the same for tasks that are alike; "" compares the bodies.
	Key string
	// For is how long a second task is prevented; 0 means until the first task is finished.
	For time.Duration
}

// Enqueuer enqueues the children of one task: at once, or when the task completes, as its grant says.
type Enqueuer interface {
	// Enqueue returns the new task's ID. ErrInvalid if the queue or an option is not valid, ErrDenied if the queue is
	// not granted, ErrLimit if the task has enqueued as many tasks as it may, or has as many ancestors as it may. If
	// children are enqueued at once, also ErrQuota if the queue is full, and ErrUnavailable.
	Enqueue(ctx context.Context, child Child) (id string, err error)
}

// Publisher publishes what one task publishes: at once, or when the task completes, as its grant says.
type Publisher interface {
	// Publish returns the publication's ID. It has the errors of Enqueuer.Enqueue, for the topic instead of the queue.
	Publish(ctx context.Context, publication Publication) (id string, err error)
}

// Dependency is a task that a task waited for before it ran.
type Dependency struct {
	ID string
	// End is complete, failed, gone, open (the task could not wait for it), or waiting (it has not ended).
	End string
}

// Dependencies are the tasks that a task waited for.
type Dependencies interface {
	// List returns the tasks in the order in which they were named. Every call returns their state at the task's first
	// call.
	List(ctx context.Context) ([]Dependency, error)
	// Result returns the result of one task. ErrInvalid if the task did not wait for it, ErrNotFound if it has no
	// result, because it is not complete or is deleted, ErrTooBig above MaxBody.
	Result(ctx context.Context, id string) ([]byte, error)
}

// VarsBucket is the bucket that keeps the variables of Extism plugins, if their manifest asks for it.
const VarsBucket = "vars"

// Services are the services of one task. A service that is nil is denied.
type Services struct {
	Checkpoint Checkpoint
	KV         KV
	// Vars is set if the manifest asks for VarsBucket.
	Vars    bool
	HTTP    HTTP
	Secrets Secrets
	Enqueue Enqueuer
	// EnqueueAtOnce is set if children do not wait for the task to complete, and so do not count as part of its output.
	EnqueueAtOnce bool
	Publish       Publisher
	// PublishAtOnce is set likewise for publications.
	PublishAtOnce bool
	Dependencies  Dependencies
	// Config is the configuration from manifest and host, by name.
	Config map[string]string
}

// HTTP sends requests to hosts that are granted. It does not follow redirects but returns them. ErrDenied if the
// method, the host or the address that the host resolves to is not granted, ErrTooBig if the response is too large,
// ErrUnavailable if there is no response.
type HTTP interface {
	Do(ctx context.Context, r Request) (Response, error)
}
