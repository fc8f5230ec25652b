package runtime

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/quern-project/quern/runtime/abi"
	"github.com/quern-project/quern/runtime/redact"
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
	switch {
	case r.cause != nil:
		outcome = r.located(causeOutcome(r.cause))
	case r.exited || err == nil:
		return r.ended(r.code)
	default:
		if fault, ok := errors.AsType[*faultError](err); ok {
			return faultOutcome(fault.err)
		}
		outcome = r.trapped(err)
	}
	if err != nil && (outcome.Kind == LimitExceeded || outcome.Kind == Trap) {
		outcome.Backtrace = backtrace(err, r.module.name)
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
			return limitOutcome(r.outputExceeded())
		}
	}
	switch {
	case code == 0:
		return Outcome{Kind: Complete, Output: r.output.bytes}
	case code == exitRetry:
		stderr, after := r.logs.end(), r.abi.RetryAfter()
		if r.module.info.Kind == Command {
			stderr, after = cutRetryAfter(stderr)
		}
		return Outcome{
			Kind: Retry, Code: code, RetryAfter: after,
			Message: r.describe("exit status 75 (try again later)", stderr),
		}
	case code == exitFatal:
		return Outcome{Kind: Fatal, Code: code, Message: r.describe("exit status 65 (failed for good)", r.logs.end())}
	case r.refused() != nil:
		return r.located(limitOutcome(r.refused()))
	default:
		return Outcome{Kind: Failed, Code: code, Message: r.describe(fmt.Sprintf("exit status %d", code), r.logs.end())}
	}
}

// located appends what a guest that ran into a limit has said with error_set, such as where in its source it was.
func (r *run) located(outcome Outcome) Outcome {
	if name := outcome.Limit.Name; name == "memory" || name == "timeout" || name == "cpu" {
		outcome.Message = r.describe(outcome.Message, "")
	}
	return outcome
}

func (r *run) trapped(err error) Outcome {
	name, hint, ok := trapOf(err)
	switch {
	case !ok:
		return faultOutcome(err)
	case r.refused() != nil:
		return limitOutcome(r.refused())
	default:
		return Outcome{Kind: Trap, Trap: name, Message: r.describe("trap: "+name+" ("+hint+")", r.logs.end())}
	}
}

// refused returns the limit at which the host denied the guest memory or output but let it go on. It returns nil if
// nothing was denied.
func (r *run) refused() *limitError {
	switch {
	case r.instance != nil && slices.ContainsFunc(r.instance.memories, func(m *memory) bool { return m.refused }):
		return memoryExceeded(r.limits.Memory)
	case r.output.refused:
		return r.outputExceeded()
	default:
		return nil
	}
}

func (r *run) outputExceeded() *limitError {
	return sizeExceeded("output", r.limits.Output, "output limit of %s reached")
}

// describe appends the guest's own error message to the text what. The message is the text of error_set, which can have
// several lines, or else the headline of stderr.
func (r *run) describe(what, stderr string) string {
	var text string
	if said, ok := r.abi.Error(); ok {
		text = strings.TrimSpace(redact.Prefix(r.secrets.Lines(r.secrets.Head([]byte(said), maxError)), maxError))
	}
	if text = cmp.Or(text, headline(stderr)); text != "" {
		what += ": " + text
	}
	return what
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
