// Package sdk is what a Quern plugin written in Go links: nothing but the standard library, and
// little of that, for its size is the plugin's size.
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
// # What becomes of a task
//
// The handler's error decides it:
//
//	returned error   exit status   the task
//	nil              0             is complete with the returned bytes as its result
//	Retry(err)       75            is tried again later, as often as its retry policy says
//	RetryAfter(…)    75            the same, after a delay that the handler names
//	Fatal(err)       65            has failed for good: another attempt would end the same
//	any other        1             has failed, and is tried again if its retry policy says so
//	a panic          2             the same, with the panic as its error
//
// The error's text becomes the task's error. What a handler writes to standard error before (with
// the package log, for instance) goes line by line to the task's log. What it tells [Progress] is
// shown to who waits for the task.
//
// # Without the start
//
// A command pays for its start with every task: Go's own, and that of each package that it imports.
// A module of the kind that Quern calls a handler starts once, and every task begins with a copy of
// the memory as it was then, which takes some microseconds instead of milliseconds. To make one of a
// command, add
//
//	//go:wasmexport quern_handle
//	func Handle() int32 { return sdk.Run(shout) }
//
// and build it with -buildmode=c-shared:
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o shout.wasm .
//
// The function shout stays as it is, and so do the meanings of its errors. main stays, too, for go run;
// Quern does not call it. Built without -buildmode=c-shared the module is neither kind.
//
// The start is that of package variables and init functions: that is where to parse templates, compile
// expressions and load tables. What it leaves in memory is what every task begins with, and what a task
// leaves is gone before the next one. With the key warm in its manifest a handler is also called once
// before the copy is taken, with an input from there and a Task that says nothing else. Then the caches
// that fill with use are full, too.
//
// Mind what comes with a copy. (Quern makes them on Linux. Elsewhere every task has a start of its own,
// and none of this can be seen.)
//
//   - Random numbers do not repeat: before the handler is called, Run seeds the generator of Go's runtime anew from the
//     host. From there come the numbers of math/rand and math/rand/v2 without a source of one's own, the seeds of
//     hash/maphash, and the order of a map's elements. crypto/rand asks the host each time. What was drawn or seeded at
//     the start is the same in every task: a rand.Rand, a maphash.Seed, an ID. So is the order in which select looks at
//     what is ready. Go has no function to seed that generator. Run knows where Go 1.26 keeps it, and makes sure of that
//     at the start; with a Go that keeps it elsewhere it is not seeded anew.
//   - A file is open only during the call that opened it: read files whole in init, or open them within
//     the task.
//   - A goroutine that was started in init is there in each task as it was then. It runs only while the
//     handler waits, and never between tasks.
//   - A time.Time of the start may be hours old when a task looks at it, and timers count from then.
//   - What is logged at the start is in no task's log. If the start panics or exits, every task fails,
//     and says so.
//   - Standard input is empty, and standard output is log like standard error. The variables TASK_ID and
//     so on are not set: ask the Task.
//
// # Services
//
// A handler may ask its host for more than its task; a command may not. Most of it has to be granted by the manifest:
//
//	function                                    manifest                 answers
//	Config                                      config                   settings, also at the start
//	Secret                                      capabilities.secrets     secrets of the tenant
//	Bucket.Get, Set, Delete, Increment, …       capabilities.kv          a key-value store of the tenant
//	Enqueue                                     capabilities.enqueue     another task, together with this one's result
//	fetch.Do, Get, Post                         capabilities.http        HTTP
//	SaveCheckpoint, Checkpoint                                           what a next run of the task goes on from
//	Log, Progress                                                        also in a command, as lines of standard error
//	Task.Deadline, Cancelled, PreviousError, …                           more of the task
//
// Their errors are a [HostError] each, to be compared by errors.Is.
//
// # Packages
//
// Package fetch sends HTTP requests, and package typed makes a handler of a function whose input and result are Go values,
// read and written as JSON. Both link encoding/json, which this package does without. Package sdktest runs a handler in
// go test, with services that the test sets.
//
// # Without Quern
//
// A command speaks to its host by standard input, standard output, standard error, the exit
// status and a few environment variables, and by nothing else. So the same program runs on the
// developer's own machine: go run . < input > result. So does a handler whose main calls [Handle], but that there is no
// host to ask: the services answer [ErrNoHost].
package sdk

import "context"

// Handler turns one task's input into its result. The result may be nil: an empty one.
//
// A handler is called once in the life of its process or of its copy of the memory, so whatever it
// leaves there is gone before the next task.
//
// The context has the task's deadline, at which the host ends the task without further notice, and it ends when the host is
// about to: who returns sdk.Retry(ctx.Err()) then is run again elsewhere, and this counts as no attempt. The host does not
// interrupt a handler to tell it:
//
//   - ctx.Err and ctx.Done ask the host, which takes less than a microsecond.
//   - From the first call of Done on, or of a function of package context that calls it, the host is asked ten times a second
//     while the handler waits: in a select, for a channel, a timer or a lock. So a wait on ctx.Done() ends, and so do contexts
//     that are derived from ctx and what context.AfterFunc set up.
//   - Nothing else runs while the handler computes, for a guest has one thread. A loop that never waits has to call ctx.Err
//     itself: context.Cause(ctx), the Err of a derived context, a channel that Done has returned before, and the timers of
//     context.WithTimeout do not ask the host, and stay as they are there.
//   - In a command the context never ends.
type Handler func(ctx context.Context, task *Task) ([]byte, error)

// Task is the piece of work that a handler is given.
type Task struct {
	// ID names the task; the client that enqueued it knows it by this name. It is the same in
	// every attempt, so it can serve as the key that makes an outside effect happen once.
	ID string

	// Queue is the queue from which the task came. One plugin may serve several.
	Queue string

	// Tenant is the owner of the queue.
	Tenant string

	// Plugin is the name of this plugin on the host.
	Plugin string

	// Attempt counts from 1. It is also 1 when the host does not say.
	Attempt int

	// MaxAttempts is how often the task is tried at most; 0 when there is no such bound, or when
	// the host does not say.
	MaxAttempts int

	// Input is what was enqueued, byte for byte. The handler may keep and change it.
	Input []byte
}
