package sdktest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/quern-project/quern/sdk"
)

// Outcome is what becomes of a task.
type Outcome int

// The outcomes.
const (
	Complete Outcome = iota // with the result
	Failed                  // and is tried again if the retry policy says so
	Retry                   // is tried again later
	Fatal                   // has failed for good
	Panicked                // as Failed
	Died                    // with its host, at a checkpoint: it is run again
)

func (o Outcome) String() string {
	if o < Complete || o > Died {
		return fmt.Sprintf("Outcome(%d)", int(o))
	}
	return [...]string{"complete", "failed", "retry", "fatal", "panicked", "died"}[o]
}

// Result is what a run leaves.
type Result struct {
	Outcome Outcome
	// Status is what quern_handle returns: 0, 1, 75, 65 or 2, in the order of the outcomes; -1 after a death.
	Status int
	// Result is the task's, if it is complete.
	Result []byte
	// Err is the error that the handler has returned, as it is; nil if the task is complete or died. That of a panic begins with
	// "panic: ".
	Err error
	// RetryAfter is the delay that the handler asks for, in milliseconds, rounded up; 0 leaves it to the host.
	RetryAfter time.Duration
	// Log has the lines of sdk.Log, with their level in front and their fields behind, and after a panic its stack.
	Log []string
	// Progress is all that the handler has reported.
	Progress []Progress
	// Checkpoint is the last one, of this run or of one before; nil if there is none.
	Checkpoint []byte
	// Enqueued are the tasks that come into being: not one whose ID, or whose Options.Unique, a task of this Harness has already.
	// None of them is ever finished.
	Enqueued []Enqueued
}

// Progress is one report.
type Progress struct {
	Fraction float64 // 0 to 1
	Message  string
}

// Enqueued is a task that the handler has enqueued.
type Enqueued struct {
	ID         string
	Queue      string
	Parameters []byte
	// Options are as the host reads them: in milliseconds, with the ID above.
	Options sdk.EnqueueOptions
}

// String is the outcome, with its error and log, for a test's message.
func (r *Result) String() string {
	text := r.Outcome.String()
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

// The exit statuses of handlers.
const (
	statusDied     = -1
	statusComplete = 0
	statusPanic    = 2
	statusFatal    = 65
	statusRetry    = 75
)

// said is the error of a run as a host says it.
func said(result *Result) string {
	meaning := map[Outcome]string{Retry: " (try again later)", Fatal: " (failed for good)"}[result.Outcome]
	return "exit status " + strconv.Itoa(result.Status) + meaning + ": " + result.Err.Error()
}

// result is what the run leaves. The harness is locked.
func (r *run) result() *Result {
	result := &Result{
		Outcome: Failed, Status: int(r.status),
		Log: r.log, Progress: r.progress, Checkpoint: r.past.checkpoint, Enqueued: r.enqueued,
	}
	if r.dead {
		result.Outcome, result.Status = Died, statusDied
	} else {
		switch r.status {
		case statusComplete:
			result.Outcome, result.Result = Complete, r.output
			for _, child := range r.waiting {
				r.bear(child)
			}
			result.Enqueued = r.enqueued
			return result
		case statusRetry:
			result.Outcome = Retry
		case statusFatal:
			result.Outcome = Fatal
		case statusPanic:
			result.Outcome = Panicked
		}
		result.Err, result.RetryAfter = r.err, r.retryAfter
		if result.Err == nil {
			result.Err = errors.New(r.failure)
		}
	}
	return result
}
