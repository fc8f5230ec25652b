package sdk

import (
	"strings"

	"github.com/quern-project/quern/sdk/internal/guest"
)

// exportName is the name of the export that Quern calls.
const exportName = "quern_handle"

// Run runs the handler on the current task and returns the result of the export quern_handle:
//
//	//go:wasmexport quern_handle
//	func Handle() int32 { return sdk.Run(shout) }
//
// See the package comment. A panic of the handler becomes an error, with its stack in the task's log. A panic in
// another goroutine ends the call at once.
//
// Outside of WebAssembly, Run reads its task as [Handle] does.
func Run(handler Handler) int32 { return runHandler(handler) }

// The numbers of the fields for task_text and task_number.
const (
	textID = iota
	textQueue
	textTenant
	textPlugin
	textPreviousError
	textParent
	textKey
	textTraceparent
	textHeaders
	textDependencies

	numberAttempt     = 0
	numberMaxAttempts = 1
	numberDeadline    = 2
	numberReschedules = 4
)

// describedTask makes a Task from its ID, its input and the host's description of it.
func describedTask(id string, input []byte) Task {
	return Task{
		ID:          id,
		Queue:       services().TaskText(textQueue),
		Tenant:      services().TaskText(textTenant),
		Plugin:      services().TaskText(textPlugin),
		Attempt:     max(1, int(services().TaskNumber(numberAttempt))),
		MaxAttempts: max(0, int(services().TaskNumber(numberMaxAttempts))),
		Reschedules: max(0, int(services().TaskNumber(numberReschedules))),
		Input:       input,
	}
}

// impossible says what errors of Go's packages for WASI mean. Other systems write them in lower case.
var impossible = [...]struct{ text, why string }{
	{": Connection refused", noSockets},
	{": Connection reset by peer", noSockets}, // of a name server
	{": Bad file number", "a plugin has no files but those of capabilities.files, for reading"},
	{": executable file not found in $PATH", "a plugin starts no programs"},
}

const noSockets = "a plugin has no sockets: use github.com/quern-project/quern/sdk/fetch, with capabilities.http in " +
	"the manifest"

// hinted appends to an error what it means in a plugin, if Go's text of it misleads.
func hinted(text string) string {
	for _, one := range impossible {
		if strings.Contains(text, one.text) {
			return text + ": " + one.why
		}
	}
	return text
}

// settler reports the outcome of a task to the host.
type settler interface {
	Output(result []byte) error
	Fail(text string)
	RetryAfter(ms int64) // below 0: the delay -ms of all tasks with the task's key
}

// settle reports a handler's result or error to the host, and returns the exit status.
func settle(to settler, result []byte, err error) int32 {
	if err != nil {
		return fail(to, "", err)
	}
	if err := to.Output(result); err != nil {
		return fail(to, "write the task's result: ", err)
	}
	return exitComplete
}

// fail reports an error to the host, with doing before its text, and returns its exit status.
func fail(to settler, doing string, err error) int32 {
	to.Fail(hinted(doing + err.Error()))
	status, delay, key := judge(err)
	ms := guest.Milliseconds(delay)
	if key {
		ms = -ms
	}
	if delay > 0 {
		to.RetryAfter(ms)
	}
	return int32(status)
}
