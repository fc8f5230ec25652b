// Package taskjson has the JSON form of a new task: a line of a file for `quern enqueue`, a part of a request to the
// API, the options of a row of an outbox. Times are seconds since the epoch, durations are seconds. The tags query, doc
// and the like belong to the API's schema.
package taskjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"
	"unicode/utf8"

	"github.com/quern-project/quern/sdk/queue"
)

// TaskOptions are the options that a producer may give to a task. `quern enqueue --file` uses the same names.
type TaskOptions struct {
	ID                 string        `query:"id" json:"id,omitempty" maxLength:"128" doc:"The task's ID; missing: a new UUID. If it exists nothing is enqueued."`
	Key                string        `query:"key" json:"key,omitempty" maxLength:"16384" doc:"Your own name for what the task is about."`
	Parent             string        `query:"parent" json:"parent,omitempty" maxLength:"128"`
	Traceparent        string        `query:"traceparent" json:"traceparent,omitempty" maxLength:"300" doc:"The W3C's header of that name."`
	DelaySeconds       float64       `query:"delay_seconds" json:"delay_seconds,omitempty" minimum:"0" maximum:"1e9"`
	At                 float64       `query:"at" json:"at,omitempty" minimum:"0" maximum:"1e11" doc:"When it is due."`
	Deadline           float64       `query:"deadline" json:"deadline,omitempty" minimum:"0" maximum:"1e11" doc:"When it expires, or is stopped if it runs."`
	TimeoutSeconds     float64       `query:"timeout_seconds" json:"timeout_seconds,omitempty" minimum:"0" maximum:"1e9" doc:"Of each attempt."`
	MaxAttempts        int           `query:"max_attempts" json:"max_attempts,omitempty" minimum:"-1" maximum:"1000000" doc:"-1: no bound."`
	Backoff            queue.Backoff `query:"backoff" json:"backoff,omitempty" enum:"exponential,linear" doc:"How the delay before a retry grows."`
	BackoffBaseSeconds float64       `query:"backoff_base_seconds" json:"backoff_base_seconds,omitempty" minimum:"0" maximum:"1e9" doc:"The first delay."`
	BackoffMinSeconds  float64       `query:"backoff_min_seconds" json:"backoff_min_seconds,omitempty" minimum:"0" maximum:"1e9"`
	BackoffMaxSeconds  float64       `query:"backoff_max_seconds" json:"backoff_max_seconds,omitempty" minimum:"0" maximum:"1e9"`
	NoJitter           bool          `query:"no_jitter" json:"no_jitter,omitempty" doc:"Do not shorten the delay at random."`
	MaxAgeSeconds      float64       `query:"max_age_seconds" json:"max_age_seconds,omitempty" minimum:"0" maximum:"1e9" doc:"Begin no attempt later than this after it was due."`
	MaxReschedules     int           `query:"max_reschedules" json:"max_reschedules,omitempty" minimum:"0" doc:"How often it may reschedule itself."`
	Unique             bool          `query:"unique" json:"unique,omitempty" doc:"Enqueue nothing if the queue has a task with the same unique_key, or without one the same parameters."`
	UniqueKey          string        `query:"unique_key" json:"unique_key,omitempty" maxLength:"16384" doc:"With unique."`
	UniqueForSeconds   float64       `query:"unique_for_seconds" json:"unique_for_seconds,omitempty" minimum:"0" maximum:"1e9" doc:"With unique: for this time, finished or not; missing: until it is finished."`
	After              []string      `query:"after,explode" json:"after,omitempty" maxItems:"10000" doc:"IDs of tasks to wait for. They exist, or come before it in the batch. With one of them and empty parameters its result becomes the parameters."`
	When               queue.When    `query:"when" json:"when,omitempty" enum:"complete,ended,any,failed" doc:"With after or open: it runs when all are complete, all have ended, any is complete, or one has failed; missing: complete."`
	DeadQueue          string        `query:"dead_queue" json:"dead_queue,omitempty" maxLength:"128" doc:"Of its dead letter if it fails for good; missing: its plugin's."`
	TaskKeys
	Open bool `query:"open" json:"open,omitempty" doc:"It waits until it is closed with the operation await-tasks, which also adds tasks to wait for."`
}

// TaskKeys has the fairness key and the concurrency key of a task, with their numbers.
type TaskKeys struct {
	FairKey        string `query:"fair_key" json:"fair_key,omitempty" maxLength:"256" doc:"Whom it is for: the keys of a queue take turns."`
	FairWeight     int    `query:"fair_weight" json:"fair_weight,omitempty" minimum:"0" maximum:"1000" doc:"With fair_key: how many tasks a turn of the key has; missing: 1."`
	ConcurrencyKey string `query:"concurrency_key" json:"concurrency_key,omitempty" maxLength:"256" doc:"Tasks of the queue with the same key run one after another; missing: as its plugin's manifest says."`
	MaxConcurrent  int    `query:"max_concurrent" json:"max_concurrent,omitempty" minimum:"0" maximum:"1000000" doc:"With concurrency_key: how many of them may run at once; missing: 1."`
}

// TaskKeysOf returns the keys that the options set.
func TaskKeysOf(o *queue.Options) TaskKeys {
	return TaskKeys{o.FairKey, o.FairWeight, o.ConcurrencyKey, o.MaxConcurrent}
}

// Apply sets the keys in o.
func (k TaskKeys) Apply(o *queue.Options) {
	o.FairKey, o.FairWeight, o.ConcurrencyKey, o.MaxConcurrent = k.FairKey, k.FairWeight, k.ConcurrencyKey, k.MaxConcurrent
}

