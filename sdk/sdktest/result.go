package sdktest

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/quern-project/quern/sdk"
)

// Outcome says what becomes of a task after a run.
type Outcome string

// The outcomes.
const (
	Complete Outcome = "complete" // the task has its result
	Failed   Outcome = "failed"   // the attempt has failed; the task is tried again if its retry policy says so
	Retry    Outcome = "retry"    // the task is tried again later
	Fatal    Outcome = "fatal"    // the task has failed for good
	Panicked Outcome = "panicked" // the handler has panicked; otherwise like Failed
)

// outcomes are the outcomes by the value that quern_handle returns.
var outcomes = map[int]Outcome{0: Complete, 1: Failed, 75: Retry, 65: Fatal, 2: Panicked}

// Result has the outcome of a run and what the handler has done.
type Result struct {
	Outcome Outcome
	// Status is the value that quern_handle returns: 0, 1, 75, 65 or 2, in the order of the outcomes.
	Status int
	// Result is the task's result; nil if the task is not complete.
	Result []byte
	// Err is the error that the handler returned; nil if the task is complete. The text of a panic's error begins with
	// "panic: ".
	Err error
	// RetryAfter is the delay that the handler asks for, rounded up to milliseconds; 0 leaves the delay to the host.
	RetryAfter time.Duration
	// HoldKey is true if RetryAfter is for all tasks with the task's key: see sdk.RetryKeyAfter.
	HoldKey bool
	// Log has the lines that the handler wrote by sdk.Log, each with its level and its fields. After a panic, it also has
	// the stack.
	Log []string
	// Progress has all progress that the handler has reported, in order.
	Progress []Progress
	// Checkpoint is the checkpoint with which the next run of the task starts: see Task.Checkpoint. It is nil if there is
	// none.
	Checkpoint []byte
	// Enqueued are the tasks that are created.
	Enqueued []Enqueued
	// Published are the publications that are published.
	Published []Published
}

// Published is a publication of the handler.
type Published struct {
	ID, Topic string
	Payload   []byte
	// Options are the handler's.
	Options sdk.PublishOptions
}

// Enqueued is a task that the handler has enqueued.
type Enqueued struct {
	ID, Queue  string
	Parameters []byte
	// Options are the handler's.
	Options sdk.EnqueueOptions
}

// Progress is one report of progress.
type Progress struct {
	Fraction float64 // 0 to 1
	Message  string
}

// maxShown is the maximum number of bytes of a result in a test's message.
const maxShown = 1 << 10

// String returns the outcome, with its result, error and log, for a test's message.
func (r *Result) String() string {
	text := string(r.Outcome)
	switch shown := r.Result[:min(len(r.Result), maxShown)]; {
	case len(r.Result) == 0:
	case !utf8.Valid(r.Result):
		text += fmt.Sprintf(": %q", shown)
	default:
		text += ": " + strings.ToValidUTF8(string(shown), "")
	}
	if more := len(r.Result) - maxShown; more > 0 {
		text += fmt.Sprintf("… (%d more bytes)", more)
	}
	if r.Err != nil {
		text += ": " + r.Err.Error()
	}
	if r.RetryAfter > 0 {
		text += " (retry after " + r.RetryAfter.String()
		if r.HoldKey {
			text += ", all tasks with its key"
		}
		text += ")"
	}
	if len(r.Log) > 0 {
		text += "\n" + strings.Join(r.Log, "\n")
	}
	return text
}
