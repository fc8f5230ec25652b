package queue

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// Reason is the kind of a failure.
type Reason string

// The reasons for which a task fails.
const (
	ReasonError     Reason = "error"     // the handler returned an error
	ReasonTrap      Reason = "trap"      // the WebAssembly program crashed
	ReasonTimeout   Reason = "timeout"   // the attempt took longer than its timeout
	ReasonCPU       Reason = "cpu"       // the attempt used up its computing budget
	ReasonMemory    Reason = "memory"    // the handler asked for more memory than its limit
	ReasonOutput    Reason = "output"    // the result or the log was longer than its limit
	ReasonCrashed   Reason = "crashed"   // the host died while the task ran, too often
	ReasonExhausted Reason = "exhausted" // all attempts or reschedules are used up
	ReasonExpired   Reason = "expired"   // the task waited past its maximum age or deadline
	ReasonCancelled Reason = "cancelled" // somebody cancelled the task
	ReasonRejected  Reason = "rejected"  // listeners rejected the task too often
	// ReasonDependency means that the task never ran, because its dependencies did not end as its When asks.
	ReasonDependency Reason = "dependency"
)

// maxFailureText is the maximum size of each text in an encoded Failure, in bytes. The message can be maxFailureHead
// bytes longer, because hosts and queues put text in front of the handler's error.
const (
	maxFailureText = 4 << 10
	maxFailureHead = 512
)

// maxHeadline is the maximum size of a Failure's headline, in bytes.
const maxHeadline = 400

// maxFrames is the maximum number of functions in an encoded backtrace, and maxFrameText the maximum size of each, in
// bytes.
const (
	maxFrames    = 32
	maxFrameText = 256
)

// Failure describes why a task failed. It is stored as JSON in the task's hash.
type Failure struct {
	Reason   Reason `json:"reason"`
	Message  string `json:"message"`             // for people; its first line says what happened
	ExitCode *int   `json:"exit_code,omitempty"` // the handler's exit code
	Limit    string `json:"limit,omitempty"`     // the limit that was exceeded: its name and value
	// RetryAfter is the delay in seconds that the handler asked for (default: none).
	RetryAfter float64  `json:"retry_after,omitempty"`
	Stderr     string   `json:"stderr,omitempty"`    // the end of the handler's output on stderr
	Backtrace  []string `json:"backtrace,omitempty"` // the call stack of a trap, innermost function first
}

// Lines returns the lines of the message that have text. The first one says what happened: a line that ends in a colon,
// such as "Error:", goes on with the next one.
func (f *Failure) Lines() []string {
	lines := []string{""}
	for line := range strings.SplitSeq(f.Message, "\n") {
		line = strings.TrimRight(line, " \t\r")
		switch last := &lines[len(lines)-1]; {
		case line == "":
		case *last == "":
			*last = strings.TrimLeft(line, " \t\r")
		case len(lines) == 1 && strings.HasSuffix(*last, ":"):
			*last += " " + strings.TrimLeft(line, " \t\r")
		default:
			lines = append(lines, line)
		}
	}
	return lines
}

// Headline returns the first of the Lines, cut to maxHeadline bytes. It ends in … if it is not the whole message.
func (f *Failure) Headline() string {
	lines := f.Lines()
	if cut := store.Head(lines[0], maxHeadline); len(lines) > 1 || len(cut) < len(lines[0]) {
		return cut + "…"
	}
	return lines[0]
}

// String returns the reason and the whole message, such as "(fatal) no items". It returns "no failure" if there is no
// reason.
func (f Failure) String() string {
	if f.Reason == "" {
		return "no failure"
	}
	return fmt.Sprintf("(%s) %s", f.Word(), f.Message)
}

// Word returns the reason as people read it: an error after which the handler wants no other attempt is "fatal", and one
// after which it wants to run again "retry". These are exit codes of sysexits.h.
func (f *Failure) Word() string {
	if f.Reason == ReasonError && f.ExitCode != nil {
		switch *f.ExitCode {
		case 65:
			return "fatal"
		case 75:
			return "retry"
		}
	}
	return string(f.Reason)
}

// reasons lists the reasons that this package defines. Counters and metrics have one value for each.
var reasons = []Reason{
	ReasonError, ReasonTrap, ReasonTimeout, ReasonCPU, ReasonMemory, ReasonOutput, ReasonCrashed, ReasonExhausted,
	ReasonExpired, ReasonCancelled, ReasonRejected, ReasonDependency,
}

// Reasons lists all reasons for which a task can fail.
func Reasons() []Reason { return slices.Clone(reasons) }

// Why returns the failure's reason, or ReasonError if this package does not define that reason.
func (f *Failure) Why() Reason {
	if slices.Contains(reasons, f.Reason) {
		return f.Reason
	}
	return ReasonError
}

// Encode returns the failure as UTF-8 JSON, with texts cut to their maximum size.
func (f *Failure) Encode() []byte {
	bounded := *f
	bounded.Reason = f.Why()
	bounded.Message = store.Head(store.ValidText(f.Message), maxFailureHead+maxFailureText)
	bounded.Stderr = store.Tail(store.ValidText(f.Stderr), maxFailureText)
	bounded.Backtrace = nil
	for _, frame := range f.Backtrace[:min(len(f.Backtrace), maxFrames)] {
		bounded.Backtrace = append(bounded.Backtrace, store.Head(store.ValidText(frame), maxFrameText))
	}
	text, _ := json.Marshal(bounded) // texts and numbers can always be encoded
	return text
}

// ParseFailure reads the field `error` of a task's hash. The plain text of a Python processor becomes the message of a
// failure with ReasonError.
func ParseFailure(text string) Failure {
	var f Failure
	if err := json.Unmarshal([]byte(text), &f); err != nil || f.Reason == "" {
		f = Failure{Reason: ReasonError, Message: text}
	}
	return f
}
