// Package sdk is what a Quern plugin written in Go links: nothing but the standard library, and
// little of that, for its size is the plugin's size.
//
// A plugin is a main package with one handler:
//
//	func main() {
//		sdk.Handle(func(ctx context.Context, task *sdk.Task) ([]byte, error) {
//			return bytes.ToUpper(task.Input), nil
//		})
//	}
//
// built by
//
//	GOOS=wasip1 GOARCH=wasm go build -o shout.wasm .
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
// # Without Quern
//
// The package speaks to its host by standard input, standard output, standard error, the exit
// status and a few environment variables, and by nothing else. So the same program runs on the
// developer's own machine: go run . < input > result
package sdk

import (
	"context"
	"errors"
	"io"
	"os"
	"strconv"
)

// Handler turns one task's input into its result. The result may be nil: an empty one.
//
// A handler is called once in the life of its process: every task gets a fresh one, so whatever
// it leaves in memory is gone before the next task. The context is never cancelled yet: a task
// that exceeds its time limit ends without notice.
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

// Exit statuses that the host understands, from sysexits.h.
const (
	exitComplete = 0
	exitFailed   = 1
	exitDataErr  = 65
	exitTempFail = 75
)

// Handle runs the handler on the task of this process and exits with what became of it. It does
// not return, so it is the last call of main.
func Handle(handler Handler) {
	os.Exit(run(handler, os.Stdin, os.Stdout, os.Stderr, os.Getenv))
}

// run is Handle without the process: it returns the exit status.
func run(handler Handler, stdin io.Reader, stdout, stderr io.Writer, getenv func(string) string) int {
	input, err := io.ReadAll(stdin)
	if err != nil {
		return report(stderr, "read the task's input: ", err)
	}
	result, err := handler(context.Background(), newTask(input, getenv))
	if err != nil {
		return report(stderr, "", err)
	}
	if _, err := stdout.Write(result); err != nil {
		return report(stderr, "write the task's result: ", err)
	}
	return exitComplete
}

// newTask reads the task's description from the environment. A number that is missing or makes
// no sense counts as not said: a handler run by hand, without any of them, is a first attempt.
func newTask(input []byte, getenv func(string) string) *Task {
	return &Task{
		ID:          getenv("TASK_ID"),
		Queue:       getenv("TASK_QUEUE"),
		Tenant:      getenv("TASK_TENANT"),
		Plugin:      getenv("TASK_PLUGIN"),
		Attempt:     positive(getenv("TASK_ATTEMPT"), 1),
		MaxAttempts: positive(getenv("TASK_MAX_ATTEMPTS"), 0),
		Input:       input,
	}
}

// positive reads a number from 1 up, and settles for another where there is none.
func positive(s string, otherwise int) int {
	if n, err := strconv.Atoi(s); err == nil && n > 0 {
		return n
	}
	return otherwise
}

// report writes the error as the last line of the task's log, from where the host takes it, behind it
// what else the host is to read, and returns the exit status that the error asks for. The error of the
// report itself has nowhere to go.
func report(stderr io.Writer, doing string, err error) int {
	text, status := doing+err.Error()+"\n", exitFailed
	if o, ok := errors.AsType[outcome](err); ok {
		text, status = text+o.lastWords(), o.exitStatus()
	}
	_, _ = io.WriteString(stderr, text)
	return status
}
