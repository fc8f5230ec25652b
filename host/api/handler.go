package api

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// handler returns the handler that takes the steps of a request before its operation. The doc comment of the package
// lists the steps.
func (s *service) handler() http.Handler {
	cross := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-cache")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'; sandbox")
		defer func() {
			fault := recover()
			if fault == http.ErrAbortHandler { //nolint:errorlint // it is that value
				panic(fault) // net/http breaks the connection; else a partial answer would look complete
			}
			if fault != nil {
				s.config.Logger.Error("a request failed", "method", oneLine(r.Method), "path", oneLine(r.URL.Path), "panic", fault,
					"stack", string(debug.Stack()))
				s.write(w, http.StatusInternalServerError, "internal error: the log of this process has the details")
			}
		}()
		if s.config.Access == nil && !isLoopback(r.Host) {
			s.write(w, http.StatusMisdirectedRequest, "host %q: use 127.0.0.1 or localhost, or serve with --tokens", r.Host)
			return
		}
		if err := cross.Check(r); err != nil {
			s.write(w, http.StatusForbidden, "%v: a page of another site may not act here", err)
			return
		}
		if s.page(w, r) || s.strayed(w, r) {
			return
		}
		who, err := s.config.Access.identify(r)
		if err != nil {
			if s.strangers.Allow() {
				cause := err
				if refused, is := errors.AsType[refusedToken](err); is {
					cause = refused.cause
				}
				s.config.Logger.Warn("refused a request", "from", withoutPort(r.RemoteAddr), "method", oneLine(r.Method),
					"path", oneLine(r.URL.Path), "error", oneLine(cause.Error()))
			}
			if errors.Is(err, errTooManyTokens) {
				s.write(w, http.StatusTooManyRequests, "%v", err)
				return
			}
			w.Header().Set("WWW-Authenticate", "Bearer")
			s.write(w, http.StatusUnauthorized, "%v", err)
			return
		}
		if !s.limits.allow(who) {
			s.write(w, http.StatusTooManyRequests, "%s sends more than %g requests a second", who.Name, who.rate())
			return
		}
		c := &caller{Principal: who, detail: r.URL.RawQuery}
		r = r.WithContext(context.WithValue(r.Context(), callerKey{}, c))
		if c.place, err = s.requests.enter(r.Context()); err != nil {
			s.write(w, http.StatusTooManyRequests, "%v", err)
			return
		}
		defer func() {
			c.place.Give()
			c.memory.Give()
		}()
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			s.mux.ServeHTTP(w, r)
			return
		}
		tagged := &tagger{ResponseWriter: w, status: http.StatusOK}
		s.mux.ServeHTTP(tagged, r)
		if tagged.flowing {
			return
		}
		size := int64(tagged.body.Len())
		if size > maxJSON && size > c.memory.Size() { // more than the operation reserved
			if err := s.reserve(r.Context(), size); err != nil {
				s.write(w, http.StatusServiceUnavailable, "%v", err)
				return
			}
		}
		c.memory.Shrink(size)
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(pace(size)))
		tagged.finish(r)
	})
}

// traced makes the span of a request.
func (s *service) traced(ctx huma.Context, next func(huma.Context)) {
	r, _ := humago.Unwrap(ctx)
	end := s.config.Tracer.Request(r.Header, ctx.Operation().Method, ctx.Operation().Path, ctx.Param("tenant"))
	status := http.StatusInternalServerError // the status if the operation panics
	defer func() { end(status) }()
	next(ctx)
	status = cmp.Or(ctx.Status(), http.StatusOK) // a stream sets no status
}

// reserve reserves memory for the body or the answer of a request, until the answer is written. It first gives back
// what the request had reserved before.
func (s *service) reserve(ctx context.Context, size int64) error {
	c := callerOf(ctx)
	c.memory.Give()
	if c.memory = take(ctx, s.memory, c.Principal, size); c.memory == nil {
		return later(http.StatusServiceUnavailable, failed(http.StatusServiceUnavailable,
			"too many large requests and answers at a time: try again"), nil)
	}
	return nil
}

// refuse answers a request with a problem; its operation is not called.
func (s *service) refuse(ctx huma.Context, status int, format string, args ...any) {
	if status == http.StatusServiceUnavailable {
		ctx.SetHeader("Retry-After", "1")
	}
	_ = huma.WriteErr(s.api, ctx, status, fmt.Sprintf(format, args...))
}

// oneLine makes a text that a stranger chose safe for the log. It quotes a text whose characters would break the line
// or control a terminal, and cuts a very long text.
func oneLine(text string) string {
	const most = 2 << 10
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	if quoted := strconv.Quote(text); strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return quoted
	}
	return text
}

// tagger buffers an answer until it is complete, and then sends it with an ETag. If the answer is flushed before, it
// becomes a stream.
type tagger struct {
	http.ResponseWriter
	status  int
	body    bytes.Buffer
	flowing bool
}

func (t *tagger) WriteHeader(status int) {
	if t.status = status; t.flowing {
		t.ResponseWriter.WriteHeader(status)
	}
}

func (t *tagger) Write(data []byte) (int, error) {
	if t.flowing {
		return t.ResponseWriter.Write(data)
	}
	return t.body.Write(data)
}

// Flush makes the answer a stream, which has no ETag.
func (t *tagger) Flush() {
	if !t.flowing {
		t.flowing = true
		t.ResponseWriter.WriteHeader(t.status)
		_, _ = t.ResponseWriter.Write(t.body.Bytes())
	}
	if flusher, ok := t.ResponseWriter.(http.Flusher); ok {
		flusher.Flush()
	}
}

// Unwrap is for http.ResponseController.
func (t *tagger) Unwrap() http.ResponseWriter { return t.ResponseWriter }

func (t *tagger) finish(r *http.Request) {
	if t.status == http.StatusOK {
		sum := sha256.Sum256(t.body.Bytes())
		tag := `"` + hex.EncodeToString(sum[:12]) + `"`
		t.Header().Set("ETag", tag)
		for has := range strings.SplitSeq(r.Header.Get("If-None-Match"), ",") {
			if has = strings.TrimPrefix(strings.TrimSpace(has), "W/"); has == tag || has == "*" {
				t.Header().Del("Content-Type")
				t.ResponseWriter.WriteHeader(http.StatusNotModified)
				return
			}
		}
	}
	t.ResponseWriter.WriteHeader(t.status)
	_, _ = t.ResponseWriter.Write(t.body.Bytes())
}
