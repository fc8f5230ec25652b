package api

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/trace"
	"github.com/quern-project/quern/sdk/queue"
)

// event is a CloudEvent. json is the whole event. Data and DataBase64 are slices of json; the attributes are copies.
type event struct {
	SpecVersion, ID, Source, Type, Subject, Traceparent string
	// Data and DataBase64 are JSON values; nil if they are missing. DataBase64 is also nil if its JSON value is null.
	Data, DataBase64 json.RawMessage
	json             json.RawMessage
	headers          map[string]string // the attributes, in the form of headers of the task
}

// attributes returns the attributes of an event as headers: ce-NAME, as in CloudEvents' HTTP binding, and tracestate
// under its own name. It returns an error if a header cannot have an attribute, because the attribute is too long or
// has control characters. Nobody would notice if such an attribute were left out.
func attributes(members map[string]json.RawMessage) (map[string]string, error) {
	headers := make(map[string]string, len(members))
	size := 0
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if name == "data" || name == "data_base64" || name == queue.HeaderTraceparent || string(members[name]) == "null" {
			continue
		}
		value, err := attribute(name, members[name])
		if err != nil {
			return nil, err
		}
		header := queue.HeaderAttribute + name
		if name == queue.HeaderTracestate {
			header = name
		}
		if size += len(header) + len(value); len(headers) == queue.MaxHeaders || size > queue.MaxHeaderBytes {
			return nil, fmt.Errorf("attribute %.100q exceeds the bound of %d attributes, or of %d bytes for all: put the rest into the data", name, queue.MaxHeaders, queue.MaxHeaderBytes)
		}
		if err := queue.ValidHeader(header, value); err != nil {
			return nil, fmt.Errorf("attribute %.100q has a value that no header can have: use printable text without line breaks, and put anything else into the data", name)
		}
		headers[header] = value
	}
	return headers, nil
}

// attribute returns the value of an attribute as text.
func attribute(name string, member json.RawMessage) (string, error) {
	if strings.Trim(name, attributeLetters) != "" || name == "" {
		return "", fmt.Errorf("attribute %.100q: names have a-z and 0-9 only", name)
	}
	value := string(member)
	switch value[0] {
	case '"':
		_ = json.Unmarshal(member, &value) // valid, as readEvent has checked
	case '{', '[':
		return "", fmt.Errorf("attribute %.100q is an object or a list: write text, a number or a truth value, or put it into the data", name)
	}
	if _, err := time.Parse(time.RFC3339, value); name == "time" && (err != nil || !timestamp.MatchString(value)) {
		return "", fmt.Errorf("attribute \"time\" is %.100q: write it as in 2006-01-02T15:04:05.5Z (RFC 3339)", value)
	}
	return value, nil
}

// timestamp matches a time in the form of RFC 3339. time.Parse alone also accepts hours of one digit and a comma before
// the fraction.
var timestamp = regexp.MustCompile(`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})$`)

// attributeLetters are the characters that the name of an attribute may have.
const attributeLetters = "abcdefghijklmnopqrstuvwxyz0123456789"

