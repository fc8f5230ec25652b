// Package fetch sends HTTP requests of a handler by its host. The manifest has to grant them:
//
//	capabilities:
//	  http: [{host: "https://api.example.com", methods: [GET, POST]}]
//
// A handler has no sockets, so net/http is of no use to it. The host resolves names, speaks TLS, keeps connections and follows
// no redirects: they are answered like any other status.
package fetch

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/quern-project/quern/sdk"
)

// Request is what is sent.
type Request struct {
	// Method is GET if it is empty.
	Method string
	// URL is absolute, and begins with https:// or http://.
	URL string
	// Header may be in any case. The host sets Host, Content-Length and the like itself, and refuses them.
	Header map[string][]string
	// Body has at most 16 MiB.
	Body []byte
	// Timeout bounds the request, as the context's deadline does; 0 leaves it to that and to the host.
	Timeout time.Duration
}

// Response is what was answered, whatever its status.
type Response struct {
	Status int
	// Header has its names in lower case.
	Header map[string][]string
	// Body has at most 16 MiB.
	Body []byte
}

// Get is Do with the method GET.
func Get(ctx context.Context, url string) (*Response, error) {
	return Do(ctx, Request{URL: url})
}

// Post is Do with the method POST and a body of that type.
func Post(ctx context.Context, url, contentType string, body []byte) (*Response, error) {
	return Do(ctx, Request{Method: "POST", URL: url, Header: map[string][]string{"Content-Type": {contentType}}, Body: body})
}

// Do sends a request and waits for the answer. An answer of any status is one: see Response.Err.
//
// The errors are [sdk.ErrDenied] if the manifest does not grant the method or the host, [sdk.ErrInvalid] if URL or header mean
// nothing, [sdk.ErrTooBig] if body or answer are larger than one may be, [sdk.ErrUnavailable] if there was no answer in time,
// beside which there is the context's error if it has ended, and [sdk.ErrNoHost] outside of a handler's task. Their text has the
// URL without its query, for it may become the task's error.
func Do(ctx context.Context, r Request) (*Response, error) {
	if r.Method == "" {
		r.Method = "GET"
	}
	err := ctx.Err()
	if err == nil {
		if at, ok := ctx.Deadline(); ok {
			left := time.Until(at)
			if r.Timeout <= 0 || left < r.Timeout {
				r.Timeout = max(left, time.Millisecond)
			}
		}
		var response *Response
		if response, err = do(ctx, r); err == nil {
			return response, nil
		}
		err = errors.Join(err, ended(ctx))
	}
	return nil, fmt.Errorf("%s %s: %w", r.Method, shown(r.URL), err)
}

// ended is the context's error. Its timer may not have run while the guest waited for the host.
func ended(ctx context.Context) error {
	if at, ok := ctx.Deadline(); ok && !time.Now().Before(at) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// shown is a URL without what may be secret in it.
func shown(url string) string {
	if i := strings.IndexAny(url, "?#"); i >= 0 {
		url = url[:i]
	}
	scheme, rest, ok := strings.Cut(url, "://")
	if !ok {
		return url
	}
	authority, path := rest, ""
	if i := strings.IndexByte(rest, '/'); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	authority = authority[strings.LastIndexByte(authority, '@')+1:]
	return scheme + "://" + authority + path
}

// Value is the first value of a header, whatever the case of its name; "" if there is none.
func (r *Response) Value(name string) string {
	if values := r.Header[strings.ToLower(name)]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// Err is nil for a status from 200 to 299, and else an error that names it: sdk.Retry for one that may be gone after a while (408,
// 425, 429, 500, 502, 503, 504), with the delay of the answer's Retry-After if it has one. Whether another one is fatal is for
// the handler to know.
func (r *Response) Err() error {
	if r.Status >= 200 && r.Status <= 299 {
		return nil
	}
	err := fmt.Errorf("the answer has status %d", r.Status)
	switch r.Status {
	case 408, 425, 429, 500, 502, 503, 504:
		after, _ := r.RetryAfter()
		return sdk.RetryAfter(err, after)
	}
	return err
}

// mostRetryAfter is the longest delay that RetryAfter tells: as long as sdk.RetryAfter takes.
const mostRetryAfter = 365 * 24 * time.Hour

// RetryAfter is how long the answer's header of that name asks to wait, whatever its status: it is a number of seconds or a date
// (RFC 9110 §10.2.3). A date that is over is no time at all, and more than a year counts as a year. False if there is no such
// header, or none that means anything.
func (r *Response) RetryAfter() (time.Duration, bool) {
	value := strings.Trim(r.Value("Retry-After"), " \t")
	if value != "" && strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseUint(value, 10, 64)
		if err != nil || seconds > uint64(mostRetryAfter/time.Second) {
			return mostRetryAfter, true
		}
		return time.Duration(seconds) * time.Second, true
	}
	for _, layout := range dates {
		if at, err := time.Parse(layout, value); err == nil {
			return min(max(time.Until(at), 0), mostRetryAfter), true
		}
	}
	return 0, false
}

// dates are the forms of a date that a recipient has to know (RFC 9110 §5.6.7); all of them are UTC.
var dates = [...]string{"Mon, 02 Jan 2006 15:04:05 GMT", "Monday, 02-Jan-06 15:04:05 GMT", time.ANSIC}
