package queue_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/quern-project/quern/sdk/queue"
)

// A failure prints as its reason and message, not as its fields with addresses.
func TestFailureText(t *testing.T) {
	t.Parallel()
	code := 65
	f := queue.Failure{Reason: queue.ReasonError, Message: "no items", ExitCode: &code}
	const want = "(fatal) no items"
	if got := fmt.Sprintf("%v, %v, %s", f, &f, f); got != want+", "+want+", "+want {
		t.Error(got)
	}
}

// The first line of a message says what happened, whatever line breaks it has.
func TestFailureLines(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]struct {
		lines    string
		headline string
	}{
		"no items":                           {"no items", "no items"},
		"no items\n":                         {"no items", "no items"},
		"no items\nat line 3":                {"no items|at line 3", "no items…"},
		"\n\n  no items\r\n\r\n    at f\r\n": {"no items|    at f", "no items…"},
		"Error: \nno items\n    at f":        {"Error: no items|    at f", "Error: no items…"},
		"":                                   {"", ""},
		"Error: \n\n":                        {"Error:", "Error:"},
		strings.Repeat("x", queue.MaxFailureText): {strings.Repeat("x", queue.MaxFailureText), strings.Repeat("x", 400) + "…"},
	} {
		f := queue.Failure{Message: message}
		if got := strings.Join(f.Lines(), "|"); got != want.lines {
			t.Errorf("%q: lines %q, want %q", message, got, want.lines)
		}
		if got := f.Headline(); got != want.headline {
			t.Errorf("%q: headline %q, want %q", message, got, want.headline)
		}
	}
}

// A task that has not failed has no failure to print; one that has failed without a text has the reason of its kind.
func TestNoFailure(t *testing.T) {
	t.Parallel()
	for want, task := range map[string]queue.Task{
		"no failure":    {Status: queue.Complete},
		"(error) ":      {Status: queue.Failed},
		"(timeout) ":    {Status: queue.Failed, Reason: queue.ReasonTimeout},
		"(error) no":    {Status: queue.Scheduled, Error: "no"},
		"(cpu) 1s over": {Status: queue.Failed, Error: `{"reason": "cpu", "message": "1s over"}`},
	} {
		if got := task.Failure().String(); got != want {
			t.Errorf("%+v: %q, want %q", task, got, want)
		}
	}
}

// Wait returns a failed task without an error, so the task gives it.
func TestTaskErr(t *testing.T) {
	t.Parallel()
	for want, task := range map[string]queue.Task{
		"<nil>":                       {Status: queue.Complete},
		"task a failed: (error) ":     {ID: "a", Status: queue.Failed},
		"task b failed: (error) one…": {ID: "b", Status: queue.Failed, Error: "one\ntwo"},
	} {
		if got := fmt.Sprint(task.Err()); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
