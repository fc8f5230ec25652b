package api

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/danielgtaylor/huma/v2/validation"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/sdk/queue"
)

const (
	// A body of n bytes takes 2n bytes of memory: n as received and n decoded. Decoded JSON takes more: at most valueCost
	// bytes for each value, and objectCost bytes for each object in a list, as measured with bodies of the smallest
	// values. A value that takes memory of its own has at least four bytes of JSON, an object three.
	valueCost  = 80
	objectCost = 2 << 10
	// A body that takes at most smallCost bytes reserves no memory, so that large bodies do not keep it out. All small
	// bodies together take at most 16 MiB, because maxRequests bounds their number.
	smallCost = 16 << 10
	// maxValues is the maximum number of JSON values in a body, maxMembers of members in an object whose members the
	// client names, and maxErrors of errors that a problem lists. The check of a body ends when one of them is exceeded.
	maxValues  = 200_000
	maxMembers = 1000
	maxErrors  = 20
)

// bodyCost returns how many bytes to reserve for a body of this size before it is read. schema is the schema of a JSON
// body. If schema is nil, the operation keeps the given number of copies of the body.
func (s *service) bodyCost(size int64, schema *huma.Schema, copies int64) int64 {
	if schema == nil {
		return copies * size
	}
	objects := int64(0)
	for _, property := range s.resolved(schema).Properties {
		if property.Type == huma.TypeArray && property.MaxItems != nil && s.resolved(property.Items).Type == huma.TypeObject {
			objects += int64(*property.MaxItems)
		}
	}
	return 2*size + min(size/4, maxValues)*valueCost + min(size/3, objects)*objectCost
}

// resolved returns the schema that a reference stands for.
func (s *service) resolved(schema *huma.Schema) *huma.Schema {
	for schema.Ref != "" {
		schema = s.api.OpenAPI().Components.Schemas.SchemaFromRef(schema.Ref)
	}
	return schema
}

// boundBody reads the body of a request within bounds of memory and time. It reserves the memory first, and checks JSON
// against the operation's schema before anything is decoded. The operation finds the body in caller.body.
func (s *service) boundBody(ctx huma.Context, next func(huma.Context)) {
	op := ctx.Operation()
	r, w := humago.Unwrap(ctx)
	if op.RequestBody == nil {
		if r.Method != http.MethodGet && r.Method != http.MethodHead && hasBody(r) {
			s.refuse(ctx, http.StatusUnprocessableEntity, "%s takes no body: send none, and what it is to do in the path and the query",
				op.OperationID)
			return
		}
		next(ctx)
		return
	}
	var schema *huma.Schema
	if media := op.RequestBody.Content["application/json"]; media != nil {
		schema = media.Schema
	}
	if schema != nil && !queue.IsJSON(ctx.Header("Content-Type")) {
		s.refuse(ctx, http.StatusUnsupportedMediaType, "Content-Type %.100q: send application/json",
			ctx.Header("Content-Type"))
		return
	}
	if coding := codings(r.Header); coding != "" {
		s.refuse(ctx, http.StatusUnsupportedMediaType, "Content-Encoding %.100q: send the body as it is, without a coding",
			coding)
		return
	}
	most := op.MaxBodyBytes - 1
	size := r.ContentLength
	if size < 0 || size > most { // the size is unknown; or too large, and readBody refuses the body
		size = most
	}
	if size > 0 && r.ContentLength <= most {
		if cost := s.bodyCost(size, schema, operationOf(ctx).copies); cost > smallCost {
			if err := s.reserve(ctx.Context(), cost); err != nil {
				s.refuse(ctx, http.StatusServiceUnavailable, "%v", err)
				return
			}
		}
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(slowGrace)) // every connection has a read deadline
	body, err := readBody(&pacedBody{ReadCloser: r.Body, control: control, began: time.Now()}, r.ContentLength, most)
	if err != nil {
		status := http.StatusBadRequest
		var slow net.Error
		switch {
		case errors.Is(err, errTooLarge):
			status = http.StatusRequestEntityTooLarge
		case errors.As(err, &slow) && slow.Timeout():
			status, err = http.StatusRequestTimeout, errors.New("the body came too slowly")
		}
		s.refuse(ctx, status, "%v", err)
		return
	}
	c := callerOf(ctx.Context())
	r.Body = http.NoBody
	if c.body = body; schema != nil {
		if !s.checkBody(ctx, schema, body) {
			return
		}
		r.Body = io.NopCloser(strings.NewReader("{}")) // huma decodes {} and sets defaults; decodeBody decodes the body
	}
	next(ctx)
}

// hasBody reports whether a request has a body that says something: {} and space say nothing.
func hasBody(r *http.Request) bool {
	const most = 64
	begin, err := io.ReadAll(io.LimitReader(r.Body, most))
	text := strings.TrimSpace(string(begin))
	return err != nil || len(begin) == most || text != "" && text != "{}"
}

