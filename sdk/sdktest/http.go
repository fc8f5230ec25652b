package sdktest

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"

	"github.com/quern-project/quern/sdk"
	"github.com/quern-project/quern/sdk/fetch"
	"github.com/quern-project/quern/sdk/internal/native"
)

// Serve sets HTTP, so that what the handler fetches is answered by s, whatever its host. Nothing goes over a network: s may tell
// hosts apart by the request's Host. When the time of the request is over its context ends, and the handler gets
// sdk.ErrUnavailable as soon as s returns.
func (h *Harness) Serve(s http.Handler) {
	h.HTTP = func(r fetch.Request) (*fetch.Response, error) {
		ctx, cancel := context.WithCancel(context.Background())
		if r.Timeout > 0 {
			ctx, cancel = context.WithTimeout(ctx, r.Timeout)
		}
		defer cancel()
		request := httptest.NewRequestWithContext(ctx, r.Method, r.URL, bytes.NewReader(r.Body))
		for name, values := range r.Header {
			for _, value := range values {
				request.Header.Add(name, value)
			}
		}
		recorder := httptest.NewRecorder()
		s.ServeHTTP(recorder, request)
		if ctx.Err() != nil {
			return nil, sdk.ErrUnavailable
		}
		return &fetch.Response{Status: recorder.Code, Header: recorder.Result().Header, Body: recorder.Body.Bytes()}, nil
	}
}

func (r *run) HTTP(_ context.Context, request native.Request) (native.Response, error) {
	unlock, err := r.ask("http")
	if err != nil {
		return native.Response{}, err
	}
	unlock()
	switch {
	case r.h.HTTP == nil:
		return native.Response{}, sdk.ErrDenied
	case len(request.Body) > maxBody:
		return native.Response{}, sdk.ErrTooBig
	case !sendable(request):
		return native.Response{}, sdk.ErrInvalid
	}
	answer, err := r.h.HTTP(fetch.Request(request))
	if err != nil {
		if _, ok := errors.AsType[sdk.HostError](err); !ok {
			err = errors.Join(sdk.ErrUnavailable, err)
		}
		return native.Response{}, err
	}
	if len(answer.Body) > maxBody {
		return native.Response{}, sdk.ErrTooBig
	}
	header := map[string][]string{}
	for name, values := range answer.Header {
		name = strings.ToLower(name)
		header[name] = append(header[name], values...)
	}
	return native.Response{Status: answer.Status, Header: header, Body: bytes.Clone(answer.Body)}, nil
}

// ours are the headers that the host sets itself, or does not send.
var ours = map[string]bool{
	"connection": true, "content-length": true, "expect": true, "host": true, "http2-settings": true, "keep-alive": true,
	"proxy": true, "te": true, "trailer": true, "transfer-encoding": true, "upgrade": true,
	"forwarded": true, "x-http-method": true, "x-http-method-override": true, "x-method-override": true,
}

// sendable tells whether a host would send it, as far as a test needs to know that.
func sendable(r native.Request) bool {
	u, err := url.Parse(r.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return false
	}
	if r.Method != strings.ToUpper(r.Method) || r.Method == http.MethodConnect || r.Method == http.MethodTrace {
		return false
	}
	for name, values := range r.Header {
		own := strings.ReplaceAll(strings.ToLower(name), "_", "-")
		if ours[own] || strings.HasPrefix(own, "proxy-") || strings.HasPrefix(own, "x-forwarded-") || !isToken(name) || slices.ContainsFunc(values, hasControl) {
			return false
		}
	}
	return isToken(r.Method)
}

// isToken tells whether s is a token (RFC 9110 §5.6.2).
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return c <= ' ' || c > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c)
	})
}

// hasControl tells whether s cannot be the value of a header.
func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f })
}
