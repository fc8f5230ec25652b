// Package sdk is the SDK for Quern plugins in Go. It imports little of the standard library and nothing else, because
// its size is part of the plugin's size.
//
// A plugin is a main package with one handler:
//
//	func main() { sdk.Handle(shout) } // for go run; Quern does not call it
//
//	//go:wasmexport quern_handle
//	func handle() int32 { return sdk.Run(shout) }
//
//	func shout(ctx context.Context, task *sdk.Task) ([]byte, error) {
//		return bytes.ToUpper(task.Input), nil
//	}
//
// `quern plugin new` writes such a package, and `quern plugin build` builds it. Without Quern, build it with
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o shout.wasm .
//
// # Outcome of a task
//
// The handler's error decides the outcome:
//
//	returned error   exit status   the task
//	nil              0             completes with the returned bytes as its result
//	Retry(err)       75            is tried again later; no attempt is counted
//	RetryAfter(…)    75            is tried again after the given delay; no attempt is counted
//	RetryKeyAfter(…) 75            the same, and all tasks with its key wait as long
//	Fatal(err)       65            fails for good: another attempt would end the same way
//	any other        1             fails, and is tried again if its retry policy says so; an attempt is counted
//	FailAfter(…)     1             fails likewise, and is tried again after the given delay
//	a panic          2             fails likewise, with the panic as its error
//
// The error's text becomes the task's error. Standard error, to which package log writes for instance, goes line by
// line to the task's log. [Progress] is shown to clients that wait for the task.
//
// # Handlers
//
// The export quern_handle makes the plugin a handler: a module that starts only once. Every task then starts from a
// snapshot of the module's memory, which takes microseconds. A program without the export, built without
// -buildmode=c-shared, is a command: it starts anew for every task, with Go's runtime and each imported package, which
// takes milliseconds. To turn a command into a handler, add the export and build it with -buildmode=c-shared.
//
// The function shout and the meaning of its errors do not change. With the export and without -buildmode=c-shared, the
// module is neither.
//
// Package variables and init functions run when the module starts: parse templates, compile expressions and load tables
// there. Every task finds in memory what they left there. What a task leaves in memory is gone before the next task. If
// the manifest has the key warm, the handler is also called once before the snapshot, with the manifest's input and an
// otherwise empty Task: this fills caches that fill with use.
//
// Mind the consequences of a snapshot. (Quern takes snapshots only on Linux. Elsewhere the module starts anew for every
// task, and none of this applies.)
//
//   - Random numbers do not repeat: before each task, Run seeds the generator of Go's runtime with random bytes of the
//     host. The generator provides the numbers of math/rand and math/rand/v2 (except those of a source that the handler
//     makes), the seeds of hash/maphash, and the order of map elements. crypto/rand asks the host each time. Whatever
//     is drawn or seeded when the module starts is the same in every task: a rand.Rand, a maphash.Seed, an ID, and the
//     order in which select checks ready channels. Go has no function to seed its generator. Run knows where Go 1.26
//     keeps it, and verifies that when the module starts. If another Go version keeps the generator elsewhere, it is
//     not seeded anew.
//   - A file is open only during the call that opened it: read files whole in init, or open them in the task.
//   - A goroutine started in init begins each task in the state of the snapshot. It runs only while the handler waits,
//     and never between tasks.
//   - A time.Time taken in init can be hours old in a task, and timers started in init count from that time.
//   - What init writes is in no task's log. If init panics or exits, every task fails with that error.
//   - Standard input is empty, and standard output goes to the log like standard error. The environment variables
//     TASK_ID and so on are not set: use the Task.
//
// # Services
//
// A handler can use services of its host; a command cannot. The manifest must grant most of them:
//
//	function                                    manifest                 for
//	Config                                      config                   settings, also in init
//	Secret                                      capabilities.secrets     secrets of the tenant
//	Bucket.Get, Set, Delete, Increment, …       capabilities.kv          a key-value store of the tenant
//	Enqueue                                     capabilities.enqueue     another task, created when this one completes
//	Publish                                     capabilities.publish     a task for each subscriber of a topic, likewise
//	fetch.Do, Get, Post                         capabilities.http        HTTP
//	SaveCheckpoint, Checkpoint                                           resuming in the task's next run
//	Log, Progress                                                        also in a command, as lines of standard error
//	Task.Deadline, Cancelled, PreviousError, …                           more about the task
//
// Their errors are [HostError] values: compare them with errors.Is.
//
// # Packages
//
// Package fetch sends HTTP requests. Package typed makes a handler from a function whose input and result are Go
// values, encoded as JSON. Both import encoding/json, which package sdk does not. Package sdktest runs a handler in go
// test, with services that the test sets.
//
// # Without Quern
//
// A command uses only standard input, standard output, standard error, the exit status and a few environment variables.
// So it also runs on the developer's machine: go run . < input > result. So does a handler whose main calls [Handle];
// without a host, its services return [ErrNoHost].
package sdk

import "context"

// Handler turns a task's input into its result. A nil result is an empty result.
//
// A handler is called once in each process, or once from each copy of the snapshot. What it leaves in memory is gone
// before the next task.
//
// The context has the task's deadline, at which the host ends the task without notice. It also ends when the host is
// about to end. If the handler then returns sdk.Retry(ctx.Err()), the task is run again elsewhere, and this attempt
// does not count. The host does not interrupt a handler when the context ends:
//
//   - ctx.Err and ctx.Done ask the host, which takes less than a microsecond.
//   - After the first call of Done, or of a function of package context that calls Done, the host is asked ten times a
//     second while the handler waits: in a select, for a channel, a timer or a lock. So waiting for ctx.Done() works,
//     and so do derived contexts and context.AfterFunc.
//   - Nothing else runs while the handler computes, because a guest has one thread. A loop that never waits must call
//     ctx.Err itself. Some calls do not ask the host: context.Cause(ctx), the Err of a derived context, a channel that
//     Done returned earlier, and timers of context.WithTimeout.
//   - In a command the context never ends.
type Handler func(ctx context.Context, task *Task) ([]byte, error)

// Task is the task that a handler runs.
type Task struct {
	// ID is the name by which the enqueuing client knows the task. It is the same in every attempt. So a handler can use
	// it as the key that makes an effect outside happen only once.
	ID string

	// Queue is the task's queue. One plugin can serve several queues.
	Queue string

	// Tenant is the owner of the queue.
	Tenant string

	// Plugin is the name of this plugin on the host.
	Plugin string

	// Attempt is the number of the attempt, from 1; it is 1 if the host does not provide it.
	Attempt int

	// MaxAttempts is the maximum number of attempts; 0 if there is no bound, or the host does not provide it.
	MaxAttempts int

	// Reschedules is how often the task has put itself off by [Retry], which counts no attempt.
	Reschedules int

	// Input has the parameters that were enqueued, byte for byte. The handler is allowed to keep and change it.
	Input []byte
}
