// Package sdktest runs a handler in go test, without WebAssembly and without a host. A Harness stands for the host: its
// fields set the configuration, the secrets, the queues and the functions with which it answers.
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
// The outcomes are Complete, Failed (the attempt), Fatal (for good), Retry (put off) and Panicked.
//
// The services answer as on a host. They return the same errors for what is not granted, not a valid name or too large.
// A handler's error has the same meaning for its task. Only the values of buckets are kept from one Run to the next.
// There is no expiry, no quota, no limit of a manifest and no other task, and nothing checks the options of an enqueued
// task; Harness.Fault can return a host's error instead. Package variables keep their values from run to run, and in an
// init function sdk.Config has no values. The manifest is not read, and nothing stops the handler from using files and
// sockets of the machine, which a host refuses: `quern plugin test` runs the plugin as a host does.
//
// A process has one run at a time: parallel tests wait for each other in Run, and a handler that calls Run waits
// forever. If a goroutine outlives its handler and then asks the host, it gets sdk.ErrNoHost, or an answer for another
// test.
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

// Harness stands for the host. A test sets its fields before the first Run, or between two Runs.
type Harness struct {
	// Config is the section config of the manifest.
	Config map[string]string
	// Secrets are the secrets that the manifest grants and the host has, by name. Other secrets are denied.
	Secrets map[string]string
	// HTTP answers the requests of package fetch, in the handler's goroutines: see Serve. If it is nil, every request is
	// denied. The handler gets errors of package sdk unchanged, and other errors as sdk.ErrUnavailable.
	HTTP func(fetch.Request) (*fetch.Response, error)
	// Queues are the queues to which the manifest lets the handler enqueue: names, or names with one * for any text.
	// Other queues are denied.
	Queues []string
	// EnqueueAtOnce stands for after: call in the manifest: tasks are created even if the task that enqueues them fails.
	EnqueueAtOnce bool
	// Topics are the topics to which the manifest lets the handler publish, in the form of Queues. PublishAtOnce stands
	// for after: call in the manifest.
	Topics        []string
	PublishAtOnce bool
	// Fault, if not nil, is asked for an error of each call of a function of quern_v1, such as sdk.ErrUnavailable; nil
	// lets the call go on. The functions are checkpoint_save, dependency_result, enqueue, task_text (of the
	// dependencies), http, kv_get, kv_set, kv_delete, kv_increment, kv_swap, kv_list and secret_get.
	Fault func(function string) error

	t       testing.TB
	mu      sync.Mutex
	buckets map[string]*Bucket // guarded by mu, including their values
	ending  bool               // Cancel was called; guarded by mu
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

// Task is the task of a run. The zero value is the first attempt of a task without input.
type Task struct {
	// ID, Queue, Tenant and Plugin default to "task", "queue", "tenant" and "plugin".
	ID, Queue, Tenant, Plugin string
	// Key, Parent and Traceparent can be empty.
	Key, Parent, Traceparent string
	// Headers are the headers other than traceparent.
	Headers map[string]string
	Input   []byte
	// Dependencies are the tasks for which the task waited.
	Dependencies []Dependency
	// Attempt defaults to 1. MaxAttempts of 0 means no bound. Run itself uses none of these.
	Attempt, MaxAttempts, Reschedules int
	// PreviousError is the error of the previous attempt. Checkpoint is what an earlier run saved; nil for none.
	PreviousError string
	Checkpoint    []byte
	// Timeout is the time until the task's deadline, at which the context ends; 0 for no deadline. Run does not end the
	// task then.
	Timeout time.Duration
}

// Dependency is a task for which the task of a run waited.
type Dependency struct {
	ID string
	// End is how the task ended. Default "complete".
	End string
	// Result is what Task.ResultOf returns. A task that is not complete has none.
	Result []byte
}

// running is locked during the one run of this process.
var running sync.Mutex

// Run runs the handler on a task and returns what the run leaves.
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
	var returned error // the handler's error, unchanged
	status := sdk.Run(func(ctx context.Context, task *sdk.Task) (result []byte, err error) {
		result, returned = handler(ctx, task)
		return result, returned
	})
	return r.end(int(status), returned)
}

// Cancel makes the handler that runs, or that runs next, see that its host is about to end: by its context and by
// Task.Cancelled.
func (h *Harness) Cancel() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ending = true
}
