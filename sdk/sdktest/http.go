package sdktest

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/quern-project/quern/sdk"
	"github.com/quern-project/quern/sdk/fetch"
)

// Serve returns a function for Harness.HTTP that lets an HTTP server answer requests to every host, without a network.
// The context of a request ends when the request's time is over. The handler then gets sdk.ErrUnavailable as soon as s
// returns.
func Serve(s http.Handler) func(fetch.Request) (*fetch.Response, error) {
	return func(r fetch.Request) (*fetch.Response, error) {
		ctx, cancel := context.WithTimeout(context.Background(), cmp.Or(r.Timeout, time.Hour))
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

// send passes a request to answer, and checks the request and the response against the bounds of a host. If answer is
// nil, the request is denied.
func send(request fetch.Request, answer func(fetch.Request) (*fetch.Response, error)) (*fetch.Response, error) {
	switch parsed, err := http.NewRequest(request.Method, request.URL, http.NoBody); {
	case answer == nil:
		return nil, denied("the test answers no requests: set h.HTTP, for example to sdktest.Serve(handler)")
	case len(request.Body) > maxBody:
		return nil, sdk.ErrTooBig
	case err != nil || parsed.URL.Scheme != "http" && parsed.URL.Scheme != "https" || parsed.URL.Host == "" ||
		parsed.URL.User != nil,
		request.Method != strings.ToUpper(request.Method):
		return nil, sdk.ErrInvalid
	}
	response, err := answer(request)
	if err != nil {
		if _, ok := errors.AsType[sdk.HostError](err); !ok {
			err = errors.Join(sdk.ErrUnavailable, err)
		}
		return nil, err
	}
	if len(response.Body) > maxBody {
		return nil, sdk.ErrTooBig
	}
	header := map[string][]string{}
	for name, values := range response.Header {
		name = strings.ToLower(name)
		header[name] = append(header[name], values...)
	}
	return &fetch.Response{Status: response.Status, Header: header, Body: bytes.Clone(response.Body)}, nil
}
