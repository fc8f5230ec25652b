package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/quern-project/quern/sdk/queue"
)

// taskView is a task as `task show` and `task ls` print it.
type taskView struct {
	ID               string            `json:"id"`
	Tenant           string            `json:"tenant"`
	Queue            string            `json:"queue"`
	Status           queue.Status      `json:"status"`
	Reason           queue.Reason      `json:"reason,omitempty"`
	Handled          string            `json:"handled,omitempty"` // the dead letter
	CancelAsked      bool              `json:"cancel_asked,omitempty"`
	Parameters       *string           `json:"parameters,omitempty"`
	ParametersBase64 []byte            `json:"parameters_base64,omitempty"`
	Result           *string           `json:"result,omitempty"`
	ResultBase64     []byte            `json:"result_base64,omitempty"`
	Error            *queue.Failure    `json:"error,omitempty"`
	LastError        *queue.Failure    `json:"last_error,omitempty"`
	Attempts         int               `json:"attempts"`
	MaxAttempts      int               `json:"max_attempts,omitempty"` // -1: no bound
	Crashes          int               `json:"crashes"`
	Reschedules      int               `json:"reschedules"`
	Rejects          int               `json:"rejects"`
	Run              int64             `json:"run"`
	Node             string            `json:"node,omitempty"`
	PID              int               `json:"pid,omitempty"`
	Created          *seconds          `json:"created,omitempty"`
	Updated          *seconds          `json:"updated,omitempty"`
	ETA              *seconds          `json:"eta,omitempty"`
	ReservedAt       *seconds          `json:"reserved_at,omitempty"`
	StartedAt        *seconds          `json:"started_at,omitempty"`
	FinishedAt       *seconds          `json:"finished_at,omitempty"`
	RetriedAt        *seconds          `json:"retried_at,omitempty"`
	Expires          *seconds          `json:"expires,omitempty"`
	Deadline         *seconds          `json:"deadline,omitempty"`
	Timeout          float64           `json:"timeout_seconds,omitempty"`
	Retry            *retryView        `json:"retry,omitempty"`
	Plugin           string            `json:"plugin,omitempty"`
	Digest           string            `json:"digest,omitempty"`
	Priority         int               `json:"priority"`
	Progress         float64           `json:"progress,omitempty"`
	Message          string            `json:"message,omitempty"`
	Key              string            `json:"key,omitempty"`
	Labels           map[string]string `json:"labels,omitempty"`
	Parent           string            `json:"parent,omitempty"`
	Depth            int               `json:"depth,omitempty"`
	Traceparent      string            `json:"traceparent,omitempty"`
	LiveID           string            `json:"live_id,omitempty"`
	DeadID           string            `json:"dead_id,omitempty"`
	DeadError        string            `json:"dead_error,omitempty"`
	History          []attemptView     `json:"history,omitempty"` // not of ls
}

// retryView is what a task itself sets of its policy, but for the attempts.
type retryView struct {
	Backoff        queue.Backoff `json:"backoff,omitempty"`
	Base           float64       `json:"base_seconds,omitempty"`
	Min            float64       `json:"min_seconds,omitempty"`
	Max            float64       `json:"max_seconds,omitempty"`
	Jitter         *bool         `json:"jitter,omitempty"`
	MaxAge         float64       `json:"max_age_seconds,omitempty"`
	MaxReschedules int           `json:"max_reschedules,omitempty"`
}

// attemptView is one run of a task that has ended.
type attemptView struct {
	Run     int64          `json:"run"`
	Started *seconds       `json:"started,omitempty"`
	Ended   *seconds       `json:"ended,omitempty"`
	Node    string         `json:"node,omitempty"`
	Plugin  string         `json:"plugin,omitempty"`
	Digest  string         `json:"digest,omitempty"`
	Outcome string         `json:"outcome"`
	Error   *queue.Failure `json:"error,omitempty"`
}

func newTaskView(tenant string, t *queue.Task) taskView {
	v := taskView{
		ID: t.ID, Tenant: tenant, Queue: t.Queue, Status: t.Status, Reason: t.Reason, Handled: t.Handled, CancelAsked: t.CancelAsked,
		Attempts: t.Attempts, MaxAttempts: t.MaxAttempts, Crashes: t.Crashes, Reschedules: t.Reschedules, Rejects: t.Rejects,
		Run: t.Run, Node: t.Node, PID: t.PID,
		Created: moment(t.Created), Updated: moment(t.Updated), ETA: moment(t.ETA), ReservedAt: moment(t.ReservedAt),
		StartedAt: moment(t.StartedAt), FinishedAt: moment(t.FinishedAt), RetriedAt: moment(t.RetriedAt),
		Expires: moment(t.Expires), Deadline: moment(t.Deadline), Timeout: t.Timeout.Seconds(), Retry: newRetryView(t.Retry),
		Plugin: t.Plugin, Digest: t.Digest, Priority: t.Priority, Progress: t.Progress, Message: t.Message,
		Key: t.Key, Labels: t.Labels, Parent: t.Parent, Depth: t.Depth, Traceparent: t.Traceparent, LiveID: t.LiveID, DeadID: t.DeadID, DeadError: t.DeadError,
	}
	if v.MaxAttempts == 0 && t.Retry.MaxAge > 0 {
		v.MaxAttempts = t.Retry.Attempts()
	}
	v.Parameters, v.ParametersBase64 = textOrBytes(t.Parameters)
	v.Result, v.ResultBase64 = textOrBytes(t.Result)
	if t.Status == queue.Failed {
		failure := t.Failure()
		v.Error = &failure
	}
	if t.LastError != "" {
		failure := (&queue.Task{Error: t.LastError}).Failure()
		v.LastError = &failure
	}
	return v
}