// codings returns the content codings that the headers of a request name, separated by commas, without identity.
func codings(header http.Header) string {
	var all []string
	for coding := range strings.SplitSeq(strings.Join(header.Values("Content-Encoding"), ","), ",") {
		if coding = strings.TrimSpace(coding); coding != "" && !strings.EqualFold(coding, "identity") {
			all = append(all, coding)
		}
	}
	return strings.Join(all, ", ")
}

// checkBody reports whether the schema accepts the body. If so, it shrinks the reservation to what decoding takes; if
// not, it answers the request.
func (s *service) checkBody(ctx huma.Context, schema *huma.Schema, body []byte) bool {
	if len(body) == 0 {
		s.refuse(ctx, http.StatusBadRequest, "request body is required: send JSON")
		return false
	}
	if err := admin.CheckUnicode(body); err != nil {
		_ = huma.WriteErr(s.api, ctx, http.StatusBadRequest, "validation failed",
			&huma.ErrorDetail{Location: "body", Message: err.Error()})
		return false
	}
	check := &bodyCheck{
		walker: walker{text: body}, service: s, schemas: s.api.OpenAPI().Components.Schemas,
		path: []byte("body"), free: huma.NewPathBuffer(nil, 0),
	}
	err := check.value(schema)
	if err == nil && check.next() != 0 {
		err = check.wrong()
	}
	switch {
	case err != nil && !errors.Is(err, errEnough):
		_ = huma.WriteErr(s.api, ctx, http.StatusBadRequest, "validation failed",
			&huma.ErrorDetail{Location: "body", Message: err.Error()})
	case len(check.found.Errors) > 0:
		_ = huma.WriteErr(s.api, ctx, http.StatusUnprocessableEntity, "validation failed", check.found.Errors...)
	default:
		callerOf(ctx.Context()).memory.Shrink(int64(2*len(body) + check.values*valueCost + check.objects*objectCost))
		return true
	}
	return false
}

var errTooLarge = errors.New("the body is too large")

