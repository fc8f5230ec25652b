package runtime

import "time"

// OutcomeKind says how a call ended. What becomes of the task is decided by the host alone.
type OutcomeKind string

// The ways in which a call ends. The first cause wins: once a limit, the context or a fault of the
// host has stopped the guest, no exit code and no trap that follows is looked at.
const (
	// Complete: the guest returned from _start or exited with 0. Only then is there an Output.
	Complete OutcomeKind = "complete"
	// Retry: the guest exited with 75 (EX_TEMPFAIL) and asks to be called again later.
	Retry OutcomeKind = "retry"
	// Fatal: the guest exited with 65 (EX_DATAERR); another attempt would fail as well.
	Fatal OutcomeKind = "fatal"
	// Failed: the guest exited with any other code.
	Failed OutcomeKind = "failed"
	// Trap: the guest did what WebAssembly forbids, or aborted.
	Trap OutcomeKind = "trap"
	// LimitExceeded: the host stopped the guest at one of the call's limits.
	LimitExceeded OutcomeKind = "limit"
	// Cancelled: the context that Run was given ended first.
	Cancelled OutcomeKind = "cancelled"
	// HostFault: the host itself erred. The guest is not to blame, and is told nothing of the cause.
	HostFault OutcomeKind = "host_fault"
)

// The exit codes of sysexits.h that mean more than "failed".
const (
	exitRetry = 75
	exitFatal = 65
)

// Outcome is the end of one call, told completely: Run returns no error beside it.
type Outcome struct {
	Kind OutcomeKind
	// Code is the guest's exit code, for Complete, Retry, Fatal and Failed.
	Code int
	// Limit is set for LimitExceeded.
	Limit Limit
	// Trap names the trap, for Trap: "unreachable", "integer divide by zero" and so on.
	Trap string
	// Backtrace lists the functions of the guest in which it trapped, innermost first: by name where the
	// module has names, else as $ and their index. It has at most 32 entries of at most 256 bytes, the
	// last being "…" if more may follow. It is set for Trap, and for a limit at
	// which the guest was stopped in the middle; a stack overflow has none.
	Backtrace []string
	// RetryAfter is when the guest wants to be called again, for Retry; 0 if it does not say. It says so
	// by the last line of its log, such as quern:retry-after=30s: a duration of Go, or a number of
	// seconds. One that is negative or over a year is a line like any other. The line is logged and
	// stands in Stderr, but Message tells the one before.
	RetryAfter time.Duration
	// Message says in one line what happened, for people. It is empty when Complete.
	Message string
	// Stderr is the end of what the guest wrote to stderr, at most 4 KiB, sanitized like the log.
	Stderr string
	// Output is what the guest wrote to stdout, only when Complete. The caller owns it.
	Output []byte
	// Fuel is what the guest burned: one unit for about each instruction that it executed, and a price for
	// what the host did for it. It depends on the module and its input, not on the machine; what a guest does
	// by clocks and random numbers, as the runtimes of some languages do, differs from run to run.
	Fuel int64
	// CPU is the processor time that the call took, in the guest and in the host's functions for it; where the
	// system is not Linux, the time without waits.
	CPU time.Duration
	// GuestTime is the wall-clock time from the making of the instance to its end, without WaitTime.
	GuestTime time.Duration
	// WaitTime is the wall-clock time for which the guest slept, or waited for a service of the host or for its next turn
	// after that.
	WaitTime time.Duration
	// Err is the cause of a HostFault or of Cancelled, for the host's own log only.
	Err error
}

func limitOutcome(e *limitError) Outcome {
	return Outcome{Kind: LimitExceeded, Limit: e.limit, Message: e.message}
}

func cancelledOutcome(cause error) Outcome {
	return Outcome{Kind: Cancelled, Message: "cancelled: " + cause.Error(), Err: cause}
}

func faultOutcome(err error) Outcome {
	return Outcome{Kind: HostFault, Message: "internal error", Err: err}
}

// InputExceeded is the outcome of a call whose input of size bytes exceeds the limit, for callers that know the size before
// they have the input.
func InputExceeded(limits Limits, size int64) Outcome {
	return limitOutcome(inputExceeded(limits.WithDefaults().Input, size))
}
