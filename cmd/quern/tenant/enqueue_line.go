package tenant

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

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/host/api"
	"github.com/quern-project/quern/sdk/queue"
)

const lineRule = `write one JSON object a line, such as {"parameters": {"to": "ada"}}`

// parseLine makes a task of a line and the flags' options, which say what the line leaves out. Its error says what to
// write instead.
func parseLine(line []byte, options queue.Options) (spec queue.Spec, err error) {
	if err := api.CheckUnicode(line); err != nil {
		return spec, err
	}
	if !bytes.HasPrefix(line, []byte("{")) {
		return spec, errors.New("no JSON object: " + lineRule)
	}
	if err := checkNames(line); err != nil {
		return spec, err
	}
	var l api.TaskLine
	decoder := json.NewDecoder(bytes.NewReader(line))
	if err := decoder.Decode(&l); err != nil {
		return spec, lineError(err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return spec, errors.New("something follows the object: " + lineRule)
	}
	whole := api.TaskLine{TaskOptions: api.OptionsOf(&options), Priority: options.Priority}
	if l.DelaySeconds > 0 || l.At > 0 {
		whole.DelaySeconds, whole.At = 0, 0
	}
	if l.Headers[queue.HeaderTraceparent] != "" {
		whole.Traceparent = ""
	}
	for _, name := range slices.Sorted(maps.Keys(lineFields)) { // so that of several errors the same one is told each time
		at := lineFields[name]
		value := reflect.ValueOf(l).FieldByIndex(at)
		if seconds, ok := value.Interface().(float64); ok && (seconds < 0 || seconds >= mostSeconds) {
			return spec, fmt.Errorf("%s is %g: use seconds, 0 or more, and for a time those since the epoch", name, seconds)
		}
		if !value.IsZero() {
			reflect.ValueOf(&whole).Elem().FieldByIndex(at).Set(value)
		}
	}
	whole.Labels, whole.Headers = merged(options.Labels, l.Labels), merged(options.Headers, l.Headers)
	return whole.Spec()
}

// lineFields are the indexes of a line's fields by their names.
var lineFields = func() map[string][]int {
	fields := make(map[string][]int)
	for _, field := range reflect.VisibleFields(reflect.TypeFor[api.TaskLine]()) {
		if name, _, _ := strings.Cut(field.Tag.Get("json"), ","); name != "" {
			fields[name] = field.Index
		}
	}
	return fields
}()

// checkNames refuses duplicate and misspelt fields, which encoding/json accepts. It leaves invalid JSON
// to others.
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
			return unknownField(name)
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

func unknownField(name string) error {
	return fmt.Errorf("unknown field %q, and what the handler gets belongs into parameters: %s", name, cli.DidYouMean(name, slices.Sorted(maps.Keys(lineFields))))
}

// merged is a map with the entries of both. The second's win.
func merged(a, b map[string]string) map[string]string {
	if len(a) == 0 {
		return b
	}
	a = maps.Clone(a)
	maps.Copy(a, b)
	return a
}

// mostSeconds bounds times and durations in seconds. A time in milliseconds is above it.
const mostSeconds = 9e9

// lineError adds the remedy to an error of encoding/json.
func lineError(err error) error {
	text := strings.TrimPrefix(err.Error(), "json: ")
	if typed, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		wanted := map[reflect.Kind]string{reflect.String: "a string", reflect.Map: "an object", reflect.Bool: "true or false", reflect.Slice: "base64 in a string, or a list of IDs"}[typed.Type.Kind()]
		if wanted == "" {
			wanted = "a whole number"
			if typed.Type.Kind() == reflect.Float64 {
				wanted = "a number"
			}
		}
		return fmt.Errorf("%s is of the JSON type %s: write %s", strings.TrimPrefix(typed.Field, "TaskOptions."), typed.Value, wanted)
	}
	return fmt.Errorf("%s: %s", text, lineRule)
}