// readBody reads a body, and returns errTooLarge if the body has more than limit bytes. declared is the body's
// Content-Length, or -1 if it is unknown.
func readBody(body io.Reader, declared, limit int64) ([]byte, error) {
	if declared > limit {
		_, _ = io.CopyN(io.Discard, body, limit) // so that the client gets the answer
		return nil, errTooLarge
	}
	if declared >= 0 {
		whole := make([]byte, declared)
		_, err := io.ReadFull(body, whole)
		if err == nil {
			_, err = body.Read(whole[:0]) // at the end of the body, pacedBody removes the deadline
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return whole, err
	}
	whole, err := io.ReadAll(io.LimitReader(body, limit+1))
	if err == nil && int64(len(whole)) > limit {
		err = errTooLarge
	}
	return whole, err
}

// decodeBody decodes the body of a request, and then drops the body's bytes. checkBody has accepted the body.
func decodeBody(c *caller, into any) error {
	err := json.Unmarshal(c.body, into)
	c.body = nil
	if err == nil {
		return nil
	}
	message, status := err.Error(), http.StatusUnprocessableEntity
	if _, is := errors.AsType[base64.CorruptInputError](err); is {
		message = validation.MsgExpectedBase64String
	} else if _, is := errors.AsType[*json.SyntaxError](err); is {
		status = http.StatusBadRequest
	}
	return huma.NewError(status, "validation failed", &huma.ErrorDetail{Location: "body", Message: message})
}

// bodyCheck checks JSON against a schema, value by value. It stops as soon as a bound is exceeded.
type bodyCheck struct {
	walker
	service         *service
	schemas         huma.Registry
	path            []byte           // path of the current value, for errors
	free            *huma.PathBuffer // the empty path for huma.Validate; scalar then sets the path of its errors
	found           huma.ValidateResult
	values, objects int
}

// errEnough ends a check early; only the errors found so far are reported.
var errEnough = errors.New("there is more")

// add records an error at the current path.
func (c *bodyCheck) add(format string, args ...any) error {
	c.found.Errors = append(c.found.Errors, &huma.ErrorDetail{
		Location: string(c.path),
		Message:  fmt.Sprintf(format, args...),
	})
	return c.enough()
}

func (c *bodyCheck) enough() error {
	if len(c.found.Errors) >= maxErrors {
		return errEnough
	}
	return nil
}

// end records that a bound is exceeded, and ends the check.
func (c *bodyCheck) end(format string, args ...any) error {
	_ = c.add(format, args...)
	return errEnough
}

// value checks the next value, and goes past it.
func (c *bodyCheck) value(schema *huma.Schema) error {
	schema = c.service.resolved(schema)
	if c.values++; c.values > maxValues {
		return c.end("the body has more than %d values: send less at a time", maxValues)
	}
	first := c.next()
	switch {
	case schema.Type == huma.TypeArray && first == '[':
		return c.array(schema)
	case schema.Type == huma.TypeObject && first == '{':
		return c.object(schema)
	}
	text, err := c.walker.value()
	if err != nil || schema.Type == "" { // a schema without a type accepts every value
		return err
	}
	return c.scalar(schema, text)
}

// scalar checks a scalar, or an array or object where the schema requires something else.
func (c *bodyCheck) scalar(schema *huma.Schema, text []byte) error {
	var value any
	switch text[0] {
	case '[':
		value = []any{}
	case '{':
		value = map[string]any{}
	case '"':
		free := schema.MinLength == nil && schema.MaxLength == nil && schema.Pattern == "" && schema.Format == "" &&
			len(schema.Enum) == 0
		switch {
		case schema.Type != huma.TypeString:
			value = ""
		case schema.ContentEncoding != "" || free: // decoding finds the errors
			return nil
		case schema.MaxLength != nil && len(text)-2 > 12**schema.MaxLength: // a character has at most 12 bytes: two escapes
			return c.add(validation.MsgExpectedMaxLength, *schema.MaxLength)
		default:
			var plain string
			if err := json.Unmarshal(text, &plain); err != nil {
				return err
			}
			value = plain
		}
	default:
		err := json.Unmarshal(text, &value)
		if _, is := errors.AsType[*json.UnmarshalTypeError](err); is {
			return c.add("the number %.100s is too large", text)
		}
		if err != nil {
			return err
		}
	}
	before := len(c.found.Errors)
	huma.Validate(c.schemas, schema, c.free, huma.ModeWriteToServer, value, &c.found)
	for _, err := range c.found.Errors[before:] {
		if detail, ok := err.(*huma.ErrorDetail); ok { //nolint:errorlint // Validate wraps none
			detail.Location, detail.Value = string(c.path), nil
		}
	}
	return c.enough()
}

func (c *bodyCheck) array(schema *huma.Schema) (err error) {
	here, n := len(c.path), 0
	for more := c.enter(']'); more; n++ {
		if schema.MaxItems != nil && n == *schema.MaxItems {
			return c.end(validation.MsgExpectedMaxItems, *schema.MaxItems)
		}
		c.path = fmt.Appendf(c.path, "[%d]", n)
		if c.next() == '{' {
			c.objects++
		}
		if err = c.value(schema.Items); err != nil {
			return err
		}
		c.path = c.path[:here]
		if more, err = c.another(']'); err != nil {
			return err
		}
	}
	if schema.MinItems != nil && n < *schema.MinItems {
		return c.add(validation.MsgExpectedMinItems, *schema.MinItems)
	}
	return nil
}

func (c *bodyCheck) object(schema *huma.Schema) (err error) {
	others, _ := schema.AdditionalProperties.(*huma.Schema)
	most := maxMembers
	if schema.MaxProperties != nil {
		most = *schema.MaxProperties
	}
	here, n := len(c.path), 0
	var present []string
	free := make(map[string]bool) // the names that the client chose
	for more := c.enter('}'); more; n++ {
		written, err := c.name()
		if err != nil {
			return err
		}
		name, property := propertyOf(schema, written)
		if property == nil && n >= most {
			return c.end(validation.MsgExpectedMaxProperties, most)
		}
		c.path = append(append(c.path, '.'), written[:min(len(written), 200)]...)
		switch {
		case slices.Contains(present, name), free[string(written)]:
			err = c.end("this property is there twice: leave one of them out")
		case property != nil:
			present = append(present, name)
			err = c.member(property, slices.Contains(schema.Required, name))
		case others != nil:
			free[string(written)] = true
			err = c.value(others)
		case schema.AdditionalProperties == false:
			if _, err = c.walker.value(); err == nil {
				err = c.add("%s", validation.MsgUnexpectedProperty)
			}
		default:
			_, err = c.walker.value()
		}
		if err != nil {
			return err
		}
		c.path = c.path[:here]
		if more, err = c.another('}'); err != nil {
			return err
		}
	}
	for _, name := range schema.Required {
		if !slices.Contains(present, name) {
			err = c.add(validation.MsgExpectedRequiredProperty, name)
		}
	}
	return err
}

// member checks a property. A property that is not required may be null.
func (c *bodyCheck) member(schema *huma.Schema, required bool) error {
	if !required && c.next() == 'n' {
		text, err := c.walker.value()
		if err == nil && string(text) != "null" {
			err = c.wrong()
		}
		return err
	}
	return c.value(schema)
}

// propertyOf finds the property with the written name, in upper or lower case, as encoding/json does. It returns "" and
// nil if there is none.
func propertyOf(schema *huma.Schema, written []byte) (string, *huma.Schema) {
	if property := schema.Properties[string(written)]; property != nil {
		return string(written), property
	}
	for name, property := range schema.Properties {
		if len(name) == len(written) && strings.EqualFold(name, string(written)) {
			return name, property
		}
	}
	return "", nil
}
