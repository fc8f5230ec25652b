package sdk

import "os"

// exportName is the function by which Quern calls a handler.
const exportName = "quern_handle"

// Run runs the handler on the task for which Quern has called quern_handle, and returns what that
// returns:
//
//	//go:wasmexport quern_handle
//	func handle() int32 { return sdk.Run(shout) }
//
// See the package's description. A panic of the handler is an error like others, with the stack in the
// task's log; one of another goroutine ends the call at once.
//
// Outside of WebAssembly Run is [Handle] without the exit.
func Run(handler Handler) int32 { return runHandler(recovering(handler, os.Stderr)) }
