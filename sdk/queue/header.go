package queue

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// MaxHeaders is the most headers of a task beside traceparent, which it may inherit.
	MaxHeaders = 32
	// MaxHeaderBytes is the most bytes of the names and values of these together.
	MaxHeaderBytes = 8 << 10
)

// The headers of W3C Trace Context. The first is a field of its own in Redis, because children inherit it.
const (
	HeaderTraceparent = "traceparent"
	HeaderTracestate  = "tracestate"
)

// headerSigns are the characters of a header's name: those of HTTP's tokens (RFC 9110 §5.6.2) without capital letters.
const headerSigns = "abcdefghijklmnopqrstuvwxyz0123456789-_.!#$%&'*+^`|~"

// ValidHeader returns nil for a header that a task may have, or an ErrInvalid that says what is wrong with it.
func ValidHeader(name, value string) error {
	switch {
	case name == "" || strings.Trim(name, headerSigns) != "":
		if lower := strings.ToLower(name); lower != name && strings.Trim(lower, headerSigns) == "" {
			return fmt.Errorf("%w: header %q: write its name in lower case: %s", ErrInvalid, name, lower)
		}
		return fmt.Errorf("%w: header %q: use a name of a-z, 0-9 and -_.!#$%%&'*+^`|~", ErrInvalid, name)
	case !utf8.ValidString(value) || strings.ContainsFunc(value, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("%w: header %s: %q: use printable UTF-8 text, without line breaks", ErrInvalid, name, value)
	case name == HeaderTraceparent && TraceID(value) == "":
		return invalidTraceparent(value)
	}
	return nil
}

// TraceID is the trace that a W3C traceparent names, "" if text has not the form 00-TRACE-PARENT-FLAGS in hexadecimal digits, of
// which trace and parent are not all 0. Versions after 00 may be longer, and ff is none.
func TraceID(text string) string {
	const hex, size = "0123456789abcdef", len("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	if len(text) < size {
		return ""
	}
	for i := range size {
		if dash := i == 2 || i == 35 || i == 52; dash != (text[i] == '-') || !dash && strings.IndexByte(hex, text[i]) < 0 {
			return ""
		}
	}
	trace, rest := text[3:35], text[size:]
	switch {
	case text[:2] == "ff", strings.Trim(trace, "0") == "", strings.Trim(text[36:52], "0") == "":
		return ""
	case rest != "" && (text[:2] == "00" || rest[0] != '-' || len(rest) > 200 || strings.Trim(rest, "0123456789abcdefghijklmnopqrstuvwxyz-") != ""):
		return ""
	}
	return trace
}

// SampledTraceID is TraceID if the traceparent tells that the trace was sampled, else "": others are not to be found.
func SampledTraceID(traceparent string) string {
	id := TraceID(traceparent)
	if id != "" && strings.IndexByte("13579bdf", traceparent[54]) >= 0 { // bit 0 of the flags
		return id
	}
	return ""
}

func invalidTraceparent(text string) error {
	return fmt.Errorf("%w: traceparent %q: use VERSION-TRACE-PARENT-FLAGS in hexadecimal digits", ErrInvalid, text)
}

// validateHeaders checks number, size, names and values, and that there is one traceparent.
func (o *Options) validateHeaders() error {
	if n := len(others(o.Headers)); n > MaxHeaders {
		return fmt.Errorf("%w: %d headers: use at most %d beside traceparent", ErrInvalid, n, MaxHeaders)
	}
	for _, name := range slices.Sorted(maps.Keys(o.Headers)) {
		if err := ValidHeader(name, o.Headers[name]); err != nil {
			return err
		}
	}
	size := headerBytes(others(o.Headers))
	trace, ok := o.Headers[HeaderTraceparent]
	switch {
	case size > MaxHeaderBytes:
		return fmt.Errorf("%w: headers of %d bytes: use at most %d, and put the rest into the parameters", ErrInvalid, size, MaxHeaderBytes)
	case ok && o.Traceparent != "" && trace != o.Traceparent:
		return fmt.Errorf("%w: traceparent %s and a header traceparent %s: give one of them", ErrInvalid, o.Traceparent, trace)
	}
	return nil
}

// headerBytes is how many bytes names and values have.
func headerBytes(headers map[string]string) (size int) {
	for name, value := range headers {
		size += len(name) + len(value)
	}
	return size
}

// others are the headers without traceparent, which is a field of its own.
func others(headers map[string]string) map[string]string {
	if _, ok := headers[HeaderTraceparent]; ok {
		headers = maps.Clone(headers)
		delete(headers, HeaderTraceparent)
	}
	return headers
}

// fit tells whether a task may have as many headers.
func fit(headers map[string]string) bool {
	headers = others(headers)
	return len(headers) <= MaxHeaders && headerBytes(headers) <= MaxHeaderBytes
}

// InheritTrace returns the headers of a task with a trace that it inherits, unless they name their own: traceparent together with
// tracestate, which belongs to it. from may be of anybody: without a valid traceparent it has no trace, and a tracestate that is
// invalid, or that does not fit beside the others, is left out. It changes neither map.
func InheritTrace(from, headers map[string]string) map[string]string {
	trace, state := from[HeaderTraceparent], from[HeaderTracestate]
	if _, own := headers[HeaderTraceparent]; own || TraceID(trace) == "" {
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

// inheriting returns copies of specs that have these headers as well, unless they have their own.
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

// encodeHeaders is the field of the hash, "" without headers.
func encodeHeaders(headers map[string]string) string {
	if headers = others(headers); len(headers) == 0 {
		return ""
	}
	text, _ := json.Marshal(headers) // a map of strings always can be
	return string(text)
}

// parseHeaders reads the headers of a task, nil if it has none. Damaged ones are left out, and all if they
// are more than a task may have.
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
	if TraceID(traceparent) != "" {
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
