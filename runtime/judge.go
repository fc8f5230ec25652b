package runtime

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/quern-project/quern/runtime/abi"
	"github.com/quern-project/quern/runtime/redact"
	"github.com/quern-project/quern/runtime/units"
)

// finish returns the outcome of a run whose guest has returned.
func (r *run) finish(err error) Outcome {
	r.logs.flush()
	r.blame(r.logs.wrong)
	outcome := r.judge(err)
	if r.stage == abi.Initializing {
		outcome = startOutcome(outcome)
	}
	if outcome.Kind == HostFault {
		if words := []byte(outcome.Err.Error()); r.secrets.In(words) { // the error may contain text that the guest chose
			outcome.Err = errors.New(r.secrets.Text(words))
		}
	}
	outcome.Stderr = r.logs.end()
	outcome.Fuel, outcome.CPU = r.meter.burned, r.meter.cpu
	return outcome
}

// startOutcome returns the outcome of a call whose handler failed at its start, before it reached the task. outcome is
// that of the start.
func startOutcome(outcome Outcome) Outcome {
	switch outcome.Kind {
	case Complete, Retry, Fatal:
		outcome = Outcome{
			Kind: Failed, Code: outcome.Code,
			Message: fmt.Sprintf("the handler exited with status %d: let it return", outcome.Code),
		}
	case Cancelled, HostFault:
		return outcome
	}
	outcome.BeforeTask = true
	outcome.Message = "before its first task: " + outcome.Message
	return outcome
}

// judge returns the outcome of a call. If the host has recorded a cause, the cause decides; otherwise the guest's exit
// code, if there is one; otherwise the trap.
func (r *run) judge(err error) (outcome Outcome) {
	where, traced, during := r.where, []string(nil), ""
	if err != nil && len(where) == 0 && !r.module.answers { // frames of an interpreter say nothing to its users
		during, traced = cutImport(backtrace(err, r.module.name))
		if where = r.logs.trace.frames; len(where) == 0 {
			where = handlerFrames(traced)
		}
	}
	at := location{during: during, frames: joinFrames(where)}
	if at.frames != "" {
		if r.orAfter {
			at.frames = orAfter + at.frames
		}
		if r.logs.trace.grew {
			at.remark = "(the stack grew: endless recursion?)"
		}
	}
	switch {
	case r.cause != nil:
		r.explain(&at)
		outcome = causeOutcome(r.cause, at)
	case r.exited || err == nil:
		return r.ended(r.code)
	default:
		outcome = r.trapped(err, at)
	}
	if err == nil || outcome.Kind == HostFault {
		return outcome
	}
	if outcome.Place, outcome.Backtrace = at.frames, where; at.frames == "" {
		outcome.Backtrace = traced
		for i, frame := range outcome.Backtrace {
			outcome.Backtrace[i] = r.module.numbered(frame)
		}
	}
	return outcome
}

func (r *run) ended(code int) Outcome {
	if r.module.info.Kind == Extism && code == 0 {
		if _, said := r.abi.Error(); said {
			code = 1
		} else if !r.abi.WriteOutput() {
			return limitOutcome(r.outputExceeded(), location{}, "")
		}
	}
	switch {
	case code == 0:
		return Outcome{Kind: Complete, Output: r.output.bytes}
	case code == exitRetry:
		stderr, after, key := r.retryAfter()
		return Outcome{
			Kind: Retry, Code: code, RetryAfter: after, HoldKey: key,
			Message: r.failure("exit status 75 (try again later)", stderr),
		}
	case code == exitFatal:
		return Outcome{Kind: Fatal, Code: code, Message: r.failure("exit status 65 (failed for good)", r.logs.end())}
	case r.refused() != nil:
		return limitOutcome(r.refused(), location{}, r.said())
	default:
		stderr, after, _ := r.retryAfter()
		return Outcome{
			Kind: Failed, Code: code, RetryAfter: after, Message: r.failure(fmt.Sprintf("exit status %d", code), stderr),
		}
	}
}

