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
// the memory that it had then, which costs a few microseconds. To make one of a command, add
//
//	//go:wasmexport quern_handle
//	func handle() int32 { return sdk.Run(shout) }
//
// and build it with -buildmode=c-shared:
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o shout.wasm .
//
// The function shout stays what it was, and so do the meanings of its errors. main stays, too, for go
// run and go test; Quern does not call it. Without -buildmode=c-shared the module would be neither
// kind.
//
// The start is package variables and init functions, in the usual order, without a task: that is where
// to parse templates, compile expressions and load tables. What it leaves in memory is what every task
// begins with, and what a task leaves is gone before the next one, be it of the same tenant or not.
// Mind what comes with a copy:
//
//   - The functions of math/rand and math/rand/v2 that take no source answer the same numbers in every
//     task, because their seed lies in the memory that is copied; so do sources that were seeded before,
//     and anything else that has once been drawn at random, such as the order in which a map is ranged
//     over. crypto/rand asks the host at each call and never repeats itself. For other generators, take a
//     seed from it in the task.
//   - A file is open for as long as the call that opened it: read files whole in init, or open them in
//     the task.
//   - A goroutine that an init function started is there in every task, where it was. It runs only while
//     the handler waits for something, and what it has waited for before has not happened.
//   - A time.Time that was taken in init is the time of the start, maybe hours ago; a timer that was set
//     there is over.
//   - What init functions write goes to no task's log, and if one of them panics or exits the plugin is
//     refused.
//   - Standard input is empty. Standard output is log, like standard error. The variables TASK_ID and
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
