package runtime

import (
	"errors"
	"fmt"
	"strings"

	"github.com/quern-project/quern/runtime/abi"
)

// finish is the outcome of a run whose guest has returned.
func (r *run) finish(err error) Outcome {
	if wrong := r.logs.flush(); wrong != nil {
		r.blame(wrong)
	}
	outcome := r.judge(err)
	if r.stage == abi.Initializing {
		outcome = startOutcome(r.module.info.Kind, outcome)
	}
	if outcome.Kind == HostFault {
		if words := []byte(outcome.Err.Error()); r.secrets.In(words) { // the guest may have chosen some
			outcome.Err = errors.New(r.secrets.Text(words))
		}
	}
	outcome.Stderr = r.logs.end()
	outcome.Fuel, outcome.CPU = r.meter.burned, r.meter.cpu
	return outcome
}

// startOutcome is the outcome of a call whose guest did not reach its task.
func startOutcome(kind Kind, outcome Outcome) Outcome {
	switch outcome.Kind {
	case Complete, Retry, Fatal:
		outcome = Outcome{Kind: Failed, Code: outcome.Code, Message: fmt.Sprintf("the handler exited with status %d: let it return", outcome.Code)}
	case Cancelled, HostFault:
		return outcome
	}
	where := initialize
	if kind == Command {
		where = "start section"
	}
	outcome.Message = "before its first task (" + where + "): " + outcome.Message
	return outcome
}

// judge turns what ended a call into its outcome. The first cause wins: if the host has ended the guest,
// that is the outcome; then what the guest said by its exit code, and only then a trap.
func (r *run) judge(err error) Outcome {
	if r.cause == nil && (r.exited || err == nil) {
		return r.ended(r.code)
	}
	var (
		fault *faultError
		limit *limitError
	)
	switch {
	case errors.As(r.cause, &fault):
		return faultOutcome(fault.err)
	case errors.As(r.cause, &limit):
		outcome := limitOutcome(limit)
		outcome.Backtrace = r.backtrace(err)
		return outcome
	case r.cause != nil:
		return cancelledOutcome(r.cause)
	case errors.As(err, &fault):
		return faultOutcome(fault.err)
	default:
		return r.trapped(err)
	}
}

// backtrace is where the guest was when it was ended.
func (r *run) backtrace(err error) []string {
	if err == nil {
		return nil
	}
	frames := backtrace(err, r.module.name)
	for i, frame := range frames {
		frames[i] = r.module.numbered(frame)
	}
	return frames
}

func (r *run) ended(code int) Outcome {
	switch {
	case code == 0:
		return Outcome{Kind: Complete, Output: r.output.bytes}
	case code == exitRetry:
		stderr, after := r.logs.end(), r.abi.RetryAfter()
		if r.module.info.Kind == Command {
			stderr, after = cutRetryAfter(stderr)
		}
		return Outcome{Kind: Retry, Code: code, RetryAfter: after, Message: r.describe("exit status 75 (try again later)", stderr)}
	case code == exitFatal:
		return Outcome{Kind: Fatal, Code: code, Message: r.describe("exit status 65 (failed for good)", r.logs.end())}
	case r.refused() != nil:
		return limitOutcome(r.refused())
	default:
		return Outcome{Kind: Failed, Code: code, Message: r.describe(fmt.Sprintf("exit status %d", code), r.logs.end())}
	}
}

func (r *run) trapped(err error) Outcome {
	name, hint, ok := trapOf(err)
	switch {
	case !ok:
		return faultOutcome(err)
	case r.refused() != nil:
		outcome := limitOutcome(r.refused())
		outcome.Backtrace = r.backtrace(err)
		return outcome
	default:
		return Outcome{
			Kind: Trap, Trap: name, Backtrace: r.backtrace(err),
			Message: r.describe("trap: "+name+" ("+hint+")", r.logs.end()),
		}
	}
}

// refused is the limit at which the guest was told no, and went on; nil if there is none.
func (r *run) refused() *limitError {
	switch {
	case r.instance != nil && r.instance.memory.refused:
		return memoryExceeded(r.limits.Memory)
	case r.output.refused:
		return outputReached(r.limits.Output)
	default:
		return nil
	}
}

// describe adds what the guest says of a failure itself, else the line of stderr that says most about it.
func (r *run) describe(what, stderr string) string {
	if text, said := r.abi.Error(); said {
		if line := headline(prefix(r.secrets.Text([]byte(text)), maxHeadline)); line != "" {
			return what + ": " + line
		}
	}
	if line := headline(stderr); line != "" {
		return what + ": " + line
	}
	return what
}

// maxHeadline bounds the part of a message that the guest chose.
const maxHeadline = 400

// headline finds the line of stderr to show in a message: the last one that is not blank, but for
// the runtimes whose last words are a stack trace or advice.
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
	if len(last) > maxHeadline {
		last = prefix(last, maxHeadline) + "…"
	}
	return last
}
