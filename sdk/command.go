package sdk

import (
	"context"
	"io"
	"strconv"
)

// Exit statuses for the host, from sysexits.h.
const (
	exitComplete = 0
	exitFailed   = 1
	exitPanic    = 2
	exitDataErr  = 65
	exitTempFail = 75
)

// Handle runs the handler on the task of this process and exits with its outcome. It is the last call of main.
func Handle(handler Handler) {
	if misplaced() {
		_, _ = io.WriteString(stderr(), "sdk.Handle is for main alone: "+exportName+" returns sdk.Run(handler)\n")
		exit(exitFailed)
	}
	exit(run(handler, stdin(), stdout(), stderr(), getenv))
}

// run does what Handle does, but returns the exit status.
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

// newTask reads the task's description from the environment. If a handler is run by hand, there is no description, and
// Attempt is 1.
func newTask(input []byte, getenv func(string) string) *Task {
	return &Task{
		ID:          getenv("TASK_ID"),
		Queue:       getenv("TASK_QUEUE"),
		Tenant:      getenv("TASK_TENANT"),
		Plugin:      getenv("TASK_PLUGIN"),
		Attempt:     positive(getenv("TASK_ATTEMPT"), 1),
		MaxAttempts: positive(getenv("TASK_MAX_ATTEMPTS"), 0),
		Reschedules: positive(getenv("TASK_RESCHEDULES"), 0),
		Input:       input,
	}
}

// positive parses a number of at least 1. For any other text it returns otherwise.
func positive(s string, otherwise int) int {
	if n, err := strconv.Atoi(s); err == nil && n > 0 {
		return n
	}
	return otherwise
}

// report writes the error, and after it the delay for the host, as the last lines of the task's log. It returns the
// error's exit status. An error of the write itself cannot be reported anywhere.
func report(stderr io.Writer, doing string, err error) int {
	text := doing + err.Error() + "\n"
	status, delay, key := judge(err)
	if delay > 0 {
		text += "quern:retry-after=" + delay.String()
		if key {
			text += " key"
		}
		text += "\n"
	}
	_, _ = io.WriteString(stderr, text)
	return status
}