// retryAfter returns the end of the log, the delay of the next attempt if the guest asks for one, and whether it is for
// all tasks with the key of this one.
func (r *run) retryAfter() (stderr string, after time.Duration, key bool) {
	if r.module.info.Kind == Command {
		return cutRetryAfter(r.logs.end())
	}
	return r.logs.end(), r.abi.RetryAfter(), r.abi.HoldKey()
}

func (r *run) trapped(err error, at location) Outcome {
	if fault, ok := errors.AsType[*faultError](err); ok {
		return faultOutcome(fault.err)
	}
	name, hint, ok := trapOf(err)
	switch {
	case !ok:
		return faultOutcome(err)
	case r.refused() != nil:
		return limitOutcome(r.refused(), at, "")
	default:
		what := name + " (" + hint + ")"
		if r.logs.trace.crashed && r.said() == "" {
			what = headline(r.logs.end()) // Go's runtime says why it traps
		} else {
			what = r.describe(what, r.logs.end())
		}
		return Outcome{Kind: Trap, Trap: name, Message: located(what, at)}
	}
}

// refused returns the limit at which the host denied the guest memory or output but let it go on. It returns nil if
// nothing was denied.
func (r *run) refused() *limitError {
	asked := uint64(0)
	if r.instance != nil {
		for _, memory := range r.instance.memories {
			asked = max(asked, memory.refused)
		}
	}
	switch {
	case asked > 0:
		return r.limits.Remedies.memoryExceeded(r.limits.Memory, int64(asked))
	case r.output.refused > 0:
		return r.outputExceeded()
	default:
		return nil
	}
}

func (r *run) outputExceeded() *limitError {
	size := units.FormatSize(r.output.refused)
	if r.output.refused >= 1<<20 {
		size = wholeMiB(r.output.refused)
	}
	return r.limits.Remedies.sizeExceeded("output", r.limits.Output, "output limit of %s reached by "+size)
}

// failure returns the message of a call that failed with an exit status: the text of error_set, else the status and the
// headline of stderr. Lists show the first line alone. So if that does not say what was denied, failure adds it there.
func (r *run) failure(status, stderr string) string {
	text := r.said()
	if text == "" {
		text = r.describe(status, stderr)
	}
	denial := r.abi.Denial()
	first, more, found := strings.Cut(text, "\n")
	_, why, _ := strings.Cut(denial, "denied: ")
	if denial != "" && !strings.Contains(first, why) {
		first += "; " + redact.Shorten(denial, maxHeadline)
	}
	if found {
		first += "\n" + more
	}
	return first
}

// describe appends the guest's own error message to the text what. The message is the text of error_set, which can have
// several lines, or else the headline of stderr.
func (r *run) describe(what, stderr string) string {
	if text := cmp.Or(r.said(), headline(stderr)); text != "" {
		what += ": " + text
	}
	return what
}

// said returns the text of error_set, "" if there is none.
func (r *run) said() string {
	said, _ := r.abi.Error()
	return strings.TrimSpace(redact.Prefix(r.secrets.Lines(r.secrets.Head([]byte(said), maxError)), maxError))
}

// maxError is the maximum length of the escaped text of error_set. maxHeadline is that of a line of the guest that a
// message quotes. Both are in bytes.
const (
	maxError    = 4 << 10
	maxHeadline = 400
)

// headline returns the first line of a Go panic or fatal error. If there is none, it returns the last line of stderr
// that is neither blank nor a note of Rust's runtime.
func headline(stderr string) string {
	last := ""
	for line := range strings.Lines(stderr) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") { // Go
			last = line
			break
		}
		if line != "" && !strings.HasPrefix(line, "note: ") { // Rust's advice on RUST_BACKTRACE
			last = line
		}
	}
	return redact.Shorten(last, maxHeadline)
}

// brief shortens a message for the log to its first line, of at most maxHeadline bytes.
func brief(message string) string {
	first, _, more := strings.Cut(message, "\n")
	if cut := redact.Prefix(first, maxHeadline); more || len(cut) < len(first) {
		return cut + "…"
	}
	return first
}
