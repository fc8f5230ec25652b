package api

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/quern-project/quern/host/admin"
	guest "github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// failed returns a problem whose detail is a text for people.
func failed(status int, format string, args ...any) error {
	return huma.NewError(status, fmt.Sprintf(format, args...))
}

// shorten removes the request's values from a problem, and bounds the problem's texts. The values may be large, and may
// be payloads that the client should not log.
func shorten(ctx huma.Context, _ string, answer any) (any, error) {
	const most, longest = 20, 200
	model, ok := answer.(*huma.ErrorModel)
	if !ok {
		return answer, nil
	}
	switch model.Status {
	case http.StatusRequestEntityTooLarge:
		model.Type, model.Detail = typePrefix+"too-large", fmt.Sprintf("the body is larger than %s: send less at a time",
			units.FormatSize(ctx.Operation().MaxBodyBytes-1))
	case http.StatusUnprocessableEntity:
		model.Type = cmp.Or(model.Type, typePrefix+"invalid")
	}
	if more := len(model.Errors) - most; more > 0 {
		model.Errors = append(model.Errors[:most:most], &huma.ErrorDetail{Message: fmt.Sprintf("and %d more", more)})
	}
	for _, e := range model.Errors {
		e.Value = nil
		if strings.HasPrefix(e.Message, "expected string to match pattern") {
			e.Message = "use the form that GET /v1/openapi.json describes"
		}
		for _, text := range []*string{&e.Message, &e.Location} {
			if len(*text) > longest {
				*text = strings.ToValidUTF8((*text)[:longest], "") + "…"
			}
		}
	}
	return answer, nil
}

// typed sets the type of a problem to the one with this name.
func typed(name string, err error) error {
	if model, ok := errors.AsType[*huma.ErrorModel](err); ok {
		model.Type = typePrefix + name
	}
	return err
}

func notFound(format string, args ...any) error { return failed(http.StatusNotFound, format, args...) }

// NoPath begins the detail of the problem that answers a request for an unknown path.
const NoPath = "no such path"

// typePrefix begins the type of a problem. After it comes a name, such as the name of an admin.KnownError.
const typePrefix = "urn:quern:problem:"

// Problem is the answer to a request that failed, as clients decode it. errors.Is finds the error that the problem
// stands for, such as queue.ErrNoTask.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	Errors []struct {
		Message  string `json:"message"`
		Location string `json:"location"`
	} `json:"errors,omitempty"`
}

// Error returns the detail and the errors of the problem. It leaves out the remedy of a known error, which is meant for
// users of the API.
func (p *Problem) Error() string {
	text := cmp.Or(p.Detail, p.Title, fmt.Sprintf("the answer is HTTP %d", p.Status))
	if remedy := p.known().Remedy; remedy != "" {
		text = strings.TrimSuffix(text, ": "+remedy)
	}
	for _, e := range p.Errors {
		text += fmt.Sprintf(": %s (%s)", e.Message, e.Location)
	}
	return text
}

// known returns the known error that the problem's type names, or the zero value if there is none.
func (p *Problem) known() admin.KnownError {
	for _, kind := range admin.KnownErrors {
		if p.Type == typePrefix+kind.Name {
			return kind
		}
	}
	return admin.KnownError{}
}

// Unwrap returns the error that the problem's type or status stands for, or nil if there is none.
func (p *Problem) Unwrap() error {
	return cmp.Or(p.known().Err, map[int]error{
		http.StatusUnauthorized: admin.ErrUnauthorized, http.StatusForbidden: admin.ErrForbidden,
		http.StatusUnprocessableEntity: queue.ErrInvalid,
	}[p.Status])
}

// hidden logs an error whose text has keys, addresses or files of the server. It returns a text for the answer that has
// only the reference of the log entry.
func (s *service) hidden(operation string, err error) string {
	reference := s.logged("an answer is incomplete", operation, err)
	return "data in Redis is damaged or cannot be read: the log of this process names it, reference " + reference
}

// logged logs an error, and returns the reference by which the log entry can be found.
func (s *service) logged(message, operation string, err error) string {
	reference := rand.Text()[:8]
	s.config.Logger.Error(message, "operation", operation, "reference", reference, "error", oneLine(err.Error()))
	return reference
}

