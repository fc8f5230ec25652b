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
//   - The functions of math/rand and math/rand/v2 that need no source draw the same numbers in every
//     task, for their seed is copied; so do sources that were seeded before, and what else Go draws for
//     itself, such as the order of a map's elements. crypto/rand asks the host each time and does not
//     repeat itself. For another generator, take the seed from it within the task.
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
// # Without Quern
//
// A command speaks to its host by standard input, standard output, standard error, the exit
// status and a few environment variables, and by nothing else. So the same program runs on the
// developer's own machine: go run . < input > result
package sdk

import "context"

// Handler turns one task's input into its result. The result may be nil: an empty one.
//
// A handler is called once in the life of its process or of its copy of the memory, so whatever it
// leaves there is gone before the next task. The context is never cancelled yet: a task that exceeds
// its time limit ends without notice.
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
