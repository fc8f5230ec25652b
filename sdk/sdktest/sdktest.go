// Package sdktest runs a handler in go test, without WebAssembly and without a host. A Harness stands for the host: its
// fields are the config, secrets, queues and functions with which it answers.
//
//	func TestThumbnail(t *testing.T) {
//		h := sdktest.New(t)
//		h.Config["size"] = "200x200"
//		r := h.Run(thumbnail, sdktest.Task{Input: picture})
//		if r.Outcome != sdktest.Complete {
//			t.Fatal(r)
//		}
//	}
//
// The services answer as on a host, with the same errors where something is not granted, not a name or too large; a
// handler's error means the same for its task. Only the values of buckets go from one Run to the next. There is no
// expiry, no quota, no limit of a manifest and no other task, and nothing checks the options of an enqueued task:
// Harness.Fault can answer with a host's error. Package variables keep their values from run to run, and in an init
// function sdk.Config has none. To run the plugin itself, see `quern plugin test`.
//
// There is one run in a process at a time: parallel tests wait for each other in Run, and a handler that calls Run
// waits for ever. A goroutine that outlives its handler, and asks the host then, gets sdk.ErrNoHost, or an answer for
// another test.
package sdktest

import (
	"cmp"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk"
	"github.com/quern-project/quern/sdk/fetch"
	"github.com/quern-project/quern/sdk/internal/native"
)

// Harness stands for the host. What a test sets is set before Run, or between two of them.
type Harness struct {
	// Config is the section config of the manifest.
	Config map[string]string
	// Secrets are those that the manifest grants and the host has. Others are denied.
	Secrets map[string]string
	// HTTP answers what the handler's goroutines fetch: see Serve. Nil denies every request. The handler gets errors of
	// package sdk as they are, and others as sdk.ErrUnavailable.
	HTTP func(fetch.Request) (*fetch.Response, error)
	// Queues are those that the manifest lets the handler enqueue to, by name or with one * for any text. Others are
	// denied.
	Queues []string
	// EnqueueAtOnce is the manifest's after: call: tasks come into being even if the one that enqueues them fails.
	EnqueueAtOnce bool
	// Topics are those that the manifest lets the handler publish to, and PublishAtOnce its after: call, likewise.
	Topics        []string
	PublishAtOnce bool
	// Fault, if not nil, returns the error of a function of quern_v1, such as sdk.ErrUnavailable: checkpoint_save,
	// dependency_result, enqueue, task_text (of the dependencies), http, kv_get, kv_set, kv_delete, kv_increment, kv_swap,
	// kv_list, secret_get.
	Fault func(function string) error

	t       testing.TB
	mu      sync.Mutex
	buckets map[string]*Bucket // guarded by mu, as what is in them
	ending  bool               // guarded by mu
}

// New returns a Harness that grants nothing.
func New(t testing.TB) *Harness {
	return &Harness{Config: map[string]string{}, Secrets: map[string]string{}, t: t, buckets: map[string]*Bucket{}}
}

// Bucket grants a bucket for reading and writing, if it is not granted yet, and returns it.
func (h *Harness) Bucket(name string) *Bucket {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !validName(name) {
		h.t.Fatalf("sdktest: bucket %q: use 1 to %d bytes of UTF-8 without control characters", name, maxName)
	}
	if h.buckets[name] == nil {
		h.buckets[name] = &Bucket{mu: &h.mu, values: map[string]entry{}}
	}
	return h.buckets[name]
}

// Task is the task of a run. The zero value is the first attempt of a task without an input.
type Task struct {
	// ID, Queue, Tenant and Plugin are "task", "queue", "tenant" and "plugin" if they are empty.
	ID, Queue, Tenant, Plugin string
	// Key, Parent and Traceparent may be empty.
	Key, Parent, Traceparent string
	// Headers are those beside Traceparent.
	Headers map[string]string
	Input   []byte
	// Dependencies are the tasks that it waited for.
	Dependencies []Dependency
	// Attempt is 1 if it is 0, and MaxAttempts is 0 for any number. Run looks at neither.
	Attempt, MaxAttempts int
	// PreviousError is the error of the attempt before, and Checkpoint what an earlier run saved; nil for none.
	PreviousError string
	Checkpoint    []byte
	// Timeout is until the task's deadline, with which the context ends; 0 for none. The task is not ended by it.
	Timeout time.Duration
}

// Dependency is a task that the task of a run waited for.
type Dependency struct {
	ID string
	// End is "complete" if it is empty.
	End string
	// Result is what Task.ResultOf returns; one that is not complete has none.
	Result []byte
}

// running is held by the one run of this process.
var running sync.Mutex

// Run runs the handler on a task.
func (h *Harness) Run(handler sdk.Handler, task Task) *Result {
	running.Lock()
	defer running.Unlock()
	task.ID, task.Queue = cmp.Or(task.ID, "task"), cmp.Or(task.Queue, "queue")
	task.Tenant, task.Plugin = cmp.Or(task.Tenant, "tenant"), cmp.Or(task.Plugin, "plugin")
	task.Attempt = cmp.Or(task.Attempt, 1)
	r := &run{Harness: h, task: task, result: Result{Checkpoint: task.Checkpoint}}
	if task.Timeout > 0 {
		r.deadline = time.Now().Add(task.Timeout).UnixMilli()
	}
	defer native.Lend(r)()
	var returned error // by the handler, as it is
	status := sdk.Run(func(ctx context.Context, task *sdk.Task) (result []byte, err error) {
		result, returned = handler(ctx, task)
		return result, returned
	})
	return r.end(int(status), returned)
}

// Cancel has the handler that runs, or that runs next, see that its host is about to end: by its context, and by
// Task.Cancelled.
func (h *Harness) Cancel() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ending = true
}
