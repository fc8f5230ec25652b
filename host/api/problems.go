package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	guest "github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue"
)

// failed makes a problem with a text for people.
func failed(status int, format string, args ...any) error {
	return huma.NewError(status, fmt.Sprintf(format, args...))
}

func notFound(format string, args ...any) error { return failed(http.StatusNotFound, format, args...) }

// statuses are those of errors that callers can do something about; the first that fits counts.
var statuses = []struct {
	is     error
	status int
	remedy string
}{
	{queue.ErrNoTask, http.StatusNotFound, "it may have been deleted; search for it with GET /v1/tenants/TENANT/tasks"},
	{queue.ErrNoNode, http.StatusNotFound, "none of that ID has a lease; it may be dead, or a Python one: list them with GET /v1/tenants/TENANT/nodes"},
	{guest.ErrNotFound, http.StatusNotFound, ""},
	{queue.ErrInvalid, http.StatusBadRequest, ""},
	{guest.ErrInvalid, http.StatusBadRequest, ""},
	{queue.ErrStatus, http.StatusConflict, ""},
	{queue.ErrDependency, http.StatusConflict, ""},
	{queue.ErrQueueFull, http.StatusTooManyRequests, "wait until the queue is shorter, or raise its limit"},
	{queue.ErrLetterStays, http.StatusConflict, "delete the letter"},
	{queue.ErrDamaged, http.StatusConflict, "delete the key in Redis, or take another tenant"},
}

// problem is the answer to an error of an operation. What is not known is told to the log alone.
func (s *service) problem(ctx context.Context, operation string, err error) error {
	var known huma.StatusError
	if errors.As(err, &known) {
		return err
	}
	text := err.Error()
	for _, sentinel := range []error{queue.ErrInvalid, guest.ErrInvalid} {
		text = strings.TrimPrefix(text, sentinel.Error()+": ")
	}
	for _, row := range statuses {
		if errors.Is(err, row.is) {
			if row.remedy != "" {
				text += ": " + row.remedy
			}
			return later(row.status, huma.NewError(row.status, text))
		}
	}
	if queue.IsUnavailable(err) || errors.Is(err, guest.ErrUnavailable) {
		s.config.Logger.Warn("cannot answer: Redis is not available", "operation", operation, "error", err)
		return later(http.StatusServiceUnavailable, failed(http.StatusServiceUnavailable, "Redis is not available: try again"))
	}
	if ctx.Err() == nil {
		s.config.Logger.Error("cannot answer", "operation", operation, "error", err)
	}
	return failed(http.StatusInternalServerError, "internal error: the log of this process has the details")
}

// tooMany refuses what a principal, or all together, do too often at a time.
func tooMany(ctx context.Context, what string, b *budget) error {
	return later(http.StatusTooManyRequests, failed(http.StatusTooManyRequests, "too many %s at a time: %d of %s, or %d of all",
		what, b.each, principal(ctx).Name, b.whole))
}

// later adds when a refusal that passes by itself is worth another try.
func later(status int, err error) error {
	if status != http.StatusTooManyRequests && status != http.StatusServiceUnavailable {
		return err
	}
	return huma.ErrorWithHeaders(err, http.Header{"Retry-After": {"1"}})
}

// write answers a request that reaches no operation.
func (s *service) write(w http.ResponseWriter, status int, format string, args ...any) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Del("Content-Length")
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "1")
	}
	w.WriteHeader(status)
	_ = huma.DefaultJSONFormat.Marshal(w, failed(status, format, args...))
}

// strayed answers what matches no operation: an unknown path, or a method that the path does not have.
func (s *service) strayed(w http.ResponseWriter, r *http.Request) (is bool) {
	answer, pattern := s.mux.Handler(r)
	if pattern != "" {
		return false
	}
	seen := &statusOnly{header: make(http.Header)}
	answer.ServeHTTP(seen, r)
	if seen.status == http.StatusMethodNotAllowed {
		allow := seen.header.Get("Allow")
		w.Header().Set("Allow", allow)
		s.write(w, seen.status, "%s %s: this path has %s", r.Method, r.URL.Path, allow)
		return true
	}
	s.write(w, http.StatusNotFound, "no such path %s: GET /v1/openapi.json lists them", strconv.QuoteToASCII(r.URL.Path))
	return true
}

// statusOnly is an answer of which nobody reads the body.
type statusOnly struct {
	header http.Header
	status int
}

func (w *statusOnly) Header() http.Header         { return w.header }
func (w *statusOnly) WriteHeader(status int)      { w.status = status }
func (w *statusOnly) Write(b []byte) (int, error) { return len(b), nil }
