package admin

import (
	"context"
	"math"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// Task is a task in the form of the API and of -o json.
type Task struct {
	ID          string       `json:"id"`
	Tenant      string       `json:"tenant"`
	Queue       string       `json:"queue"`
	Status      queue.Status `json:"status" enum:"scheduled,pending,reserved,started,complete,failed"`
	Reason      queue.Reason `json:"reason,omitempty" doc:"Why it failed: error, trap, timeout, cpu, memory, output, cancelled, crashed, exhausted, expired, rejected or dependency."`
	Handled     string       `json:"handled,omitempty" doc:"The dead letter that handled it."`
	CancelAsked bool         `json:"cancel_asked,omitempty" doc:"It runs and is to be stopped."`
	After       *queue.After `json:"after,omitempty" doc:"The tasks that it waits for, or waited for."`

	Parameters       *string `json:"parameters,omitempty" doc:"Of at most payload_limit bytes; not in lists."`
	ParametersBase64 []byte  `json:"parameters_base64,omitempty" doc:"Instead of parameters, if they are not UTF-8."`
	ParametersSize   int     `json:"parameters_size,omitempty" doc:"Bytes."`
	Result           *string `json:"result,omitempty" doc:"Of at most payload_limit bytes; not in lists."`
	ResultBase64     []byte  `json:"result_base64,omitempty" doc:"Instead of result, if it is not UTF-8."`
	ResultSize       int     `json:"result_size,omitempty" doc:"Bytes."`

	Error       *queue.Failure `json:"error,omitempty" doc:"Of a failed task."`
	LastError   *queue.Failure `json:"last_error,omitempty" doc:"Of the last run that did not finish the task."`
	Attempts    int            `json:"attempts"`
	MaxAttempts int            `json:"max_attempts,omitempty" doc:"-1: no bound; missing: the manifest decides."`
	Crashes     int            `json:"crashes"`
	Reschedules int            `json:"reschedules"`
	Rejects     int            `json:"rejects"`
	Run         int64          `json:"run"`
	Node        string         `json:"node,omitempty" doc:"The listener that holds or held it."`
	PID         int            `json:"pid,omitempty"`

	Created    float64 `json:"created,omitempty"`
	Updated    float64 `json:"updated,omitempty"`
	ETA        float64 `json:"eta,omitempty"`
	ReservedAt float64 `json:"reserved_at,omitempty"`
	StartedAt  float64 `json:"started_at,omitempty"`
	FinishedAt float64 `json:"finished_at,omitempty"`
	RetriedAt  float64 `json:"retried_at,omitempty"`
	Expires    float64 `json:"expires,omitempty" doc:"From when it starts no further attempt."`
	Deadline   float64 `json:"deadline,omitempty"`

	TimeoutSeconds float64           `json:"timeout_seconds,omitempty"`
	Retry          *Retry            `json:"retry,omitempty" doc:"What the task itself sets of its policy."`
	Plugin         string            `json:"plugin,omitempty"`
	Digest         string            `json:"digest,omitempty"`
	Version        string            `json:"version,omitempty" doc:"The name that the plugin's manifest gives it."`
	Release        int               `json:"release,omitempty" doc:"The number of the plugin's release; none for files of a plugin directory."`
	Priority       int               `json:"priority"`
	Progress       float64           `json:"progress,omitempty" doc:"0 to 1."`
	Message        string            `json:"message,omitempty"`
	Key            string            `json:"key,omitempty"`
	FairKey        string            `json:"fair_key,omitempty" doc:"Whom it is for."`
	FairWeight     int               `json:"fair_weight,omitempty"`
	KeyHeld        bool              `json:"key_held,omitempty" doc:"It is scheduled because its key is paused, or held by a handler until eta."`
	WaitsBecause   string            `json:"waits_because,omitempty" doc:"Why it waits although it is due, for people; only of a single task, and missing if it just waits for its turn."`
	Lane           *Lane             `json:"lane,omitempty" doc:"The tasks of the queue with the same concurrency key."`
	Labels         map[string]string `json:"labels,omitempty"`
	Parent         string            `json:"parent,omitempty"`
	Depth          int               `json:"depth,omitempty"`
	Traceparent    string            `json:"traceparent,omitempty"`
	Headers        map[string]string `json:"headers,omitempty" doc:"By names in lower case, traceparent among them."`
	LiveID         string            `json:"live_id,omitempty" doc:"Of a dead letter: the task that failed."`
	DeadID         string            `json:"dead_id,omitempty" doc:"Of a failed task: its dead letter."`
	DeadQueue      string            `json:"dead_queue,omitempty" doc:"Of its dead letter, if its producer named one."`
	DeadError      string            `json:"dead_error,omitempty" doc:"Why it has no dead letter, though its plugin names a queue for them."`
	CheckpointSize int64             `json:"checkpoint_size,omitempty" doc:"Bytes."`
	Record         *Record           `json:"record,omitempty" doc:"The record of a run, which quern task replay replays."`
	Sealed         string            `json:"sealed,omitempty" doc:"The ID of the key that is missing to read its parameters or result: they are encrypted."`
	Withheld       bool              `json:"withheld,omitempty" doc:"You may not see its parameters, result, headers, message and its handler's errors."`
	History        []Attempt         `json:"history,omitempty" doc:"The last runs that have ended, oldest first; not in lists."`
}

// Retry is the part of a retry policy that a task itself sets, without the number of attempts.
type Retry struct {
	Backoff        queue.Backoff `json:"backoff,omitempty" enum:"exponential,linear"`
	BaseSeconds    float64       `json:"base_seconds,omitempty"`
	MinSeconds     float64       `json:"min_seconds,omitempty"`
	MaxSeconds     float64       `json:"max_seconds,omitempty"`
	Jitter         *bool         `json:"jitter,omitempty"`
	MaxAgeSeconds  float64       `json:"max_age_seconds,omitempty"`
	MaxReschedules int           `json:"max_reschedules,omitempty"`
}

// Attempt is a finished run of a task.
type Attempt struct {
	Run     int64          `json:"run"`
	Started float64        `json:"started,omitempty"`
	Ended   float64        `json:"ended,omitempty"`
	Node    string         `json:"node,omitempty"`
	Plugin  string         `json:"plugin,omitempty"`
	Digest  string         `json:"digest,omitempty"`
	Version string         `json:"version,omitempty" doc:"The name that the plugin's manifest gives it."`
	Release int            `json:"release,omitempty" doc:"The number of the plugin's release."`
	Outcome string         `json:"outcome"`
	Error   *queue.Failure `json:"error,omitempty"`

	RunSeconds   float64 `json:"run_seconds,omitempty" doc:"How long it ran."`
	DelaySeconds float64 `json:"delay_seconds,omitempty" doc:"How long the task waited for it, since its creation or the end of the run before."`
}

// Lane is the place of a task among those with the same concurrency key.
type Lane struct {
	Key   string `json:"key" doc:"If the manifest takes it from a label, as in the JSON of the labels."`
	Max   int    `json:"max" doc:"How many of them may run at once, as this task asks."`
	Waits bool   `json:"waits,omitempty" doc:"It waits in line until others have ended."`
	Ahead int64  `json:"ahead,omitempty" doc:"How many wait in line before it; not in lists."`
	Taken int64  `json:"taken,omitempty" doc:"How many run, are next to run, or are to be tried again; not in lists."`
}

// Record describes the record of a run of a task.
type Record struct {
	Run  int64 `json:"run"`
	Size int64 `json:"size" doc:"Bytes; 0: it was larger than limits.record of the manifest, and is not kept."`

	Encrypted bool `json:"encrypted,omitempty" doc:"It is encrypted to the recipients of the tenant's grants: a replay needs one of their private keys."`
}

// LogLine is a line that a task's handler wrote.
type LogLine struct {
	Number int64   `json:"number" doc:"Counts the lines of the task from 1, over all its runs."`
	Time   float64 `json:"time"`
	Text   string  `json:"text"`
}

// ReadTask converts a task to the form that operators see, and reads its history and its place among the tasks with its
// concurrency key.
func ReadTask(ctx context.Context, m *manage.Manager, tenant string, task *queue.Task) (*Task, error) {
	history, err := m.History(ctx, task)
	shape := NewTask(tenant, task, history)
	if shape.Lane != nil && err == nil {
		shape.Lane.Taken, shape.Lane.Ahead, err = m.Queue(task.Queue).LanePlace(ctx, task)
	}
	return shape, err
}

// NewTask converts a task to the form that operators see. The result has the payloads that were read with the task, and
// the attempts in history.
func NewTask(tenant string, t *queue.Task, history []manage.Attempt) *Task {
	shape := &Task{
		ID: t.ID, Tenant: tenant, Queue: t.Queue, Status: t.Status, Reason: t.Reason, Handled: t.Handled,
		CancelAsked:    t.CancelAsked,
		ParametersSize: len(t.Parameters), ResultSize: len(t.Result),
		Attempts: t.Attempts, MaxAttempts: t.MaxAttempts, Crashes: t.Crashes, Reschedules: t.Reschedules, Rejects: t.Rejects,
		Run: t.Run, Node: t.Node, PID: t.PID,
		Created: Seconds(t.Created), Updated: Seconds(t.Updated), ETA: Seconds(t.ETA), ReservedAt: Seconds(t.ReservedAt),
		StartedAt: Seconds(t.StartedAt), FinishedAt: Seconds(t.FinishedAt), RetriedAt: Seconds(t.RetriedAt),
		Expires: Seconds(t.Expires), Deadline: Seconds(t.Deadline),
		TimeoutSeconds: t.Timeout.Seconds(), Plugin: t.Plugin, Digest: t.Digest, Version: t.Version, Release: t.Release,
		Priority: t.Priority, Progress: t.Progress,
		Message: t.Message, Key: t.Key, KeyHeld: t.Held, FairKey: t.FairKey, FairWeight: t.FairWeight, Labels: t.Labels,
		Headers: t.Headers, Parent: t.Parent, Depth: t.Depth,
		Traceparent: t.Traceparent,
		LiveID:      t.LiveID, DeadID: t.DeadID, DeadQueue: t.Dead, DeadError: t.DeadError, CheckpointSize: t.CheckpointSize,
		After: t.After,
		Retry: NewRetry(t.Retry), Sealed: t.Sealed,
	}
	if t.Held && t.ETA.Year() > 2200 { // a paused key has no end: see ENDLESS in prelude.lua
		shape.ETA = 0
	}
	shape.Parameters, shape.ParametersBase64 = Payload(t.Parameters)
	shape.Result, shape.ResultBase64 = Payload(t.Result)
	if t.RecordRun > 0 {
		shape.Record = &Record{t.RecordRun, t.RecordSize, t.RecordEncrypted}
	}
	if t.ConcurrencyKey != "" {
		shape.Lane = &Lane{Key: t.ConcurrencyKey, Max: t.MaxConcurrent, Waits: t.InLine}
	}
	if shape.MaxAttempts == 0 && t.Retry.MaxAge > 0 {
		shape.MaxAttempts = t.Retry.Attempts()
	}
	if t.Status == queue.Failed {
		failure := t.Failure()
		shape.Error = &failure
	}
	if t.LastError != "" {
		failure := (&queue.Task{Error: t.LastError}).Failure()
		shape.LastError = &failure
	}
	for i, a := range history {
		var before time.Time // unknown if an earlier run is no longer in the history
		switch {
		case i > 0:
			before = history[i-1].Ended
		case a.Run == 1:
			before = t.Created
		}
		shape.History = append(shape.History, Attempt{
			Run: a.Run, Started: Seconds(a.Started), Ended: Seconds(a.Ended), Node: a.Node, Plugin: a.Plugin, Digest: a.Digest,
			Version: a.Version, Release: a.Release, Outcome: a.Outcome, Error: a.Failure,
			RunSeconds: between(a.Started, a.Ended), DelaySeconds: between(before, a.Started),
		})
	}
	return shape
}

// between returns the seconds from one time to another, 0 if one of them is unknown.
func between(from, to time.Time) float64 {
	if from.IsZero() || to.IsZero() {
		return 0
	}
	return math.Round(to.Sub(from).Seconds()*1e6) / 1e6
}

// RunAt returns the run that had begun last at a time in seconds. It returns 0 if that run is not in the history.
func (s *Task) RunAt(seconds float64) int64 {
	if s.StartedAt > 0 && s.StartedAt <= seconds {
		return s.Run
	}
	for _, a := range slices.Backward(s.History) {
		if a.Started > 0 && a.Started <= seconds {
			return a.Run
		}
	}
	return 0
}

// Failure returns why the task failed, or the zero Failure if it has not failed.
func (s *Task) Failure() queue.Failure {
	if s.Error == nil {
		return queue.Failure{}
	}
	return *s.Error
}

// Redact removes what producers and handlers wrote, except labels, key and reasons.
func (s *Task) Redact(v View) {
	if v.Payloads {
		return
	}
	s.Parameters, s.ParametersBase64, s.Result, s.ResultBase64 = nil, nil, nil, nil
	s.Headers, s.Message, s.Withheld = nil, "", true
	s.Error, s.LastError = redacted(s.Error), redacted(s.LastError)
	for i := range s.History {
		s.History[i].Redact(v)
	}
}

// Redact removes the text that the handler wrote.
func (a *Attempt) Redact(v View) {
	if !v.Payloads {
		a.Error = redacted(a.Error)
	}
}

// redacted returns a copy of a failure without the text that the handler wrote.
func redacted(f *queue.Failure) *queue.Failure {
	if f == nil {
		return nil
	}
	text := f.Headline()
	if f.Reason == queue.ReasonError { // the handler wrote the text
		text = ""
	}
	return &queue.Failure{Reason: f.Reason, Message: text, ExitCode: f.ExitCode, Limit: f.Limit}
}

// NewRetry converts a retry policy to the form that operators see. It returns nil if the policy sets nothing but the
// number of attempts.
func NewRetry(r queue.Retry) *Retry {
	if r == (queue.Retry{MaxAttempts: r.MaxAttempts}) {
		return nil
	}
	return &Retry{
		Backoff: r.Backoff, BaseSeconds: r.Base.Seconds(), MinSeconds: r.Min.Seconds(), MaxSeconds: r.Max.Seconds(),
		Jitter: r.Jitter, MaxAgeSeconds: r.MaxAge.Seconds(), MaxReschedules: r.MaxReschedules,
	}
}

// Policy converts r to a retry policy. The policy does not set the number of attempts.
func (r *Retry) Policy() queue.Retry {
	if r == nil {
		return queue.Retry{}
	}
	return queue.Retry{
		Backoff: r.Backoff, Base: Period(r.BaseSeconds), Min: Period(r.MinSeconds), Max: Period(r.MaxSeconds),
		Jitter: r.Jitter, MaxAge: Period(r.MaxAgeSeconds), MaxReschedules: r.MaxReschedules,
	}
}

// Payload returns a value as text, or as data if it is not UTF-8.
func Payload(value []byte) (text *string, data []byte) {
	switch {
	case value == nil:
		return nil, nil
	case utf8.Valid(value):
		s := string(value)
		return &s, nil
	}
	return nil, value
}

// Bytes is the inverse of Payload: it returns the value from which Payload made text and data.
func Bytes(text *string, data []byte) []byte {
	if text != nil {
		return []byte(*text)
	}
	return data
}

// NewLogLine converts a line of a log to the form that operators see.
func NewLogLine(l manage.LogLine) LogLine { return LogLine{l.Number, Seconds(l.Time), l.Text} }
