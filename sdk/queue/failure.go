package queue

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// Reason is the finer cause of a failure.
type Reason string

// The reasons a task fails for.
const (
	ReasonError     Reason = "error"     // the handler said so
	ReasonTrap      Reason = "trap"      // the WebAssembly program crashed
	ReasonTimeout   Reason = "timeout"   // its time was over
	ReasonCPU       Reason = "cpu"       // its computing budget was over
	ReasonMemory    Reason = "memory"    // it asked for more memory than it may have
	ReasonOutput    Reason = "output"    // its result or log was longer than it may be
	ReasonCrashed   Reason = "crashed"   // its host died too often
	ReasonExhausted Reason = "exhausted" // its attempts are used up
	ReasonExpired   Reason = "expired"   // it waited for too long, or its deadline is over
	ReasonCancelled Reason = "cancelled" // somebody cancelled it
	ReasonRejected  Reason = "rejected"  // no host would have it
	// ReasonDependency: it never ran, because a task that it waited for failed.
	ReasonDependency Reason = "dependency"
)

// maxFailureText bounds each text of a Failure that is stored, in bytes. What hosts and queues say before a handler's error in
// the message comes on top.
const (
	maxFailureText = 4 << 10
	maxFailureHead = 512
)

// maxHeadline bounds a Failure's headline, in bytes.
const maxHeadline = 400

// maxFrames and maxFrameText bound a backtrace: functions, and bytes of each.
const (
	maxFrames    = 32
	maxFrameText = 256
)

// Failure is why a task failed, stored as JSON in the task's hash.
type Failure struct {
	Reason    Reason   `json:"reason"`
	Message   string   `json:"message"`             // for people; its first line says what happened
	ExitCode  *int     `json:"exit_code,omitempty"` // what the handler exited with
	Limit     string   `json:"limit,omitempty"`     // the limit that was passed: its name and value
	Stderr    string   `json:"stderr,omitempty"`    // the end of what it wrote to stderr
	Backtrace []string `json:"backtrace,omitempty"` // of a trap, innermost function first
}

// Headline is the first line of the message, or its beginning.
func (f *Failure) Headline() string {
	first, _, more := strings.Cut(f.Message, "\n")
	if cut := store.Head(first, maxHeadline); more || len(cut) < len(first) {
		return cut + "…"
	}
	return first
}

// reasons are all that a task may fail for: counters and metrics are kept by them.
var reasons = []Reason{
	ReasonError, ReasonTrap, ReasonTimeout, ReasonCPU, ReasonMemory, ReasonOutput, ReasonCrashed, ReasonExhausted,
	ReasonExpired, ReasonCancelled, ReasonRejected, ReasonDependency,
}

// Reasons are all that a task may fail for.
func Reasons() []Reason { return slices.Clone(reasons) }

// Why is the failure's reason, ReasonError for one that is none of the package's.
func (f *Failure) Why() Reason {
	if slices.Contains(reasons, f.Reason) {
		return f.Reason
	}
	return ReasonError
}

// Encode writes the failure as UTF-8 JSON with bounded texts.
func (f *Failure) Encode() []byte {
	bounded := *f
	bounded.Reason = f.Why()
	bounded.Message = store.Head(store.ValidText(f.Message), maxFailureHead+maxFailureText)
	bounded.Stderr = store.Tail(store.ValidText(f.Stderr), maxFailureText)
	bounded.Backtrace = nil
	for _, frame := range f.Backtrace[:min(len(f.Backtrace), maxFrames)] {
		bounded.Backtrace = append(bounded.Backtrace, store.Head(store.ValidText(frame), maxFrameText))
	}
	text, _ := json.Marshal(bounded) // texts and numbers always can be
	return text
}

// ParseFailure reads an error field; what a Python processor wrote becomes the message of a ReasonError.
func ParseFailure(text string) Failure {
	var f Failure
	if err := json.Unmarshal([]byte(text), &f); err != nil || f.Reason == "" {
		f = Failure{Reason: ReasonError, Message: text}
	}
	return f
}