// problem converts an error of an operation to a problem. The text of an unknown error goes to the log only.
func (s *service) problem(ctx context.Context, operation string, err error) error {
	var known huma.StatusError
	if errors.As(err, &known) {
		return err
	}
	text := err.Error()
	for _, sentinel := range []error{queue.ErrInvalid, guest.ErrInvalid} {
		text = strings.TrimPrefix(text, sentinel.Error()+": ")
	}
	if kind := admin.Known(err); kind.Err != nil {
		if errors.Is(kind.Err, queue.ErrDamaged) { // its text names keys
			text = s.hidden(operation, err)
		}
		if kind.Remedy != "" {
			text += ": " + kind.Remedy
		}
		return later(kind.Status, typed(kind.Name, huma.NewError(kind.Status, text)), err)
	}
	if why := refusals[manage.Refusal(err)]; why != "" || queue.IsUnavailable(err) ||
		errors.Is(err, guest.ErrUnavailable) {
		why = cmp.Or(why, "Redis is not available: try again")
		s.config.Logger.Warn("cannot answer: "+why, "operation", operation, "error", oneLine(err.Error()))
		return later(http.StatusServiceUnavailable, failed(http.StatusServiceUnavailable, "%s", why), err)
	}
	if ctx.Err() != nil {
		return failed(http.StatusInternalServerError, "internal error: the request ended")
	}
	return failed(http.StatusInternalServerError, "internal error: the log of this process has the details, reference %s",
		s.logged("cannot answer", operation, err))
}

// refusals explains errors of Redis that the caller cannot repair, by the first word of the error.
var refusals = map[string]string{
	"OOM":       "Redis is full: raise maxmemory, or delete finished tasks",
	"READONLY":  "this Redis is a replica: let the server use the primary",
	"MISCONF":   "Redis cannot write to its disk: see its log",
	"NOAUTH":    "Redis wants a user and password that the server does not give",
	"WRONGPASS": "Redis does not take the server's user and password",
}

// described converts an error to a problem that is part of an answer.
func (s *service) described(ctx context.Context, operation string, err error) *Problem {
	model, _ := errors.AsType[*huma.ErrorModel](s.problem(ctx, operation, err))
	return &Problem{Type: model.Type, Title: model.Title, Status: model.Status, Detail: model.Detail}
}

// later adds the header Retry-After to a problem that passes by itself: to one with status 429 or 503. cause is the
// error that the problem stands for.
func later(status int, err, cause error) error {
	if status != http.StatusTooManyRequests && status != http.StatusServiceUnavailable {
		return err
	}
	seconds := 1.0
	if quota, ok := errors.AsType[*manage.QuotaError](cause); ok {
		if quota.RetryAfter == 0 {
			return err // only somebody's action makes room
		}
		seconds = max(1, math.Ceil(quota.RetryAfter.Seconds()))
	}
	return huma.ErrorWithHeaders(err, http.Header{"Retry-After": {strconv.FormatFloat(seconds, 'f', 0, 64)}})
}

// write answers a request with a problem, before the request reaches an operation.
func (s *service) write(w http.ResponseWriter, status int, format string, args ...any) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Del("Content-Length")
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(status)
	_ = huma.DefaultJSONFormat.Marshal(w, failed(status, format, args...))
}

// strayed answers a request that matches no operation, because the path is unknown or does not allow the method. It
// reports whether it answered.
func (s *service) strayed(w http.ResponseWriter, r *http.Request) (is bool) {
	answer, pattern := s.mux.Handler(r)
	if pattern != "" && !strings.Contains(r.URL.EscapedPath(), "//") { // the mux redirects paths with //
		return false
	}
	seen := &statusOnly{header: make(http.Header)}
	answer.ServeHTTP(seen, r)
	if seen.status == http.StatusMethodNotAllowed {
		allow := seen.header.Get("Allow")
		w.Header().Set("Allow", allow)
		s.write(w, seen.status, "%s %s: this path allows only %s", r.Method, r.URL.Path, allow)
		return true
	}
	s.write(w, http.StatusNotFound, NoPath+" %s: GET /v1/openapi.json lists them", strconv.QuoteToASCII(r.URL.Path))
	return true
}

// statusOnly keeps the status and headers of an answer, and drops its body.
type statusOnly struct {
	header http.Header
	status int
}

func (w *statusOnly) Header() http.Header         { return w.header }
func (w *statusOnly) WriteHeader(status int)      { w.status = status }
func (w *statusOnly) Write(b []byte) (int, error) { return len(b), nil }
