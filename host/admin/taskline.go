package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/quern-project/quern/plugins/spelling"
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
	Open               bool          `query:"open" json:"open,omitempty" doc:"It waits until it is closed with the operation await-tasks, which also adds tasks to wait for."`
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
		At:       Seconds(o.At),
		Deadline: Seconds(o.Deadline), TimeoutSeconds: o.Timeout.Seconds(), MaxAttempts: o.Retry.MaxAttempts,
		Backoff:            o.Retry.Backoff,
		BackoffBaseSeconds: o.Retry.Base.Seconds(), BackoffMinSeconds: o.Retry.Min.Seconds(),
		BackoffMaxSeconds: o.Retry.Max.Seconds(),
		NoJitter:          o.Retry.Jitter != nil && !*o.Retry.Jitter, MaxAgeSeconds: o.Retry.MaxAge.Seconds(),
		MaxReschedules: o.Retry.MaxReschedules,
		After:          o.After, When: o.When, Open: o.Open, DeadQueue: o.Dead,
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
		Delay: Period(o.DelaySeconds),
		At:    Moment(o.At), Deadline: Moment(o.Deadline), Timeout: Period(o.TimeoutSeconds),
		Labels: labels,
		After:  o.After, When: o.When, Open: o.Open, Dead: o.DeadQueue,
		Retry: queue.Retry{
			MaxAttempts: o.MaxAttempts, Backoff: o.Backoff, Base: Period(o.BackoffBaseSeconds),
			Min: Period(o.BackoffMinSeconds),
			Max: Period(o.BackoffMaxSeconds), MaxAge: Period(o.MaxAgeSeconds), MaxReschedules: o.MaxReschedules,
		},
	}
	if o.NoJitter {
		q.Retry.Jitter = new(bool)
	}
	if o.Unique {
		q.Unique = &queue.Unique{Key: o.UniqueKey, For: Period(o.UniqueForSeconds)}
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

const lineRule = `write one JSON object a line, such as {"parameters": {"to": "ada"}}`

// ParseTaskLine makes the task of a line. What the line leaves out comes from options. The error
// says what to write instead.
func ParseTaskLine(line []byte, options queue.Options) (spec queue.Spec, err error) {
	if err := CheckUnicode(line); err != nil {
		return spec, err
	}
	if !bytes.HasPrefix(line, []byte("{")) {
		return spec, errors.New("no JSON object: " + lineRule)
	}
	if err := checkNames(line); err != nil {
		return spec, err
	}
	var l TaskLine
	decoder := json.NewDecoder(bytes.NewReader(line))
	if err := decoder.Decode(&l); err != nil {
		return spec, lineError(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return spec, errors.New("something follows the object: " + lineRule)
	}
	whole := TaskLine{TaskOptions: OptionsOf(&options), Priority: options.Priority}
	if l.DelaySeconds > 0 || l.At > 0 {
		whole.DelaySeconds, whole.At = 0, 0
	}
	if l.Headers[queue.HeaderTraceparent] != "" {
		whole.Traceparent = ""
	}
	for _, name := range slices.Sorted(maps.Keys(lineFields)) { // sorted, so that always the same error is reported
		at := lineFields[name]
		value := reflect.ValueOf(l).FieldByIndex(at)
		if seconds, ok := value.Interface().(float64); ok && (seconds < 0 || seconds >= maxSeconds) {
			return spec, fmt.Errorf("%s is %g: use seconds, 0 or more, and for a time those since the epoch", name, seconds)
		}
		if !value.IsZero() {
			reflect.ValueOf(&whole).Elem().FieldByIndex(at).Set(value)
		}
	}
	whole.Labels, whole.Headers = merged(options.Labels, l.Labels), merged(options.Headers, l.Headers)
	return whole.Spec()
}

// lineFields maps the names of a line's fields to their indexes in TaskLine.
var lineFields = func() map[string][]int {
	fields := make(map[string][]int)
	for _, field := range reflect.VisibleFields(reflect.TypeFor[TaskLine]()) {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
			fields[name] = field.Index
		}
	}
	return fields
}()

// checkNames refuses duplicate and unknown fields, which encoding/json accepts. It does not report invalid JSON.
func checkNames(object []byte) error {
	seen := make(map[string]bool)
	decoder := json.NewDecoder(bytes.NewReader(object))
	_, err := decoder.Token()
	for err == nil && decoder.More() {
		var token json.Token
		if token, err = decoder.Token(); err != nil {
			break
		}
		name, _ := token.(string)
		if lineFields[name] == nil {
			return fmt.Errorf("unknown field %q, and what the handler gets belongs into parameters: %s", name,
				spelling.DidYouMean(name, slices.Sorted(maps.Keys(lineFields))))
		}
		if seen[name] {
			return fmt.Errorf("%s is there twice: leave one of them out", name)
		}
		seen[name] = true
		var value json.RawMessage
		err = decoder.Decode(&value)
	}
	return nil
}

// merged returns a map with the entries of a and b. If both have a key, b's value counts.
func merged(a, b map[string]string) map[string]string {
	if len(a) == 0 {
		return b
	}
	a = maps.Clone(a)
	maps.Copy(a, b)
	return a
}

// maxSeconds is the bound that times and durations in seconds must stay below. A time in milliseconds, a common
// mistake, exceeds it.
const maxSeconds = 9e9

// lineError adds the remedy to an error of encoding/json.
func lineError(err error) error {
	text := strings.TrimPrefix(err.Error(), "json: ")
	if typed, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		wanted := map[reflect.Kind]string{
			reflect.String: "a string", reflect.Map: "an object", reflect.Bool: "true or false",
			reflect.Slice: "base64 in a string, or a list of IDs",
		}[typed.Type.Kind()]
		if wanted == "" {
			wanted = "a whole number"
			if typed.Type.Kind() == reflect.Float64 {
				wanted = "a number"
			}
		}
		return fmt.Errorf("%s is of the JSON type %s: write %s", strings.TrimPrefix(typed.Field, "TaskOptions."), typed.Value,
			wanted)
	}
	return fmt.Errorf("%s: %s", text, lineRule)
}
