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
	"github.com/quern-project/quern/sdk/queue/taskjson"
)

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
	var l taskjson.TaskLine
	decoder := json.NewDecoder(bytes.NewReader(line))
	if err := decoder.Decode(&l); err != nil {
		return spec, lineError(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return spec, errors.New("something follows the object: " + lineRule)
	}
	whole := taskjson.TaskLine{TaskOptions: taskjson.OptionsOf(&options), Priority: options.Priority}
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

// lineFields maps the names of a line's fields to their indexes in taskjson.TaskLine.
var lineFields = func() map[string][]int {
	fields := make(map[string][]int)
	for _, field := range reflect.VisibleFields(reflect.TypeFor[taskjson.TaskLine]()) {
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
