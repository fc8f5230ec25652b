package queue

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/quern-project/quern/sdk/queue/internal/store"
)

const (
	// MaxHeaders is the maximum number of headers of a task. traceparent does not count, because a task can inherit it.
	MaxHeaders = 32
	// MaxHeaderBytes is the maximum size of the names and values of these headers together, in bytes.
	MaxHeaderBytes = 8 << 10
)

// The headers of W3C Trace Context. traceparent has a separate field in the task's hash, because children inherit it.
const (
	HeaderTraceparent = "traceparent"
	HeaderTracestate  = "tracestate"
)

// headerSigns are the characters of a header's name: the characters of HTTP tokens (RFC 9110 §5.6.2) without capital
// letters.
const headerSigns = "abcdefghijklmnopqrstuvwxyz0123456789-_.!#$%&'*+^`|~"

// ValidHeader checks a header of a task. It returns an ErrInvalid that explains what is wrong.
func ValidHeader(name, value string) error {
	switch {
	case name == "" || strings.Trim(name, headerSigns) != "":
		if lower := strings.ToLower(name); lower != name && strings.Trim(lower, headerSigns) == "" {
			return fmt.Errorf("%w: header %q: write its name in lower case: %s", ErrInvalid, name, lower)
		}
		return fmt.Errorf("%w: header %q: use a name of a-z, 0-9 and -_.!#$%%&'*+^`|~", ErrInvalid, name)
	case !utf8.ValidString(value) || strings.ContainsFunc(value, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("%w: header %s: %q: use printable UTF-8 text, without line breaks", ErrInvalid, name, value)
	case name == HeaderTraceparent && store.TraceID(value) == "":
		return invalidTraceparent(value)
	}
	return nil
}

func invalidTraceparent(text string) error {
	return fmt.Errorf("%w: traceparent %q: use VERSION-TRACE-PARENT-FLAGS in hexadecimal digits", ErrInvalid, text)
}

// validateHeaders checks the number, size, names and values of the headers, and that a header traceparent does not
// contradict Traceparent.
func (o *Options) validateHeaders() error {
	if n := len(withoutTraceparent(o.Headers)); n > MaxHeaders {
		return fmt.Errorf("%w: %d headers: use at most %d beside traceparent", ErrInvalid, n, MaxHeaders)
	}
	for _, name := range slices.Sorted(maps.Keys(o.Headers)) {
		if err := ValidHeader(name, o.Headers[name]); err != nil {
			return err
		}
	}
	size := headerBytes(withoutTraceparent(o.Headers))
	trace, ok := o.Headers[HeaderTraceparent]
	switch {
	case size > MaxHeaderBytes:
		return fmt.Errorf("%w: headers of %d bytes: use at most %d, and put the rest into the parameters", ErrInvalid, size,
			MaxHeaderBytes)
	case ok && o.Traceparent != "" && trace != o.Traceparent:
		return fmt.Errorf("%w: traceparent %s and a header traceparent %s: give one of them", ErrInvalid, o.Traceparent,
			trace)
	}
	return nil
}

// headerBytes returns the number of bytes of all names and values.
func headerBytes(headers map[string]string) (size int) {
	for name, value := range headers {
		size += len(name) + len(value)
	}
	return size
}

// withoutTraceparent returns the headers without traceparent, which has a separate field in the task's hash.
func withoutTraceparent(headers map[string]string) map[string]string {
	if _, ok := headers[HeaderTraceparent]; ok {
		headers = maps.Clone(headers)
		delete(headers, HeaderTraceparent)
	}
	return headers
}

// fit reports whether the headers are within MaxHeaders and MaxHeaderBytes.
func fit(headers map[string]string) bool {
	headers = withoutTraceparent(headers)
	return len(headers) <= MaxHeaders && headerBytes(headers) <= MaxHeaderBytes
}

// InheritTrace returns headers with the trace of source added: its traceparent and tracestate. It returns headers
// unchanged if they already have a traceparent, or if source has no valid one. A tracestate that is invalid, or with
// which the headers would be too large, is left out, because source can come from anybody. InheritTrace changes neither
// map.
func InheritTrace(source, headers map[string]string) map[string]string {
	trace, state := source[HeaderTraceparent], source[HeaderTracestate]
	if _, own := headers[HeaderTraceparent]; own || store.TraceID(trace) == "" {
		return headers
	}
	all := make(map[string]string, len(headers)+2)
	maps.Copy(all, headers)
	all[HeaderTraceparent], all[HeaderTracestate] = trace, state
	if state == "" || ValidHeader(HeaderTracestate, state) != nil || !fit(all) {
		delete(all, HeaderTracestate)
	}
	return all
}

// inheriting returns copies of specs with the given headers added. A spec's own headers take precedence.
func inheriting(headers map[string]string, specs []Spec) []Spec {
	if len(headers) == 0 {
		return specs
	}
	specs = slices.Clone(specs)
	for i := range specs {
		s := &specs[i]
		all := maps.Clone(headers)
		delete(all, HeaderTraceparent)
		delete(all, HeaderTracestate)
		maps.Copy(all, s.Headers)
		if s.Headers = all; s.Traceparent == "" {
			s.Headers = InheritTrace(headers, all)
		}
	}
	return specs
}

// encodeHeaders encodes the headers for the field `headers` of a task's hash; "" if there are none.
func encodeHeaders(headers map[string]string) string {
	if headers = withoutTraceparent(headers); len(headers) == 0 {
		return ""
	}
	text, _ := json.Marshal(headers) // a map of strings can always be encoded
	return string(text)
}

// ParseHeaders reads the headers of a task from the fields headers and traceparent of its hash. It returns nil if there
// are none. It leaves out invalid headers, and all headers except traceparent if they exceed MaxHeaders or
// MaxHeaderBytes.
func ParseHeaders(text, traceparent string) (headers map[string]string) {
	if text != "" {
		if json.Unmarshal([]byte(text), &headers) != nil {
			headers = nil
		}
		maps.DeleteFunc(headers, func(name, value string) bool { return ValidHeader(name, value) != nil })
		if delete(headers, HeaderTraceparent); !fit(headers) {
			headers = nil
		}
	}
	if store.TraceID(traceparent) != "" {
		if headers == nil {
			headers = make(map[string]string, 1)
		}
		headers[HeaderTraceparent] = traceparent
	}
	if len(headers) == 0 {
		return nil
	}
	return headers
}
