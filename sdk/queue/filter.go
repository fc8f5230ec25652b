package queue

import (
	"fmt"
	"strings"
)

// Filter chooses publications. All of its patterns and values must match.
type Filter struct {
	// Attributes maps the name of an attribute to a pattern for its value. A pattern can contain one *, which stands for
	// any text. A publication without the attribute does not match.
	Attributes map[string]string `json:"attributes,omitempty"`
	// Data maps a JSON pointer (RFC 6901) to a JSON value. In the payload, the pointer must lead to an equal value. A
	// payload that is not JSON in UTF-8 does not match. A number of more than 16 KiB equals no value.
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
		if pattern == "" {
			return fmt.Errorf("%w: filter of attribute %s: it is empty: use a text, or * for any", ErrInvalid, name)
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

// Matches reports whether a publication with this topic, these attributes and this payload matches the subscription,
// whether or not the subscription is active.
func (s *Subscription) Matches(topic string, attributes map[string]string, payload []byte) bool {
	return s.matches(newEvent(topic, attributes, payload, s))
}

// OfTopic reports whether the subscription's topic is the given one, or is a pattern that matches it.
func (s *Subscription) OfTopic(topic string) bool { return matches(s.Topic, topic) }

// event is a publication in the form in which filters are applied to it. Its payload is parsed at most once, for all
// subscriptions.
type event struct {
	topic      string
	attributes map[string]string
	payload    []byte
	data       selection
	isJSON     bool
}

// newEvent makes an event, and reads from the payload what the filters of the given subscriptions compare.
func newEvent(topic string, attributes map[string]string, payload []byte, subscriptions ...*Subscription) *event {
	e := &event{topic: topic, attributes: attributes, payload: payload}
	for _, s := range subscriptions {
		if len(s.Filter.Data) > 0 && s.mayMatch(e) {
			for pointer := range s.Filter.Data {
				e.data.add(pointer)
			}
		}
	}
	e.isJSON = len(e.data.named) > 0 && e.data.read(payload)
	return e
}

// mayMatch reports whether the topic and the attributes match; it does not look at the payload.
func (s *Subscription) mayMatch(e *event) bool {
	if !s.OfTopic(e.topic) {
		return false
	}
	for name, pattern := range s.Filter.Attributes {
		value, ok := e.attributes[name]
		if !ok || !matches(pattern, value) {
			return false
		}
	}
	return true
}

func (s *Subscription) matches(e *event) bool {
	if !s.mayMatch(e) {
		return false
	}
	for pointer, want := range s.Filter.Data {
		if is := e.data.at(pointer); !e.isJSON || is == nil || !equalJSON(is, want) {
			return false
		}
	}
	return true
}

// matches reports whether a text matches a pattern, in which one * stands for any text.
func matches(pattern, text string) bool {
	before, after, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern == text
	}
	return len(text) >= len(before)+len(after) && strings.HasPrefix(text, before) && strings.HasSuffix(text, after)
}

const (
	// maxAttributes is the maximum number of attributes of a publication. attributeBytes is the maximum size of all their
	// names and values together, in bytes.
	maxAttributes  = 24
	attributeBytes = 6 << 10
)

// validAttribute checks that an attribute's name is valid in CloudEvents, and that its value is valid in a header.
func validAttribute(name, value string) error {
	if name == "" || len(name) > 64 || strings.ContainsFunc(name,
		func(r rune) bool { return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9') }) {
		return fmt.Errorf("%w: attribute %q: use 1 to 64 of a-z 0-9", ErrInvalid, name)
	}
	if name == "data" {
		return fmt.Errorf("%w: attribute data: it is the payload's name in an event: use another", ErrInvalid)
	}
	if ValidHeader(HeaderAttribute+name, value) != nil {
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
		return fmt.Errorf("%w: %d attributes of %d bytes: use at most %d of %d bytes together", ErrInvalid, len(attributes),
			size, maxAttributes, attributeBytes)
	}
	return nil
}
