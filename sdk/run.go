package sdk

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