// TaskLine is a task of a batch, or of a file for `quern enqueue`.
type TaskLine struct {
	TaskOptions
	// Priority has no default here, because huma would put the default in place of 0 too.
	Priority         *int              `json:"priority,omitempty" minimum:"0" maximum:"100" doc:"Higher ones first; missing: 50."`
	Parameters       json.RawMessage   `json:"parameters,omitempty" doc:"What the handler gets: the text of a string; of any other value its JSON."`
	ParametersBase64 []byte            `json:"parameters_base64,omitempty" doc:"Instead of parameters, for bytes."`
	Labels           map[string]string `json:"labels,omitempty"`
	Headers          map[string]string `json:"headers,omitempty" doc:"What the handler gets with the parameters; names in lower case."`
}

// OptionsOf converts options to the form that the API takes, without labels, headers and priority.
func OptionsOf(o *queue.Options) TaskOptions {
	t := TaskOptions{
		ID: o.ID, Key: o.Key, Parent: o.Parent, Traceparent: o.Traceparent, DelaySeconds: o.Delay.Seconds(),
		At:       seconds(o.At),
		Deadline: seconds(o.Deadline), TimeoutSeconds: o.Timeout.Seconds(), MaxAttempts: o.Retry.MaxAttempts,
		Backoff:            o.Retry.Backoff,
		BackoffBaseSeconds: o.Retry.Base.Seconds(), BackoffMinSeconds: o.Retry.Min.Seconds(),
		BackoffMaxSeconds: o.Retry.Max.Seconds(),
		NoJitter:          o.Retry.Jitter != nil && !*o.Retry.Jitter, MaxAgeSeconds: o.Retry.MaxAge.Seconds(),
		MaxReschedules: o.Retry.MaxReschedules,
		After:          o.After, When: o.When, Open: o.Open, DeadQueue: o.Dead,
		TaskKeys: TaskKeysOf(o),
	}
	if o.Unique != nil {
		t.Unique, t.UniqueKey, t.UniqueForSeconds = true, o.Unique.Key, o.Unique.For.Seconds()
	}
	return t
}

// Options converts the options to those of the queue, with labels and a priority.
func (o TaskOptions) Options(labels map[string]string, priority *int) (queue.Options, error) {
	q := queue.Options{
		ID: o.ID, Key: o.Key, Parent: o.Parent, Traceparent: o.Traceparent, Priority: priority,
		Delay: period(o.DelaySeconds),
		At:    moment(o.At), Deadline: moment(o.Deadline), Timeout: period(o.TimeoutSeconds),
		Labels: labels,
		After:  o.After, When: o.When, Open: o.Open, Dead: o.DeadQueue,
		Retry: queue.Retry{
			MaxAttempts: o.MaxAttempts, Backoff: o.Backoff, Base: period(o.BackoffBaseSeconds),
			Min: period(o.BackoffMinSeconds),
			Max: period(o.BackoffMaxSeconds), MaxAge: period(o.MaxAgeSeconds), MaxReschedules: o.MaxReschedules,
		},
	}
	o.Apply(&q)
	if o.NoJitter {
		q.Retry.Jitter = new(bool)
	}
	if o.Unique {
		q.Unique = &queue.Unique{Key: o.UniqueKey, For: period(o.UniqueForSeconds)}
	} else if o.UniqueKey != "" || o.UniqueForSeconds > 0 {
		return q, fmt.Errorf("%w: unique_key or unique_for_seconds without unique: add unique, or leave them out",
			queue.ErrInvalid)
	}
	return q, nil
}

// Spec converts the line to the task that is to be enqueued.
func (l *TaskLine) Spec() (spec queue.Spec, err error) {
	spec.Options, err = l.Options(l.Labels, l.Priority)
	spec.Headers, spec.Parameters = l.Headers, l.ParametersBase64
	switch value := l.Parameters; {
	case err != nil:
	case value != nil && l.ParametersBase64 != nil:
		err = errors.New("both parameters and parameters_base64: give one of them")
	case bytes.HasPrefix(value, []byte(`"`)):
		var text string
		err = json.Unmarshal(value, &text)
		spec.Parameters = []byte(text)
	case value != nil:
		spec.Parameters = value
	}
	return spec, err
}

// Publication has the options of a publication in a row of an outbox.
type Publication struct {
	Attributes  map[string]string `json:"attributes,omitempty"`
	Parent      string            `json:"parent,omitempty"`
	Traceparent string            `json:"traceparent,omitempty"`
	Tracestate  string            `json:"tracestate,omitempty"`
}

// LineOf converts a task to the form of a line. Parameters that are no UTF-8 text become base64.
func LineOf(spec *queue.Spec) TaskLine {
	line := TaskLine{
		TaskOptions: OptionsOf(&spec.Options), Priority: spec.Priority, Labels: spec.Labels, Headers: spec.Headers,
	}
	switch {
	case !utf8.Valid(spec.Parameters):
		line.ParametersBase64 = spec.Parameters
	case len(spec.Parameters) > 0:
		line.Parameters, _ = json.Marshal(string(spec.Parameters)) // encoding a string never fails
	}
	return line
}

// seconds converts a time to seconds since the epoch, and the zero time to 0.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMicro()) / 1e6
}

// moment converts seconds since the epoch to a time, and 0 to the zero time.
func moment(seconds float64) time.Time {
	if seconds <= 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(math.Round(seconds * 1e6)))
}

func period(seconds float64) time.Duration {
	return time.Duration(math.Round(seconds * float64(time.Second)))
}
