package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
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
	History          []attemptView     `json:"history,omitempty"` // ls leaves it out
}

// retryView is the retry policy that a task itself sets, without the attempts.
type retryView struct {
	Backoff        queue.Backoff `json:"backoff,omitempty"`
	Base           float64       `json:"base_seconds,omitempty"`
	Min            float64       `json:"min_seconds,omitempty"`
	Max            float64       `json:"max_seconds,omitempty"`
	Jitter         *bool         `json:"jitter,omitempty"`
	MaxAge         float64       `json:"max_age_seconds,omitempty"`
	MaxReschedules int           `json:"max_reschedules,omitempty"`
}

// attemptView is one ended run of a task.
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

// status is the task's status for people.
func (v taskView) status() string {
	switch {
	case v.Status == queue.Failed && v.Handled != "":
		return "failed (handled)"
	case v.CancelAsked:
		return string(v.Status) + " (to be cancelled)"
	}
	return string(v.Status)
}

// print writes the task for people.
func (v taskView) print(w io.Writer) error {
	failure := queue.Failure{}
	if v.Error != nil {
		failure = *v.Error
	}
	progress := ""
	if v.Progress > 0 {
		progress = fmt.Sprintf("%.0f %%", 100*v.Progress)
	}
	most := any(v.MaxAttempts)
	if v.MaxAttempts == queue.Unlimited {
		most = unlimited
	}
	fields := []field{
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
		fields = append(fields, field{fmt.Sprintf("frame %d", i), frame})
	}
	fields = append(fields,
		field{"last error", failureLine(v.LastError)},
		field{"attempts", v.Attempts},
		field{"max attempts", most},
		field{"crashes", v.Crashes},
		field{"reschedules", v.Reschedules},
		field{"rejects", v.Rejects},
		field{"run", int(v.Run)},
		field{"node", v.Node},
		field{"pid", v.PID},
		field{"created", v.Created},
		field{"eta", v.ETA},
		field{"reserved", v.ReservedAt},
		field{"started", v.StartedAt},
		field{"finished", v.FinishedAt},
		field{"retried", v.RetriedAt},
		field{"updated", v.Updated},
		field{"expires", v.Expires},
		field{"deadline", v.Deadline},
		field{"timeout", v.Timeout},
	)
	fields = append(fields, v.Retry.fields()...)
	fields = append(fields,
		field{"plugin", v.Plugin},
		field{"digest", v.Digest},
		field{"priority", fmt.Sprint(v.Priority)}, // 0, too
		field{"progress", progress},
		field{"message", v.Message},
		field{"key", v.Key},
	)
	for _, name := range slices.Sorted(maps.Keys(v.Labels)) {
		fields = append(fields, field{"label " + name, v.Labels[name]})
	}
	fields = append(fields,
		field{"parent", v.Parent},
		field{"depth", v.Depth},
		field{"traceparent", v.Traceparent},
		field{"live id", v.LiveID},
		field{"dead id", v.DeadID},
		field{"dead error", v.DeadError},
		field{"handled by", v.Handled},
	)
	for _, attempt := range v.History {
		fields = append(fields, attempt.field())
	}
	return writeFields(w, fields)
}

func (r *retryView) fields() []field {
	if r == nil {
		return nil
	}
	jitter := ""
	if r.Jitter != nil {
		jitter = yesNo(*r.Jitter)
	}
	return []field{
		{"backoff", string(r.Backoff)},
		{"backoff base", r.Base},
		{"backoff min", r.Min},
		{"backoff max", r.Max},
		{"jitter", jitter},
		{"max age", r.MaxAge},
		{"max reschedules", r.MaxReschedules},
	}
}

// field is an ended run in one line: its outcome, after how long, where, and why.
func (a attemptView) field() field {
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
	return field{fmt.Sprintf("history %d", a.Run), line}
}

// failureLine is a failure in one line, "" if there is none.
func failureLine(f *queue.Failure) string {
	if f == nil {
		return ""
	}
	return fmt.Sprintf("(%s) %s", f.Reason, oneLine(f.Message))
}

// age is how long ago a time was, in two units at most.
func age(t *seconds) string {
	if t == nil {
		return ""
	}
	d := time.Since(time.Time(*t))
	switch {
	case d < 0:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < 48*time.Hour:
		return strings.TrimSuffix(d.Truncate(time.Minute).String(), "0s")
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}
