// Package fetch sends HTTP requests of a handler through its host. The manifest must grant them:
//
//	capabilities:
//	  http: [{host: "https://api.example.com", methods: [GET, POST]}]
//
// A handler has no sockets, so net/http does not work in it. The host resolves names, speaks TLS and keeps connections.
// It does not follow redirects: it returns them like any other response.
package fetch

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/quern-project/quern/sdk"
)

// Request is an HTTP request.
type Request struct {
	Method string // "" means GET
	// URL is an absolute URL that begins with https:// or http://.
	URL string
	// Header has values by name. Names can be in any case. The host sets Host, Content-Length and similar headers, and
	// refuses them here.
	Header map[string][]string
	// Body has at most 16 MiB.
	Body []byte
	// Timeout bounds the request. The context's deadline and the host's timeout bound it in any case; 0 means that
	// nothing else does.
	Timeout time.Duration
}

// Response is a response with any status.
type Response struct {
	Status int
	// Header has values by name. Names are in lower case.
	Header map[string][]string
	// Body has at most 16 MiB.
	Body []byte
}

// Get is Do with the method GET.
func Get(ctx context.Context, url string) (*Response, error) {
	return Do(ctx, Request{URL: url})
}

// Post is Do with the method POST and a body of the content type.
func Post(ctx context.Context, url, contentType string, body []byte) (*Response, error) {
	return Do(ctx, Request{
		Method: "POST", URL: url, Header: map[string][]string{"Content-Type": {contentType}},
		Body: body,
	})
}

// Do sends a request and waits for the response. A response with any status is a success: see Response.Err.
//
// Errors: [sdk.ErrDenied] if the manifest or the host does not allow the method, the host or its address;
// [sdk.ErrInvalid] for an invalid URL or header; [sdk.ErrTooBig] for a request or response with a too large body;
// [sdk.ErrUnavailable] if no response comes in time, joined with the context's error if the context has ended; and
// [sdk.ErrNoHost] outside a handler's task. The text of an error contains the URL without its query, because it may
// become the task's error.
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
		if response, err = do(r); err == nil {
			return response, nil
		}
		if over := ended(ctx); over != nil {
			err = fmt.Errorf("%w: %w", err, over)
		}
	}
	return nil, fmt.Errorf("%s %s: %w", r.Method, shown(r.URL), err)
}

// reason returns the host's reason without the method and the server at its beginning, which the error names already.
func reason(method, why string) string {
	if request, rest, ok := strings.Cut(why, ": "); ok && strings.HasPrefix(request, method+" http") {
		return rest
	}
	return why
}

// ended returns the context's error, also if the deadline has passed but the context's timer could not run while the
// guest waited for the host.
func ended(ctx context.Context) error {
	if at, ok := ctx.Deadline(); ok && !time.Now().Before(at) {
		return context.DeadlineExceeded
	}
	return ctx.Err()
}

// shown returns a URL without the parts that may be secret.
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

// Value returns the first value of the header name, which can be in any case; "" if there is none.
func (r *Response) Value(name string) string {
	if values := r.Header[strings.ToLower(name)]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// Err returns nil for a status from 200 to 299, else an error that names the status. If the server asks to come again
// later (429, or 408, 425, 500, 502, 503, 504 with the header Retry-After), the error is that of sdk.RetryAfter with
// that delay, and counts no attempt. The handler decides whether other statuses are fatal.
func (r *Response) Err() error {
	if r.Status >= 200 && r.Status <= 299 {
		return nil
	}
	err := fmt.Errorf("the answer has status %d", r.Status)
	switch r.Status {
	case 408, 425, 429, 500, 502, 503, 504:
		if after, asked := r.RetryAfter(); asked || r.Status == 429 {
			return sdk.RetryAfter(err, after)
		}
	}
	return err
}

// maxRetryAfter is the maximum delay of RetryAfter and sdk.RetryAfter.
const maxRetryAfter = 365 * 24 * time.Hour

// RetryAfter returns the delay that the header Retry-After asks for, whatever the status. The header has a number of
// seconds or a date (RFC 9110 §10.2.3). A past date is 0, and more than a year counts as a year. Without a valid
// header, RetryAfter returns false.
func (r *Response) RetryAfter() (time.Duration, bool) {
	value := strings.Trim(r.Value("Retry-After"), " \t")
	if value != "" && strings.Trim(value, "0123456789") == "" {
		seconds, err := strconv.ParseUint(value, 10, 64)
		if err != nil || seconds > uint64(maxRetryAfter/time.Second) {
			return maxRetryAfter, true
		}
		return time.Duration(seconds) * time.Second, true
	}
	for _, layout := range dates {
		if at, err := time.Parse(layout, value); err == nil {
			return min(max(time.Until(at), 0), maxRetryAfter), true
		}
	}
	return 0, false
}

// dates are the formats of dates that a recipient must accept (RFC 9110 §5.6.7). All dates are in UTC.
var dates = [...]string{"Mon, 02 Jan 2006 15:04:05 GMT", "Monday, 02-Jan-06 15:04:05 GMT", time.ANSIC}
