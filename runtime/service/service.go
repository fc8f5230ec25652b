// Package service defines the interfaces of the host's services: what a handler can use beyond its own task. host/guest
// implements the interfaces, and runtime/abi serves them to guests. Arguments come from the guest and may be hostile:
// only their size has been checked.
//
// A method can take long. When its context ends, it returns the context's error or an error that wraps it. Methods are
// safe for concurrent use, and are allowed to keep the byte slices that they are passed.
package service

import (
	"context"
	"errors"
	"time"
)

// The errors that a guest can distinguish. An implementation wraps one of them, with details for the host's log. An
// error that wraps none is a fault of the host.
var (
	// ErrInvalid means that an argument is not valid.
	ErrInvalid = errors.New("invalid")
	// ErrDenied means that the manifest or the host does not allow the call.
	ErrDenied = errors.New("denied")
	// ErrNotFound means that nothing has the given name.
	ErrNotFound = errors.New("not found")
	// ErrTooBig means that a value is larger than allowed.
	ErrTooBig = errors.New("too big")
	// ErrQuota means that the quota has no room left.
	ErrQuota = errors.New("over the quota")
	// ErrConflict means that the present value is not what the guest expects.
	ErrConflict = errors.New("conflict")
	// ErrLost means that another host has the task now.
	ErrLost = errors.New("the task is lost")
	// ErrUnavailable means that the service cannot be reached. Another attempt may reach it.
	ErrUnavailable = errors.New("unavailable")
	// ErrLimit means that a limit on a number, a size or a depth is reached.
	ErrLimit = errors.New("over the limit")
)

// Await calls f and returns its result. If ctx ends first, Await returns the error of ctx, and f goes on in the
// background until it ends by itself. Use Await if f may not notice the end of ctx: go-redis waits for its own timeout
// while it reads, and reading a file has no timeout.
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

// KV is a key-value store for one plugin of one tenant. Its methods return ErrDenied if the bucket is not granted.
// Buckets and keys are 1 to 256 bytes of UTF-8 without control characters; otherwise the methods return ErrInvalid.
type KV interface {
	// Get returns the value. It returns ErrNotFound if there is none.
	Get(ctx context.Context, bucket, key string) ([]byte, error)
	// Set sets the value. The value expires after ttl if ttl is above 0. Set returns ErrQuota if the bucket would hold
	// more bytes than its quota.
	Set(ctx context.Context, bucket, key string, value []byte, ttl time.Duration) error
	// Delete reports whether there was a value.
	Delete(ctx context.Context, bucket, key string) (bool, error)
	// Increment adds delta to the value, a decimal number, and returns the sum; a missing value counts as 0. The value
	// expires when it would have expired before. Increment returns ErrConflict if the value is not a number, and ErrLimit
	// if the sum needs more than 64 bits.
	Increment(ctx context.Context, bucket, key string, delta int64) (int64, error)
	// Swap sets the value as Set does, but only if the present value equals old, or, if old is nil, if there is no value.
	// Otherwise it returns ErrConflict and the present value, which is nil if there is none.
	Swap(ctx context.Context, bucket, key string, old, value []byte, ttl time.Duration) (present []byte, err error)
	// List returns the keys that begin with prefix and are greater than after, in the order of their bytes. It returns at
	// most limit keys, and ErrInvalid unless limit is 1 to 1000.
	List(ctx context.Context, bucket, prefix, after string, limit int) ([]string, error)
}

// Checkpoint stores the state from which the task's next run starts.
type Checkpoint interface {
	// Save replaces the checkpoint, and returns when the new checkpoint is durable. It returns ErrTooBig if value is
	// larger than 1 MiB, and ErrLost if another host has the task.
	Save(ctx context.Context, value []byte) error
}

// Secrets returns the secrets of a plugin.
type Secrets interface {
	// Secret returns the value of a secret. It returns ErrDenied if the name is not granted, and ErrNotFound if there is
	// no value.
	Secret(ctx context.Context, name string) ([]byte, error)
}

// MaxBody bounds the body of a request or of a response, in bytes.
const MaxBody = 16 << 20

// Request is an HTTP request. Method and URL are as the guest wrote them.
type Request struct {
	Method, URL string
	// Headers has the values by name; a name can have several values.
	Headers map[string][]string
	Body    []byte
	// Timeout is the guest's own timeout, which the host's timeout bounds. 0 means the host's timeout.
	Timeout time.Duration
	// Trace has the traceparent and tracestate of the call. Both are sent unless Headers has a traceparent. Other headers
	// in Trace are not sent.
	Trace map[string]string
}

// Response is the response to a Request.
type Response struct {
	Status  int
	Headers map[string][]string
	Body    []byte
}

// Child is a task that another task enqueues. Zero fields have the same defaults as for any other task.
type Child struct {
	Queue string
	Body  []byte
	// ID is the new task's ID; the host makes one if it is "".
	ID, Key string
	Labels  map[string]string
	// Headers has the values by name, in lower case.
	Headers map[string]string
	// Priority is 0 to 100; nil for the default.
	Priority *int
	// Delay is the time for which the task waits. At is the time from which it can run. At most one of them is set.
	Delay       time.Duration
	At          time.Time
	MaxAttempts int
	Timeout     time.Duration
	Unique      *Unique
	// After lists the IDs of tasks that the new task waits for. When says how these tasks must end: "complete" (or "",
	// which means the same), "ended", "any" or "failed".
	After []string
	When  string
	// FairKey names whom the task is for, and ConcurrencyKey the tasks that run one after another. FairWeight and
	// MaxConcurrent are 0 for 1.
	FairKey, ConcurrencyKey   string
	FairWeight, MaxConcurrent int
}