// readEvent parses an event in CloudEvents' JSON format.
func readEvent(whole json.RawMessage) (e event, err error) {
	if !json.Valid(whole) {
		return e, errors.New("it is no JSON: write an object")
	}
	if err := admin.CheckUnicode(whole); err != nil {
		return e, err
	}
	w := &walker{text: whole}
	if w.next() != '{' {
		return e, errors.New("it is no object")
	}
	members := make(map[string]json.RawMessage)
	for more := w.enter('}'); more; {
		name, err := w.name()
		if err != nil {
			return e, err
		}
		value, err := w.value()
		if err != nil {
			return e, err
		}
		if _, twice := members[string(name)]; twice {
			return e, fmt.Errorf("%.100q is there twice: leave one of them out", name)
		}
		if members[string(name)] = value; len(members) > maxMembers {
			return e, fmt.Errorf("it has more than %d members: put them into its data", maxMembers)
		}
		if more, err = w.another('}'); err != nil {
			return e, err
		}
	}
	e.json = whole
	for name, field := range map[string]*string{
		"specversion": &e.SpecVersion, "id": &e.ID, "source": &e.Source, "type": &e.Type, "subject": &e.Subject,
		queue.HeaderTraceparent: &e.Traceparent,
	} {
		if value, is := members[name]; is {
			if err := json.Unmarshal(value, field); err != nil {
				return e, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	for name, field := range map[string]*json.RawMessage{"data": &e.Data, "data_base64": &e.DataBase64} {
		if value := members[name]; string(value) != "null" || name == "data" {
			*field = value
		}
	}
	if e.DataBase64 != nil {
		if err := validBase64(e.DataBase64); err != nil {
			return e, fmt.Errorf("data_base64: %w", err)
		}
	}
	e.headers, err = attributes(members)
	return e, err
}

// validBase64 returns an error unless a JSON value is a string of base64. It does not keep the decoded bytes, because
// there may be many.
func validBase64(value json.RawMessage) error {
	if value[0] != '"' {
		return errors.New("it is no text")
	}
	text := value[1 : len(value)-1]
	if bytes.IndexByte(text, '\\') >= 0 {
		var plain string
		if err := json.Unmarshal(value, &plain); err != nil {
			return err
		}
		text = []byte(plain)
	}
	if _, err := io.Copy(io.Discard, base64.NewDecoder(base64.StdEncoding, bytes.NewReader(text))); err != nil {
		return errors.New("write base64 of A-Z, a-z, 0-9, + and /, padded with = (RFC 4648, section 4)")
	}
	return nil
}

// elements splits a JSON array into its elements, as JSON. It returns an error if there are more than limit elements.
func elements(body []byte, limit int) (parts []json.RawMessage, err error) {
	w := &walker{text: body}
	if w.next() != '[' {
		return nil, errors.New("batch: write a JSON array of events")
	}
	for more := w.enter(']'); more; {
		if len(parts) == limit {
			return nil, fmt.Errorf("the batch has more than %d events: send fewer at a time", limit)
		}
		part, err := w.value()
		if err == nil {
			more, err = w.another(']')
		}
		if err != nil {
			return nil, fmt.Errorf("batch: event %d: %w", len(parts), err)
		}
		parts = append(parts, part)
	}
	if w.next() != 0 {
		return nil, fmt.Errorf("batch: %w", w.wrong())
	}
	return parts, nil
}

const (
	eventType = "application/cloudevents+json"
	batchType = "application/cloudevents-batch+json"
	maxEvents = 1000
)

// parseEvents parses the events of a request in any of the three modes of CloudEvents over HTTP: structured, batched
// and binary.
func parseEvents(contentType string, header http.Header, body []byte) ([]event, error) {
	media, _, err := mime.ParseMediaType(contentType)
	if contentType != "" && err != nil {
		return nil, fmt.Errorf("header Content-Type %q: %w", contentType, err)
	}
	parts := []json.RawMessage{body}
	switch media {
	case eventType:
	case batchType:
		if parts, err = elements(body, maxEvents); err != nil {
			return nil, err
		}
	default:
		if parts[0], err = fromHeaders(header, media, contentType, body); err != nil {
			return nil, err
		}
	}
	events := make([]event, len(parts))
	for i, part := range parts {
		if events[i], err = readEvent(part); err != nil {
			return nil, fmt.Errorf("event %d: %w", i, err)
		}
		e := &events[i]
		switch {
		case e.SpecVersion != "1.0":
			return nil, fmt.Errorf("event %d: specversion is %q: only 1.0 is accepted", i, e.SpecVersion)
		case e.ID == "" || e.Source == "" || e.Type == "":
			return nil, fmt.Errorf("event %d: id, source and type are needed, and one is missing or empty", i)
		case e.Data != nil && e.DataBase64 != nil:
			return nil, fmt.Errorf("event %d: both data and data_base64: give one of them", i)
		}
		if !utf8.Valid(part) {
			return nil, fmt.Errorf("event %d: not UTF-8: write bytes as data_base64", i)
		}
		if trace.ID(e.Traceparent) == "" {
			e.Traceparent = "" // an invalid traceparent is no reason to refuse the event
		}
		if e.Traceparent == "" {
			delete(e.headers, queue.HeaderTracestate) // tracestate has no meaning without traceparent
		}
	}
	return events, nil
}

// fromHeaders converts an event that was sent in binary mode to the JSON format.
func fromHeaders(header http.Header, media, contentType string, body []byte) (json.RawMessage, error) {
	whole := make(map[string]any)
	for name, values := range header {
		attribute, is := strings.CutPrefix(strings.ToLower(name), "ce-")
		if !is {
			continue
		}
		value, err := attributeOf(values[0])
		switch {
		case len(values) > 1:
			return nil, fmt.Errorf("two headers %q: give one of them", name)
		case attribute == "data":
			return nil, fmt.Errorf("header %q: send it as the body", name)
		case attribute == "datacontenttype":
			return nil, fmt.Errorf("header %q: send it as Content-Type", name)
		case strings.Trim(attribute, attributeLetters) != "":
			return nil, fmt.Errorf("header %q: use names of a-z and 0-9", name)
		case err != nil:
			return nil, fmt.Errorf("attribute %.100q: %w", attribute, err)
		}
		whole[attribute] = value
	}
	if len(whole) == 0 {
		return nil, fmt.Errorf("no event: send the type %s or %s, or headers ce-specversion, ce-id, ce-source and ce-type",
			eventType, batchType)
	}
	if !utf8.ValidString(contentType) {
		return nil, errors.New("header Content-Type: not UTF-8")
	}
	if contentType != "" {
		whole["datacontenttype"] = contentType
	}
	switch {
	case len(body) == 0:
	case media != "" && queue.IsJSON(media) && json.Valid(body):
		whole["data"] = json.RawMessage(body)
	case strings.HasPrefix(media, "text/") && utf8.Valid(body):
		whole["data"] = string(body)
	default:
		whole["data_base64"] = body
	}
	return json.Marshal(whole)
}

// attributeOf decodes the value of an attribute from its header (HTTP Protocol Binding for CloudEvents 1.0.2, section
// 3.1.3.2).
func attributeOf(header string) (string, error) {
	if strings.HasPrefix(header, `"`) {
		plain, err := unquoted(header)
		if err != nil {
			return "", err
		}
		header = plain
	}
	value, err := url.PathUnescape(header)
	switch {
	case err != nil:
		return "", fmt.Errorf("%w: write %% as %%25", err)
	case !utf8.ValidString(value): // JSON would have U+FFFD instead of the invalid bytes
		return "", errors.New("not UTF-8: write UTF-8, percent-encoded")
	}
	return value, nil
}

// unquoted returns the content of a quoted string in an HTTP header (RFC 7230, section 3.2.6).
func unquoted(text string) (string, error) {
	var plain strings.Builder
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == '"' && i == len(text)-1:
			return plain.String(), nil
		case text[i] == '"':
			return "", errors.New("text follows the closing quote: write %22 for a quote inside the text")
		case text[i] == '\\' && i < len(text)-1:
			i++
		}
		plain.WriteByte(text[i])
	}
	return "", errors.New("the closing quote is missing: add it, or write %22 for a quote inside the text")
}
