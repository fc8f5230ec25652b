// Package native is where package sdk finds a host outside of WebAssembly: the one that sdktest lends it for a run.
package native

import (
	"context"
	"sync/atomic"
	"time"
)

// Host answers as the functions of quern_v1 do, and with the errors of package sdk. It is one interface, and as wide as
// quern_v1 is: a host has to answer each.
//
// The methods are called by any goroutine of the handler.
type Host interface {
	Input() []byte
	Output(p []byte) error
	Fail(text string)
	RetryAfter(ms int64)
	TaskText(field uint32) string
	TaskNumber(field uint32) int64
	Cancelled() bool

	Log(level int, text, fields string) error
	// Stderr takes what is written to standard error while the host is lent.
	Stderr(p []byte)
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
	HTTP(ctx context.Context, r Request) (Response, error)
}

// Request is that of package fetch, which imports this one.
type Request struct {
	Method, URL string
	Header      map[string][]string
	Body        []byte
	Timeout     time.Duration
}

// Response is that of package fetch.
type Response struct {
	Status int
	Header map[string][]string
	Body   []byte
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
