package queue

import (
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"
)

// maxFailureText bounds each text of a Failure that is stored, in bytes.
const maxFailureText = 4 << 10

// maxFrames and maxFrameText bound a backtrace: functions, and bytes of each.
const (
	maxFrames    = 32
	maxFrameText = 256
)

// Failure says why a task failed; the hash holds it as JSON, what does not apply left out.
type Failure struct {
	Reason   Reason `json:"reason"`
	Message  string `json:"message"`             // one line for people
	ExitCode *int   `json:"exit_code,omitempty"` // what the handler exited with
	Limit    string `json:"limit,omitempty"`     // the limit that was passed: its name and value
	Stderr   string `json:"stderr,omitempty"`    // the end of what it wrote to stderr
	// Backtrace of a trap, innermost function first.
	Backtrace []string `json:"backtrace,omitempty"`
}

// reasons are all that a task may fail for: counters and metrics are kept by them.
var reasons = []Reason{
	ReasonError, ReasonTrap, ReasonTimeout, ReasonCPU, ReasonMemory, ReasonOutput, ReasonCrashed, ReasonExhausted,
	ReasonExpired, ReasonCancelled, ReasonRejected, ReasonDamaged,
}

// reason is the failure's reason, ReasonError for one that is none of the package's.
func (f *Failure) reason() Reason {
	if slices.Contains(reasons, f.Reason) {
		return f.Reason
	}
	return ReasonError
}

// encode writes the failure as UTF-8 JSON with bounded texts.
func (f *Failure) encode() []byte {
	bounded := *f
	bounded.Reason = f.reason()
	bounded.Message = head(validText(f.Message), maxFailureText)
	bounded.Stderr = tail(validText(f.Stderr), maxFailureText)
	bounded.Backtrace = nil
	for _, frame := range f.Backtrace[:min(len(f.Backtrace), maxFrames)] {
		bounded.Backtrace = append(bounded.Backtrace, head(validText(frame), maxFrameText))
	}
	text, _ := json.Marshal(bounded) // texts and numbers always can be
	return text
}

// Failure reads the task's error. What a Python processor wrote becomes the message of a plain one.
func (t *Task) Failure() Failure {
	f := parseFailure(t.Error)
	if f.Message == t.Error && t.Reason != "" {
		f.Reason = t.Reason
	}
	return f
}

func parseFailure(text string) Failure {
	var f Failure
	if err := json.Unmarshal([]byte(text), &f); err != nil || f.Reason == "" {
		f = Failure{Reason: ReasonError, Message: text}
	}
	return f
}

// validText makes text that is not UTF-8 readable: what Redis holds for people always is.
func validText(text string) string { return strings.ToValidUTF8(text, "\ufffd") }

// head and tail cut text to at most n bytes at a character's edge.
func head(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

func tail(text string, n int) string {
	if len(text) <= n {
		return text
	}
	from := len(text) - n
	for from < len(text) && !utf8.RuneStart(text[from]) {
		from++
	}
	return text[from:]
}
