package runtime

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/quern-project/quern/runtime/units"
)

// OutcomeKind says how a call ended. The host alone decides what becomes of the task.
type OutcomeKind string

// The ways in which a call can end. A handler's result counts as its exit code. The first cause wins: once the host has
// stopped the guest, no exit code or trap counts.
const (
	// Complete means that the guest exited with 0, or that a command returned. Only a complete call has an Output.
	Complete OutcomeKind = "complete"
	// Retry means that the guest exited with 75 (EX_TEMPFAIL) and asks to be called again later.
	Retry OutcomeKind = "retry"
	// Fatal means that the guest exited with 65 (EX_DATAERR): another attempt would fail as well.
	Fatal OutcomeKind = "fatal"
	// Failed means that the guest exited with any other code.
	Failed OutcomeKind = "failed"
	// Trap means that the guest did something that WebAssembly forbids, or aborted.
	Trap OutcomeKind = "trap"
	// LimitExceeded means that the host stopped the guest at one of the call's limits, or that the guest failed after the
	// host had denied it memory or output.
	LimitExceeded OutcomeKind = "limit"
	// Cancelled means that the context of Run ended first.
	Cancelled OutcomeKind = "cancelled"
	// HostFault means that the host itself failed. The guest is not to blame, and does not learn the cause.
	HostFault OutcomeKind = "host_fault"
)

// The exit codes of sysexits.h that mean more than "failed".
const (
	exitRetry = 75
	exitFatal = 65
)

// Outcome describes how a call ended. Run returns no error in addition to it.
type Outcome struct {
	Kind OutcomeKind
	// Code is the guest's exit code, for Complete, Retry, Fatal and Failed.
	Code int
	// BeforeTask is true if a handler failed at its start, before its task began.
	BeforeTask bool
	// Limit is the limit that the call exceeded, for LimitExceeded.
	Limit Limit
	// Trap names the trap, for Trap: "unreachable", "integer divide by zero" and so on.
	Trap string
	// Backtrace lists the functions in which the guest was stopped by a trap, a limit or the end of
	// the context, innermost first. A function is
	// written by its name if the module has names, else as $ and its index. Backtrace has at most 32 entries of at most
	// 256 bytes; the last one is "…" if there may be more. After a stack overflow, Backtrace is empty. An interpreter
	// that exports quern_where names the functions of its handler instead, such as "handler.py:7 in handle".
	Backtrace []string
	// Place is where an interpreter that exports quern_where was stopped, as the Message tells it: its first frames in
	// one line. Default "": the guest was not stopped, or does not tell.
	Place string
	// RetryAfter is the delay that the guest asks for, for Retry and Failed; 0 if it asks for none. A command asks by the
	// last line of stderr, such as quern:retry-after=30s. The value is a duration of Go or a number of seconds, of at most
	// a year. That line is also in Stderr, but Message quotes the line before it.
	RetryAfter time.Duration
	// HoldKey is true for Retry if RetryAfter is for all tasks of the queue with the key of this one. A command asks by
	// the word key behind the delay: quern:retry-after=30s key.
	HoldKey bool
	// Message is for people. Its first line says what happened; more lines of the guest's own error can follow. It is
	// empty for Complete.
	Message string
	// Stderr is the end of the guest's log, at most 4 KiB, sanitized like the log: what it wrote to stderr, and for a
	// handler also stdout and the lines that it logged by a function.
	Stderr string
	// Output is what a command wrote to stdout, or the output that a handler has set. Only a Complete call has it. The
	// caller owns it.
	Output []byte
	// Fuel is the fuel that the guest burned: about one unit for each instruction, and a price for each host call. It is
	// the same on every machine, unless the guest, or its language's runtime, uses clocks or random numbers.
	Fuel int64
	// CPU is the processor time of the guest and of its host calls. On systems other than Linux, it is the wall-clock
	// time without waits.
	CPU time.Duration
	// GuestTime is the wall-clock time from the call's turn to the guest's end, without WaitTime. Making a new instance
	// is part of it.
	GuestTime time.Duration
	// WaitTime is the wall-clock time for which the guest slept, or waited for a service of the host and then for its
	// next turn.
	WaitTime time.Duration
	// Err is the cause of a HostFault or of Cancelled, for the host's own log only.
	Err error
}

// limitOutcome returns the outcome of a call that exceeded a limit. For at and said see limitError.message.
func limitOutcome(e *limitError, at location, said string) Outcome {
	return Outcome{Kind: LimitExceeded, Limit: e.limit, Message: e.message(at, said)}
}

// located adds the place where the guest was stopped, if it is known, to a message about what is no limit.
func located(what string, at location) string {
	text, _ := strings.CutPrefix(at.String(), "at ")
	if text == "" {
		return what
	}
	return what + " [" + text + "]"
}

func faultOutcome(err error) Outcome {
	return Outcome{Kind: HostFault, Message: "internal error", Err: err}
}

// causeOutcome returns the outcome of a call that the host or its caller has ended. at is where the guest was stopped.
func causeOutcome(cause error, at location) Outcome {
	if fault, ok := errors.AsType[*faultError](cause); ok {
		return faultOutcome(fault.err)
	}
	if limit, ok := errors.AsType[*limitError](cause); ok {
		return limitOutcome(limit, at, "")
	}
	return Outcome{Kind: Cancelled, Message: located("cancelled: "+cause.Error(), at), Err: cause}
}

// errorOutcome returns the outcome of a call that failed by an error of the host, or by the end of ctx.
func errorOutcome(ctx context.Context, err error) *Outcome {
	outcome := faultOutcome(err)
	if ctx.Err() != nil {
		outcome = causeOutcome(context.Cause(ctx), location{})
	}
	return &outcome
}

// InputExceeded returns the outcome of a call whose input of size bytes exceeds the limit. It serves callers that know
// the size before they have the input.
func InputExceeded(limits Limits, size int64) Outcome {
	return limitOutcome(limits.Remedies.sizeExceeded("input", limits.WithDefaults().Input,
		"input of "+units.FormatSize(size)+" is over the input limit of %s"), location{}, "")
}
