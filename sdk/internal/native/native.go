// Package native has the host that package sdk uses outside of WebAssembly: the one that sdktest lends for a run.
package native

import (
	"io"
	"sync/atomic"
)

// Host does what the functions of quern_v1 do, and returns the errors of package sdk. It has all functions of quern_v1
// except HTTP, which package fetch declares. Any goroutine of the handler can call its methods.
type Host interface {
	Input() []byte
	Output(p []byte) error
	Fail(text string)
	RetryAfter(ms int64)
	TaskText(field uint32) string
	TaskNumber(field uint32) int64
	// Dependencies returns the text of the field dependencies: one line for each dependency.
	Dependencies() (string, error)
	DependencyResult(id string) ([]byte, error)
	Cancelled() bool

	io.Writer // writes to standard error and to the task's log
	Progress(fraction float64, message string) error
	SaveCheckpoint(value []byte) error
	Checkpoint() ([]byte, error)
	Config(name string) (string, bool)
	Secret(name string) ([]byte, error)

	Get(bucket, key string) ([]byte, error)
	Set(bucket, key string, value []byte, ttl int64) error
	Delete(bucket, key string) (bool, error)
	Increment(bucket, key string, delta int64) (int64, error)
	Swap(bucket, key string, old, value []byte, ttl int64) ([]byte, error)
	List(bucket, prefix, after string, limit int) ([]string, error)

	// SQL, CommitSQL and StepSQL take and return bytes as the functions sql, sql_commit and sql_step of quern_v1 do.
	SQL(database, statement string, parameters []byte) ([]byte, error)
	CommitSQL(database, step string, value []byte) ([]byte, error)
	RollbackSQL(database string) error
	StepSQL(database, step string) ([]byte, error)

	// Enqueue and Publish take options of type *sdk.EnqueueOptions and *sdk.PublishOptions, which can be nil. This
	// package cannot name these types, since package sdk imports it.
	Enqueue(queue string, parameters []byte, options any) (string, error)
	Publish(topic string, payload []byte, options any) (string, error)
}

var lent atomic.Pointer[Host]

// Lend makes h the host of this process until giveBack is called. Only one host can be lent at a time; the caller must
// see to that.
func Lend(h Host) (giveBack func()) {
	lent.Store(&h)
	return func() { lent.Store(nil) }
}

// Current returns the host that is lent, or nil if there is none.
func Current() Host {
	if h := lent.Load(); h != nil {
		return *h
	}
	return nil
}