func newRetryView(r queue.Retry) *retryView {
	v := retryView{
		Backoff: r.Backoff, Base: r.Base.Seconds(), Min: r.Min.Seconds(), Max: r.Max.Seconds(), Jitter: r.Jitter,
		MaxAge: r.MaxAge.Seconds(), MaxReschedules: r.MaxReschedules,
	}
	if v == (retryView{}) {
		return nil
	}
	return &v
}

func newAttemptViews(attempts []queue.Attempt) []attemptView {
	views := make([]attemptView, len(attempts))
	for i, a := range attempts {
		views[i] = attemptView{
			Run: a.Run, Started: moment(a.Started), Ended: moment(a.Ended), Node: a.Node, Plugin: a.Plugin, Digest: a.Digest,
			Outcome: a.Outcome, Error: a.Failure,
		}
	}
	return views
}

// status is that of the task for people.
func (v taskView) status() string {
	switch {
	case v.Status == queue.Failed && v.Handled != "":
		return "failed (handled)"
	case v.CancelAsked:
		return string(v.Status) + " (to be cancelled)"
	}
	return string(v.Status)
}

// print writes the task for people: what it has, a line each.
func (v taskView) print(w io.Writer) error {
	failure := queue.Failure{}
	if v.Error != nil {
		failure = *v.Error
	}
	progress := ""
	if v.Progress > 0 {
		progress = fmt.Sprintf("%.0f %%", 100*v.Progress)
	}
	most := positive(v.MaxAttempts)
	if v.MaxAttempts == queue.Unlimited {
		most = unlimited
	}
	rows := [][2]string{
		{"id", v.ID},
		{"tenant", v.Tenant},
		{"queue", v.Queue},
		{"status", v.status()},
		{"parameters", printable(v.Parameters, v.ParametersBase64)},
		{"result", printable(v.Result, v.ResultBase64)},
		{"error", failureLine(v.Error)},
		{"limit", failure.Limit},
		{"stderr", failure.Stderr},
	}
	for i, frame := range failure.Backtrace {
		rows = append(rows, [2]string{fmt.Sprintf("frame %d", i), frame})
	}
	rows = append(rows, [][2]string{
		{"last error", failureLine(v.LastError)},
		{"attempts", positive(v.Attempts)},
		{"max attempts", most},
		{"crashes", positive(v.Crashes)},
		{"reschedules", positive(v.Reschedules)},
		{"rejects", positive(v.Rejects)},
		{"run", positive(int(v.Run))},
		{"node", v.Node},
		{"pid", positive(v.PID)},
		{"created", timestamp(v.Created)},
		{"eta", timestamp(v.ETA)},
		{"reserved", timestamp(v.ReservedAt)},
		{"started", timestamp(v.StartedAt)},
		{"finished", timestamp(v.FinishedAt)},
		{"retried", timestamp(v.RetriedAt)},
		{"updated", timestamp(v.Updated)},
		{"expires", timestamp(v.Expires)},
		{"deadline", timestamp(v.Deadline)},
		{"timeout", length(v.Timeout)},
	}...)
	rows = append(rows, v.Retry.rows()...)
	rows = append(rows, [][2]string{
		{"plugin", v.Plugin},
		{"digest", v.Digest},
		{"priority", strconv.Itoa(v.Priority)},
		{"progress", progress},
		{"message", v.Message},
		{"key", v.Key},
	}...)
	for _, name := range slices.Sorted(maps.Keys(v.Labels)) {
		rows = append(rows, [2]string{"label " + name, v.Labels[name]})
	}
	rows = append(rows, [][2]string{
		{"parent", v.Parent},
		{"depth", positive(v.Depth)},
		{"traceparent", v.Traceparent},
		{"live id", v.LiveID},
		{"dead id", v.DeadID},
		{"dead error", v.DeadError},
		{"handled by", v.Handled},
	}...)
	for _, attempt := range v.History {
		rows = append(rows, attempt.row())
	}
	return writeFields(w, rows)
}

func (r *retryView) rows() [][2]string {
	if r == nil {
		return nil
	}
	jitter := ""
	if r.Jitter != nil {
		jitter = map[bool]string{true: "yes", false: "no"}[*r.Jitter]
	}
	return [][2]string{
		{"backoff", string(r.Backoff)},
		{"backoff base", length(r.Base)},
		{"backoff min", length(r.Min)},
		{"backoff max", length(r.Max)},
		{"jitter", jitter},
		{"max age", length(r.MaxAge)},
		{"max reschedules", positive(r.MaxReschedules)},
	}
}

// row is a run that has ended in one line: what came of it, after how long, where, and why.
func (a attemptView) row() [2]string {
	line := a.Outcome
	if a.Started != nil && a.Ended != nil {
		line += fmt.Sprintf(" after %.1fs", time.Time(*a.Ended).Sub(time.Time(*a.Started)).Seconds())
	}
	if a.Node != "" {
		line += " on " + a.Node
	}
	if a.Error != nil {
		line += ": " + failureLine(a.Error)
	}
	return [2]string{fmt.Sprintf("history %d", a.Run), line}
}

// failureLine is a failure in one line, "" if there is none.
func failureLine(f *queue.Failure) string {
	if f == nil {
		return ""
	}
	return fmt.Sprintf("(%s) %s", f.Reason, oneLine(f.Message))
}

// positive is a number for people, "" for zero.
func positive(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// length is a number of seconds for people, "" for zero.
func length(seconds float64) string {
	if seconds == 0 {
		return ""
	}
	return time.Duration(seconds * float64(time.Second)).String()
}
