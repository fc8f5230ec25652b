package sdk

import "github.com/quern-project/quern/sdk/internal/guest"

// exportName is the function by which Quern calls a handler.
const exportName = "quern_handle"

// Run runs the handler on the task for which Quern has called quern_handle, and returns what that
// returns:
//
//	//go:wasmexport quern_handle
//	func Handle() int32 { return sdk.Run(shout) }
//
// See the package's description. A panic of the handler is an error like others, and its stack goes to the
// task's log; one in another goroutine ends the call at once.
//
// Outside of WebAssembly Run has its task from where [Handle] has it.
func Run(handler Handler) int32 { return runHandler(handler) }

// settler is told what becomes of a task.
type settler interface {
	Output(result []byte) error
	Fail(text string)
	RetryAfter(ms int64)
}

// settle tells what a handler has returned, and returns the exit status that this asks for.
func settle(to settler, result []byte, err error) int32 {
	if err != nil {
		return fail(to, "", err)
	}
	if err := to.Output(result); err != nil {
		return fail(to, "write the task's result: ", err)
	}
	return exitComplete
}

// fail makes the error the task's.
func fail(to settler, doing string, err error) int32 {
	to.Fail(doing + err.Error())
	status, delay := judge(err)
	if delay > 0 {
		to.RetryAfter(guest.Milliseconds(delay))
	}
	return int32(status)
}
