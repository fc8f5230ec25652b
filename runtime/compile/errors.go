package compile

import "errors"

var (
	// ErrClosed is returned by a Cache that was closed.
	ErrClosed = errors.New("runtime is closed")
	// ErrCompiler is wrapped by the error of Open if the compiler computes wrongly or does not run.
	ErrCompiler = errors.New("WebAssembly engine refused")
	// ErrDirectory is wrapped by every error about a cache directory that cannot be trusted.
	ErrDirectory = errors.New("cache directory refused")
)

// errNoChild is wrapped by errors of a compile child that are not the module's fault.
var errNoChild = errors.New("no compile child")

// Error says why a module does not compile, and what to do about it.
type Error struct {
	Reason, Remedy string
}

// Error returns "REASON: REMEDY".
func (e *Error) Error() string { return e.Reason + ": " + e.Remedy }