// Publication is a message that a task publishes to a topic.
type Publication struct {
	Topic string
	Body  []byte
	// ID is the publication's ID; the host makes one if it is "".
	ID         string
	Attributes map[string]string
	// Trace has the traceparent and tracestate of the call, if the host traces it.
	Trace map[string]string
}

// Unique prevents duplicates of a task.
type Unique struct {
	// Key is equal for duplicates. If it is "", duplicates are tasks with equal bodies.
	Key string
	// For is the time for which duplicates are prevented. 0 means until the first task is finished.
	For time.Duration
}

// Enqueuer enqueues the children of one task. The task's grant decides whether at once or when the task completes.
type Enqueuer interface {
	// Enqueue returns the new task's ID. It returns ErrInvalid if the queue or an option is not valid, and ErrDenied if
	// the queue is not granted. It returns ErrLimit if the task has reached its maximum number of enqueued tasks or of
	// ancestors. If children are enqueued at once, it also returns ErrQuota if the queue is full, and ErrUnavailable.
	Enqueue(ctx context.Context, child Child) (id string, err error)
}

// Publisher publishes the messages of one task. The task's grant decides whether at once or when the task completes.
type Publisher interface {
	// Publish returns the publication's ID. It returns the same errors as Enqueuer.Enqueue, for the topic instead of the
	// queue.
	Publish(ctx context.Context, publication Publication) (id string, err error)
}

// Dependency is a task that another task waited for before it ran.
type Dependency struct {
	ID string
	// End is "complete", "failed", "gone", "open" (the task could not wait for it), or "waiting" (it has not ended).
	End string
}

// Dependencies returns the tasks that one task waited for.
type Dependencies interface {
	// List returns the dependencies in the order in which they were named. Every call returns the states that the first
	// call returned.
	List(ctx context.Context) ([]Dependency, error)
	// Result returns the result of one dependency. It returns ErrInvalid if the task did not wait for id, and ErrTooBig
	// if the result is larger than MaxBody. It returns ErrNotFound if there is no result, because the dependency is not
	// complete or was deleted.
	Result(ctx context.Context, id string) ([]byte, error)
}

// VarsBucket is the bucket that keeps the variables of Extism plugins, if their manifest asks for it.
const VarsBucket = "vars"

// SQL runs statements on the databases of one task. Its methods return ErrDenied if the database is not granted.
type SQL interface {
	// Query runs one statement in the task's transaction on the database, which it begins if there is none. It returns
	// what the database answers, also if that is an error, in the layout that the section SQL of sdk/ABI.md describes. It
	// returns ErrLimit if the answer has more rows or bytes than granted, or the statement or the transaction takes
	// longer than granted, and ErrUnavailable if the database does not serve. After both the transaction is lost: Query
	// returns the same error until Rollback.
	Query(ctx context.Context, database, statement string, parameters []SQLValue) (answer []byte, err error)
	// Commit commits the transaction. If step is not "", the transaction stores value as the step's value. It returns
	// what the database answers, as Query does, ErrConflict if another run has stored the step, and ErrUnavailable if it
	// is not known whether the transaction is committed.
	Commit(ctx context.Context, database, step string, value []byte) (answer []byte, err error)
	// Rollback undoes the transaction; without one it does nothing.
	Rollback(ctx context.Context, database string) error
	// Step returns the value that a run of this task stored for a step. It returns ErrNotFound if there is none.
	Step(ctx context.Context, database, step string) ([]byte, error)
}

// SQLValue is a parameter of a statement, or a value of a row.
type SQLValue struct {
	Kind SQLKind
	Data []byte // nil for SQLNull
}

// SQLKind says what the data of a value are.
type SQLKind byte

// The kinds of values. Guests see the numbers.
const (
	SQLNull  SQLKind = iota
	SQLText          // PostgreSQL's text format of any type
	SQLBytes         // the bytes of a bytea; as a parameter, the binary format of any type
)

// Services are the services of one task. If a service is nil, its use is denied.
type Services struct {
	Checkpoint Checkpoint
	KV         KV
	// Vars is true if the manifest asks for VarsBucket.
	Vars    bool
	HTTP    HTTP
	Secrets Secrets
	SQL     SQL
	Enqueue Enqueuer
	// EnqueueAtOnce is true if children are enqueued before the task completes. Then they do not count as part of the
	// task's output.
	EnqueueAtOnce bool
	Publish       Publisher
	// PublishAtOnce is the same for publications.
	PublishAtOnce bool
	Dependencies  Dependencies
	// Config is the configuration from manifest and host, by name.
	Config map[string]string
}

// HTTP sends requests to hosts that are granted. It does not follow redirects but returns them. Do returns ErrDenied if
// the method, the host or the address that the host resolves to is not granted, ErrTooBig if the response is too large,
// and ErrUnavailable if there is no response.
type HTTP interface {
	Do(ctx context.Context, r Request) (Response, error)
}
