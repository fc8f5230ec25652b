package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/quern-project/quern/sdk/queue"
)

// taskLine is a task as a line of JSON, with the names and units of -o json. What it leaves out the flags say.
type taskLine struct {
	ID          string            `json:"id"`
	Parameters  json.RawMessage   `json:"parameters"` // the text of a string; of any other value its JSON
	Base64      []byte            `json:"parameters_base64"`
	Key         string            `json:"key"`
	Labels      map[string]string `json:"labels"`
	Headers     map[string]string `json:"headers"`
	Parent      string            `json:"parent"`
	Traceparent string            `json:"traceparent"`
	Priority    *int              `json:"priority"`
	Delay       float64           `json:"delay_seconds"`
	At          float64           `json:"at"`
	Deadline    float64           `json:"deadline"`
	Timeout     float64           `json:"timeout_seconds"`
	MaxAttempts int               `json:"max_attempts"`
	After       []string          `json:"after"`
	When        queue.When        `json:"when"`
}

const lineRule = `write one JSON object a line, such as {"parameters": {"to": "ada"}}`

// parseLine makes a task of a line and the flags' options. Its error says what to write instead.
func parseLine(line []byte, options queue.Options) (spec queue.Spec, err error) {
	if !utf8.Valid(line) {
		return spec, errors.New("not UTF-8: write bytes as parameters_base64")
	}
	if !bytes.HasPrefix(line, []byte("{")) {
		return spec, errors.New("no JSON object: " + lineRule)
	}
	var l taskLine
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&l); err != nil {
		return spec, lineError(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return spec, errors.New("something follows the object: " + lineRule)
	}
	spec = queue.Spec{Parameters: l.Base64, Options: options}
	switch {
	case l.Parameters != nil && l.Base64 != nil:
		return spec, errors.New("both parameters and parameters_base64: give one of them")
	case bytes.HasPrefix(l.Parameters, []byte(`"`)):
		var text string
		_ = json.Unmarshal(l.Parameters, &text) // it was decoded before
		spec.Parameters = []byte(text)
	case l.Parameters != nil:
		spec.Parameters = l.Parameters
	}
	return spec, l.set(&spec.Options)
}

// set overrides the options that the line has.
func (l *taskLine) set(o *queue.Options) error {
	for name, value := range map[string]float64{"delay_seconds": l.Delay, "at": l.At, "deadline": l.Deadline, "timeout_seconds": l.Timeout} {
		if value < 0 || value >= mostSeconds {
			return fmt.Errorf("%s is %g: use seconds, 0 or more, and for a time those since the epoch", name, value)
		}
	}
	override(&o.ID, l.ID)
	override(&o.Key, l.Key)
	override(&o.Parent, l.Parent)
	override(&o.Traceparent, l.Traceparent)
	override(&o.Priority, l.Priority)
	override(&o.Retry.MaxAttempts, l.MaxAttempts)
	override(&o.Timeout, duration(l.Timeout))
	override(&o.When, l.When)
	if len(l.After) > 0 {
		o.After = l.After
	}
	if l.Delay > 0 || l.At > 0 {
		o.Delay, o.At = duration(l.Delay), moments(l.At)
	}
	if l.Deadline > 0 {
		o.Deadline = moments(l.Deadline)
	}
	if l.Headers[queue.HeaderTraceparent] != "" && l.Traceparent == "" {
		o.Traceparent = "" // the line's overrides that of the flags
	}
	o.Labels, o.Headers = merged(o.Labels, l.Labels), merged(o.Headers, l.Headers)
	return nil
}

// merged is a map with the entries of both, and where both have one, the second's.
func merged(a, b map[string]string) map[string]string {
	if len(a) == 0 {
		return b
	}
	a = maps.Clone(a)
	maps.Copy(a, b)
	return a
}

func override[T comparable](option *T, value T) {
	if value != *new(T) {
		*option = value
	}
}

// mostSeconds is above every time and duration in seconds. One in milliseconds is not.
const mostSeconds = 1e11

func duration(seconds float64) time.Duration {
	return time.Duration(min(seconds, 9e9) * float64(time.Second)) // more would overflow, and that is refused
}

func moments(seconds float64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(seconds * 1e6))
}

// lineError adds the remedy to an error of encoding/json.
func lineError(err error) error {
	text := strings.TrimPrefix(err.Error(), "json: ")
	if typed, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		wanted := map[reflect.Kind]string{reflect.String: "a string", reflect.Map: "an object", reflect.Slice: "base64 in a string, or a list of IDs"}[typed.Type.Kind()]
		if wanted == "" {
			wanted = "a whole number"
			if typed.Type.Kind() == reflect.Float64 {
				wanted = "a number"
			}
		}
		return fmt.Errorf("%s is of the JSON type %s: write %s", typed.Field, typed.Value, wanted)
	}
	if name, ok := strings.CutPrefix(text, "unknown field "); ok {
		var names []string
		for _, field := range reflect.VisibleFields(reflect.TypeFor[taskLine]()) {
			names = append(names, field.Tag.Get("json"))
		}
		return fmt.Errorf("unknown field %s, and what the handler gets belongs into parameters: %s", name, didYouMean(strings.Trim(name, `"`), names))
	}
	return fmt.Errorf("%s: %s", text, lineRule)
}
