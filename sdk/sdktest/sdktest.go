// Package sdktest runs a handler in go test, without WebAssembly and without a host: a Harness stands for the host, with
// config, secrets, buckets, HTTP and queues that the test sets.
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
// # What is as it is on a host
//
// The answers of the services and their errors, with the limits of quern_v1; what a handler's error makes of its task; the number
// of the attempt, the error of the one before, and the checkpoint, which go from one Run of a task to the next; that tasks are
// enqueued only if the one that enqueues them completes, and once if they are to be unique.
//
// # What is not
//
//   - The handler is built for the machine that tests, runs as long as it likes, and may do what no guest may. Memory is not
//     put back after a task: a package's variables have the values that the run before has left.
//   - An init function runs before there is a Harness. There sdk.Config has no values.
//   - What is written to standard error or by the package log is not in Result.Log. Limits of the manifest do not hold.
//   - Death at a checkpoint runs deferred functions: see Task.DieAtCheckpoint.
//
// # One run at a time
//
// The functions of package sdk have no parameter that would lead them to a Harness. So there is one run in a process at a time:
// tests with a Harness of their own may be parallel, and wait for each other in Run. A handler that calls Run waits for ever. A
// goroutine that outlives its handler, and asks the host then, is answered sdk.ErrNoHost, or by the run of another test.
package sdktest

import (
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

	// Absent are secrets that the manifest grants and the host does not have: sdk.ErrNotFound.
	Absent []string

	// HTTP answers what the handler fetches. An error of package sdk is the handler's; any other is sdk.ErrUnavailable. It is
	// called by the handler's goroutines. Nil denies every request. See also Serve.
	HTTP func(fetch.Request) (*fetch.Response, error)

	// Queues are those that the manifest lets the handler enqueue to, by name or with one * for any text. Others are denied.
	Queues []string

	// EnqueueAtOnce is the manifest's after: call.
	EnqueueAtOnce bool

	// Fault, if it is not nil, is asked before each function of quern_v1 that reaches beyond the task, by its name there:
	// checkpoint_save, enqueue, http, kv_get, kv_set, kv_delete, kv_increment, kv_swap, kv_list, secret_get. Its error is the
	// function's, such as sdk.ErrUnavailable, or sdk.ErrLost.
	Fault func(function string) error

	t testing.TB

	mu      sync.Mutex
	buckets map[string]*Bucket  // guarded by mu, as what is in them
	tasks   map[string]*history // by ID; guarded by mu
	passed  time.Duration       // by Advance; guarded by mu
	ending  bool                // guarded by mu
	made    int                 // IDs; guarded by mu
	taken   map[string]bool     // IDs of enqueued tasks; guarded by mu
	unique  map[sameness]holder // guarded by mu
}

// history is what a task has from one run to the next.
type history struct {
	attempt    int
	failure    string
	checkpoint []byte
}

// New returns a Harness that grants nothing.
func New(t testing.TB) *Harness {
	return &Harness{
		Config: map[string]string{}, Secrets: map[string]string{},
		t: t, buckets: map[string]*Bucket{}, tasks: map[string]*history{}, taken: map[string]bool{},
		unique: map[sameness]holder{},
	}
}

// Task is the task of a run. The zero value is the first attempt of a task without an input.
type Task struct {
	// ID is the task's; "task" if it is empty. Runs of one ID are runs of one task, until it is complete or has failed for good.
	ID string
	// Queue, Tenant and Plugin are "queue", "tenant" and "plugin" if they are empty.
	Queue, Tenant, Plugin string
	// Key, Parent and Traceparent may be empty.
	Key, Parent, Traceparent string
	Input                    []byte
	// Attempt is 1 at first, and one more after each run that failed or panicked; here it can be set to another number.
	Attempt int
	// MaxAttempts is 0 for any number. Run does not look at it.
	MaxAttempts int
	// PreviousError is the error of the run before, in the words of a host; here it can be set to another one.
	PreviousError string
	// Timeout is until the task's deadline, with which the context ends; 0 for none. The task is not ended by it.
	Timeout time.Duration
	// DieAtCheckpoint, if above 0, plays that the host dies when so many checkpoints of this run are saved: the last
	// SaveCheckpoint does not return, nor does what the handler asks of its host from then on. The goroutines that
	// ask end like by runtime.Goexit, with their deferred functions, and Run waits for the handler's own to do so or to return.
	DieAtCheckpoint int
}

// one run at a time, for the functions of package sdk find their host by themselves.
var running sync.Mutex

// Run runs the handler on a task.
func (h *Harness) Run(handler sdk.Handler, task Task) *Result {
	h.t.Helper()
	running.Lock()
	defer running.Unlock()
	r := h.begin(task)
	giveBack := native.Lend(r)
	defer giveBack()
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.status = sdk.Run(r.watched(handler))
		r.ended = true
	}()
	<-done
	if !r.ended && !r.died() {
		h.t.Fatal("sdktest: the handler has ended its goroutine by t.FailNow, t.SkipNow or runtime.Goexit")
	}
	return h.end(r)
}

// Cancel has the handler that runs, or that runs next, see that its host is about to end: by its context, and by Task.Cancelled.
func (h *Harness) Cancel() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ending = true
}

// Advance lets time pass for the values of buckets and for sdk.Unique, whose clock stands still otherwise. Deadlines know nothing
// of it.
func (h *Harness) Advance(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.passed += d
}

// begin is the run of a task.
func (h *Harness) begin(task Task) *run {
	h.mu.Lock()
	defer h.mu.Unlock()
	setDefault(&task.ID, "task")
	setDefault(&task.Queue, "queue")
	setDefault(&task.Tenant, "tenant")
	setDefault(&task.Plugin, "plugin")
	past := h.tasks[task.ID]
	if past == nil {
		past = &history{attempt: 1}
		h.tasks[task.ID] = past
	}
	if task.Attempt > 0 {
		past.attempt = task.Attempt
	}
	task.Attempt = past.attempt
	setDefault(&task.PreviousError, past.failure)
	r := &run{h: h, task: task, past: past}
	if task.Timeout > 0 {
		r.deadline = time.Now().Add(task.Timeout)
	}
	return r
}

func setDefault(field *string, value string) {
	if *field == "" {
		*field = value
	}
}

// end makes of a run what it leaves.
func (h *Harness) end(r *run) *Result {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ending = false
	result := r.result()
	switch result.Outcome {
	case Complete, Fatal:
		delete(h.tasks, r.task.ID)
	case Failed, Panicked:
		r.past.attempt++
		r.past.failure = said(result)
	case Retry: // it was put off, which is no attempt
		r.past.failure = said(result)
	case Died:
	}
	return result
}
