// Package sdk is the SDK for Quern plugins in Go. It needs nothing but the standard library, and little of that, because
// its size is part of the plugin's size.
//
// A plugin is a main package with one handler:
//
//	func main() {
//		sdk.Handle(shout)
//	}
//
//	func shout(ctx context.Context, task *sdk.Task) ([]byte, error) {
//		return bytes.ToUpper(task.Input), nil
//	}
//
// built by
//
//	GOOS=wasip1 GOARCH=wasm go build -o shout.wasm .
//
// This is a command: a program that is started for every task.
//
// # Outcome of a task
//
// The handler's error decides it:
//
//	returned error   exit status   the task
//	nil              0             completes with the returned bytes as its result
//	Retry(err)       75            is tried again later, as often as its retry policy says
//	RetryAfter(…)    75            the same, after the handler's delay
//	Fatal(err)       65            fails for good: another attempt would end the same
//	any other        1             fails, and is tried again if its retry policy says so
//	a panic          2             the same, with the panic as its error
//
// The error's text becomes the task's error. Standard error (of package log, for instance) goes line by line to the
// task's log. [Progress] is shown to clients that wait for the task.
//
// # Handlers
//
// A command pays for its start with every task: Go's own, and that of each imported package. A handler is a module that
// starts once; every task starts from a snapshot of its memory, which takes microseconds instead of milliseconds. To turn a
// command into a handler, add
//
//	//go:wasmexport quern_handle
//	func Handle() int32 { return sdk.Run(shout) }
//
// and build it with -buildmode=c-shared:
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o shout.wasm .
//
// The function shout and the meaning of its errors do not change. Keep main for go run; Quern does not call it. Built
// without -buildmode=c-shared, the module is neither kind.
//
// Package variables and init functions run at the start: parse templates, compile expressions and load tables there. What
// they leave in memory is in every task; what a task leaves is gone before the next one. With the key warm in its manifest,
// a handler is also called once before the snapshot, with the manifest's input and a Task without other values, so that
// caches which fill with use are full, too.
//
// Mind the consequences of a snapshot. (Quern takes them on Linux. Elsewhere every task has a start of its own, and none of
// this applies.)
//
//   - Random numbers do not repeat: before each task, Run seeds the generator of Go's runtime from the host. It provides the
//     numbers of math/rand and math/rand/v2 without a source of one's own, the seeds of hash/maphash, and the order of map
//     elements. crypto/rand asks the host each time. What is drawn or seeded at the start is the same in every task: a
//     rand.Rand, a maphash.Seed, an ID, and the order in which select checks ready channels. Go has no function to seed that
//     generator. Run knows where Go 1.26 keeps it, and verifies that at the start; in a Go version that keeps it elsewhere it
//     is not seeded anew.
//   - A file is open only during the call that opened it: read files whole in init, or open them in the task.
//   - A goroutine started in init is in each task as it was then. It runs only while the handler waits, and never between
//     tasks.
//   - A time.Time of the start may be hours old in a task, and timers count from then.
//   - Output at the start is in no task's log. If the start panics or exits, every task fails with that error.
//   - Standard input is empty, and standard output goes to the log like standard error. The variables TASK_ID and so on are
//     not set: use the Task.
//
// # Services
//
// A handler may use services of its host; a command may not. The manifest must grant most of them:
//
//	function                                    manifest                 for
//	Config                                      config                   settings, also at the start
//	Secret                                      capabilities.secrets     secrets of the tenant
//	Bucket.Get, Set, Delete, Increment, …       capabilities.kv          a key-value store of the tenant
//	Enqueue                                     capabilities.enqueue     another task, created with this one's result
//	Publish                                     capabilities.publish     a task for each subscriber of a topic, likewise
//	fetch.Do, Get, Post                         capabilities.http        HTTP
//	SaveCheckpoint, Checkpoint                                           resuming in the task's next run
//	Log, Progress                                                        also in a command, as lines of standard error
//	Task.Deadline, Cancelled, PreviousError, …                           more of the task
//
// Their errors are [HostError] values, to be compared by errors.Is.
//
// # Packages
//
// Package fetch sends HTTP requests. Package typed makes a handler of a function whose input and result are Go values, read
// and written as JSON. Both link encoding/json, unlike this package. Package sdktest runs a handler in go test, with
// services that the test sets.
//
// # Without Quern
//
// A command uses standard input, standard output, standard error, the exit status and a few environment variables. So it
// also runs on the developer's machine: go run . < input > result. A handler whose main calls [Handle] does as well; without
// a host, its services answer [ErrNoHost].
package sdk

import "context"

// Handler turns a task's input into its result. A nil result is an empty one.
//
// A handler is called once in each process or snapshot, so what it leaves in memory is gone before the next task.
//
// The context has the task's deadline, at which the host ends the task without notice. It also ends when the host is
// about to end: a handler that then returns sdk.Retry(ctx.Err()) is run again elsewhere, and this attempt does not
// count. The host does not interrupt a handler to tell it:
//
//   - ctx.Err and ctx.Done ask the host, which takes less than a microsecond.
//   - After the first call of Done, or of a function of package context that calls it, the host is asked ten times a
//     second while the handler waits: in a select, for a channel, a timer or a lock. So waiting for ctx.Done() works,
//     and so do derived contexts and context.AfterFunc.
//   - Nothing else runs while the handler computes, because a guest has one thread. A loop that never waits must call
//     ctx.Err itself: context.Cause(ctx), the Err of a derived context, a channel that Done returned earlier, and
//     timers of context.WithTimeout do not ask the host.
//   - In a command the context never ends.
type Handler func(ctx context.Context, task *Task) ([]byte, error)

// Task is a handler's task.
type Task struct {
	// ID is the name by which the enqueuing client knows the task. It is the same in every attempt, so it can be the
	// key that makes an outside effect happen once.
	ID string

	// Queue is the task's queue. One plugin may serve several.
	Queue string

	// Tenant is the owner of the queue.
	Tenant string

	// Plugin is the name of this plugin on the host.
	Plugin string

	// Attempt counts from 1, and is 1 if the host does not provide it.
	Attempt int

	// MaxAttempts bounds the attempts; 0 without a bound, or if the host does not provide it.
	MaxAttempts int

	// Input is what was enqueued, byte for byte. The handler may keep and change it.
	Input []byte
}
