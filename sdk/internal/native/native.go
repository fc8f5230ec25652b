// Package native is where package sdk finds a host outside of WebAssembly: the one that sdktest lends it for a run.
package native

import (
	"io"
	"sync/atomic"
)

// Host answers as the functions of quern_v1 do, and with the errors of package sdk. It is as wide as quern_v1 is,
// except for HTTP, which package fetch declares. Any goroutine of the handler calls the methods.
type Host interface {
	Input() []byte
	Output(p []byte) error
	Fail(text string)
	RetryAfter(ms int64)
	TaskText(field uint32) string
	TaskNumber(field uint32) int64
	// Dependencies is the text of that name.
	Dependencies() (string, error)
	DependencyResult(id string) ([]byte, error)
	Cancelled() bool

	io.Writer // standard error, and the task's log
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

	// Enqueue gets an *sdk.EnqueueOptions, which may be nil: package sdk imports this one.
	Enqueue(queue string, parameters []byte, options any) (string, error)
	Publish(topic string, payload []byte, options any) (string, error)
}

var lent atomic.Pointer[Host]

// Lend makes h the host of this process until giveBack is called. There is one at a time: who lends has to see to it.
func Lend(h Host) (giveBack func()) {
	lent.Store(&h)
	return func() { lent.Store(nil) }
}

// Current is the host that is lent; nil if none is.
func Current() Host {
	if h := lent.Load(); h != nil {
		return *h
	}
	return nil
}
