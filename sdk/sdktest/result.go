package sdktest

import (
	"strings"
	"time"

	"github.com/quern-project/quern/sdk"
)

// Outcome is what becomes of a task.
type Outcome string

// The outcomes.
const (
	Complete Outcome = "complete" // with the result
	Failed   Outcome = "failed"   // and is tried again if the retry policy says so
	Retry    Outcome = "retry"    // is tried again later
	Fatal    Outcome = "fatal"    // has failed for good
	Panicked Outcome = "panicked" // as Failed
)

// outcomes are those of what quern_handle returns.
var outcomes = map[int]Outcome{0: Complete, 1: Failed, 75: Retry, 65: Fatal, 2: Panicked}

// Result is what a run leaves.
type Result struct {
	Outcome Outcome
	// Status is what quern_handle returns: 0, 1, 75, 65 or 2, in the order of the outcomes.
	Status int
	// Result is the task's, if it is complete.
	Result []byte
	// Err is the error that the handler returned; nil if the task is complete. That of a panic begins with "panic: ".
	Err error
	// RetryAfter is the delay that the handler asks for, in milliseconds, rounded up; 0 leaves it to the host.
	RetryAfter time.Duration
	// Log has the lines of sdk.Log, each with its level and its fields, and after a panic its stack.
	Log []string
	// Progress is all that the handler has reported.
	Progress []Progress
	// Checkpoint is what the next run of the task starts with: see Task.Checkpoint. It is nil if there is none.
	Checkpoint []byte
	// Enqueued are the tasks that come into being.
	Enqueued []Enqueued
	// Published is what is published.
	Published []Published
}

// Published is what the handler has published.
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

// Progress is one report.
type Progress struct {
	Fraction float64 // 0 to 1
	Message  string
}

// String is the outcome, with its error and log, for a test's message.
func (r *Result) String() string {
	text := string(r.Outcome)
	if r.Err != nil {
		text += ": " + r.Err.Error()
	}
	if r.RetryAfter > 0 {
		text += " (retry after " + r.RetryAfter.String() + ")"
	}
	if len(r.Log) > 0 {
		text += "\n" + strings.Join(r.Log, "\n")
	}
	return text
}
