package queue

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Filter is what a publication must be like. All that it names must match.
type Filter struct {
	// Attributes are patterns with at most one * for any text, by the attribute's name. A publication without the attribute does
	// not match.
	Attributes map[string]string `json:"attributes,omitempty"`
	// Data are JSON values, by the JSON pointer (RFC 6901) to what must equal them in the payload. A payload that is not JSON
	// does not match.
	Data map[string]any `json:"data,omitempty"`
}

func (f *Filter) validate() error {
	if n := len(f.Attributes) + len(f.Data); n > maxFilter {
		return fmt.Errorf("%w: filter of %d attributes and pointers: use at most %d", ErrInvalid, n, maxFilter)
	}
	for name, pattern := range f.Attributes {
		if err := validAttribute(name, pattern); err != nil {
			return err
		}
		if strings.Count(pattern, "*") > 1 {
			return fmt.Errorf("%w: filter of attribute %s: %q has more than one *: use a text, or one with a single * for any text", ErrInvalid, name, pattern)
		}
	}
	for pointer := range f.Data {
		if pointer != "" && pointer[0] != '/' {
			return fmt.Errorf("%w: filter of data %q: use a JSON pointer, such as /customer/country", ErrInvalid, pointer)
		}
	}
	return nil
}

// Matches tells whether a publication of this topic, these attributes and this payload gets a task, if the subscription is active.
func (s *Subscription) Matches(topic string, attributes map[string]string, payload []byte) bool {
	return s.matches(&event{topic: topic, attributes: attributes, payload: payload})
}

// OfTopic tells whether the subscription's topic is this one, or a pattern that it matches.
func (s *Subscription) OfTopic(topic string) bool { return matches(s.Topic, topic) }

// event is what filters look at. The payload is parsed at most once for all of them.
type event struct {
	topic      string
	attributes map[string]string
	payload    []byte

	parsed, valid bool
	data          any
}

func (s *Subscription) matches(e *event) bool {
	if !s.OfTopic(e.topic) {
		return false
	}
	for name, pattern := range s.Filter.Attributes {
		value, ok := e.attributes[name]
		if !ok || !matches(pattern, value) {
			return false
		}
	}
	for pointer, want := range s.Filter.Data {
		is, ok := e.at(pointer)
		if !ok || !sameJSON(is, want) {
			return false
		}
	}
	return true
}

// at is the value in the payload that a JSON pointer names.
func (e *event) at(pointer string) (any, bool) {
	if !e.parsed {
		e.parsed = true
		e.data, e.valid = parseJSON(e.payload)
	}
	value, ok := e.data, e.valid
	if !ok || pointer == "" {
		return value, ok
	}
	for _, name := range strings.Split(pointer[1:], "/") {
		name = strings.ReplaceAll(strings.ReplaceAll(name, "~1", "/"), "~0", "~")
		switch in := value.(type) {
		case map[string]any:
			if value, ok = in[name]; !ok {
				return nil, false
			}
		case []any:
			i, err := strconv.ParseUint(name, 10, 31)
			if err != nil || int(i) >= len(in) || name != strconv.FormatUint(i, 10) {
				return nil, false
			}
			value = in[i]
		default:
			return nil, false
		}
	}
	return value, true
}

// parseJSON reads one JSON value with its numbers as they are written; false if the text is none.
func parseJSON(text []byte) (value any, ok bool) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	return value, json.Valid(text) && decoder.Decode(&value) == nil // of {}} the decoder would read the beginning
}

// sameJSON tells whether two JSON values are equal; numbers are if their values are: 1, 1.0 and 1e0.
func sameJSON(a, b any) bool {
	switch b := b.(type) {
	case map[string]any:
		a, ok := a.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for name, value := range b {
			if other, ok := a[name]; !ok || !sameJSON(other, value) {
				return false
			}
		}
		return true
	case []any:
		a, ok := a.([]any)
		return ok && slices.EqualFunc(a, b, sameJSON)
	case string, bool, nil:
		return reflect.DeepEqual(a, b)
	}
	x, isNumber := number(a)
	y, alsoNumber := number(b)
	return isNumber && alsoNumber && x == y
}

// number is the value of a JSON number: its digits if it is a whole one, which a float64 may not have exactly.
func number(value any) (string, bool) {
	var text string
	switch value := value.(type) {
	case json.Number:
		text = value.String()
	case float64:
		text = strconv.FormatFloat(value, 'g', -1, 64)
	case int:
		text = strconv.Itoa(value)
	case int64:
		text = strconv.FormatInt(value, 10)
	default:
		return "", false
	}
	if strings.ContainsAny(text, ".eE") { // else it is whole, and its digits are its value
		float, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return text, true
		}
		text = strconv.FormatFloat(float, 'f', -1, 64)
	}
	if text == "-0" {
		text = "0"
	}
	return text, true
}

// matches tells whether a text is what a pattern names: the pattern itself, or with any text in the place of its *.
func matches(pattern, text string) bool {
	before, after, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern == text
	}
	return len(text) >= len(before)+len(after) && strings.HasPrefix(text, before) && strings.HasSuffix(text, after)
}

const (
	// maxAttributes is the most attributes of a publication, attributeBytes what all of them may have together.
	maxAttributes  = 24
	attributeBytes = 6 << 10
)

// validAttribute checks an attribute's name by CloudEvents' rule, and that its value can be a header's.
func validAttribute(name, value string) error {
	if name == "" || len(name) > 64 || strings.ContainsFunc(name, func(r rune) bool { return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9') }) {
		return fmt.Errorf("%w: attribute %q: use 1 to 64 of a-z 0-9", ErrInvalid, name)
	}
	if name == "data" {
		return fmt.Errorf("%w: attribute data: it is the payload's name in an event: use another", ErrInvalid)
	}
	if value == "" || ValidHeader(HeaderAttribute+name, value) != nil {
		return fmt.Errorf("%w: attribute %s: %q: use printable UTF-8 text, without line breaks", ErrInvalid, name, value)
	}
	return nil
}

func validAttributes(attributes map[string]string) error {
	size := 0
	for name, value := range attributes {
		if err := validAttribute(name, value); err != nil {
			return err
		}
		size += len(name) + len(value)
	}
	if len(attributes) > maxAttributes || size > attributeBytes {
		return fmt.Errorf("%w: %d attributes of %d bytes: use at most %d of %d bytes together", ErrInvalid, len(attributes), size, maxAttributes, attributeBytes)
	}
	return nil
}
