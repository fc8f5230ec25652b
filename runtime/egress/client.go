package egress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/quern-project/quern/runtime/service"
)

// Client sends the requests of all plugins of a host.
type Client struct {
	cfg   Config
	wrong error // with cfg

	mu       sync.Mutex
	closed   bool             // guarded by mu
	pools    map[string]*pool // by tenant; guarded by mu
	open     map[any]func()   // what Close ends, by *http.Request and *conn; guarded by mu
	requests sync.WaitGroup   // those in open; added to under mu, while not closed
}

// New makes a client. It sends nothing if the Config is not valid: see Validate. The caller closes it.
func New(cfg Config) *Client {
	return &Client{cfg: cfg.withDefaults(), wrong: cfg.Validate(), pools: map[string]*pool{}, open: map[any]func(){}}
}

// For is the service of one plugin of a tenant, which may do what the grants allow. It needs no end of its own. The
// tenant's connections are kept until the client is closed, or nobody has used them for a while.
func (c *Client) For(tenant string, grants []Grant) service.HTTP {
	return c.plugin(tenant, plugin{grants: slices.Clone(grants)})
}

// Ceiling is what the host grants a plugin at most.
type Ceiling struct {
	// Grants are needed beside those of the manifest.
	Grants []Grant
	// Place is where one could be added, for messages: the name of a file, and what of it.
	Place string
}

// ForUnder is For, where a request has to be granted by the ceiling as well.
func (c *Client) ForUnder(tenant string, grants []Grant, ceiling Ceiling) service.HTTP {
	ceiling.Grants = slices.Clone(ceiling.Grants)
	return c.plugin(tenant, plugin{grants: slices.Clone(grants), ceiling: &ceiling})
}

// plugin completes the service of a plugin of a tenant.
func (c *Client) plugin(tenant string, p plugin) service.HTTP {
	c.mu.Lock()
	defer c.mu.Unlock()
	shared, ok := c.pools[tenant]
	if !ok {
		shared = newPool(c)
		c.pools[tenant] = shared
	}
	p.client, p.pool = c, shared
	return &p
}

// Close ends the requests under way, as unavailable, and all connections. Later ones are unavailable, too.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	var requests, conns []func()
	for key, end := range c.open {
		if _, ok := key.(*conn); ok {
			conns = append(conns, end)
		} else {
			requests = append(requests, end)
		}
	}
	c.mu.Unlock()
	for _, end := range append(requests, conns...) {
		end()
	}
	c.requests.Wait()
	c.mu.Lock()
	pools := slices.Collect(maps.Values(c.pools))
	c.mu.Unlock()
	for _, p := range pools { // without the lock, which the connections need to end
		p.transport.CloseIdleConnections()
	}
}

var errClosed = errors.New("the client is closed")

// add has Close call end, from any goroutine, until key is removed.
func (c *Client) add(key any, end func()) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errClosed
	}
	c.open[key] = end
	if _, ok := key.(*http.Request); ok {
		c.requests.Add(1)
	}
	return nil
}

// remove takes back an add that returned no error.
func (c *Client) remove(key any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, key)
	if _, ok := key.(*http.Request); ok {
		c.requests.Done()
	}
}

// plugin is the service of one plugin.
type plugin struct {
	client  *Client
	pool    *pool
	grants  []Grant
	ceiling *Ceiling // nil for none
}

// Do sends a request. See service.HTTP; headers that the host sets itself and URLs that can be read in several ways
// are ErrInvalid, and a request whose own time is over is ErrUnavailable.
func (p *plugin) Do(ctx context.Context, r service.Request) (service.Response, error) {
	if err := ctx.Err(); err != nil {
		return service.Response{}, err
	}
	if p.client.wrong != nil {
		return service.Response{}, fmt.Errorf("egress: %w", p.client.wrong)
	}
	t, request, err := p.check(r)
	if err != nil {
		return service.Response{}, err
	}
	most := p.client.cfg.Timeout
	if r.Timeout > 0 {
		most = min(most, r.Timeout)
	}
	own, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	response, err := p.send(own, t, request)
	switch {
	case err == nil:
		return response, nil
	case ctx.Err() != nil:
		return service.Response{}, ctx.Err()
	case errors.Is(err, service.ErrDenied), errors.Is(err, service.ErrTooBig):
		return service.Response{}, fmt.Errorf("%s %s: %w", r.Method, t, err)
	case errors.Is(own.Err(), context.DeadlineExceeded):
		return service.Response{}, fmt.Errorf("%s %s: %w: no answer within %s", r.Method, t, service.ErrUnavailable, most)
	}
	return service.Response{}, fmt.Errorf("%s %s: %w: %s", r.Method, t, service.ErrUnavailable, printable(err))
}

// check makes of what the guest wrote a request that is granted. It has no context yet.
func (p *plugin) check(r service.Request) (target, *http.Request, error) {
	cfg := p.client.cfg
	if used := len(r.Method) + len(r.URL); used > cfg.MaxHeader {
		return target{}, nil, fmt.Errorf("%w: method and URL have %d bytes, and may have %d with the headers", service.ErrTooBig, used, cfg.MaxHeader)
	}
	if err := checkMethod(r.Method); err != nil {
		return target{}, nil, fmt.Errorf("%w: method %q %w", service.ErrInvalid, r.Method, err)
	}
	t, u, err := parseURL(r.URL)
	if err != nil {
		return target{}, nil, fmt.Errorf("%w: %w", service.ErrInvalid, err)
	}
	if r.Timeout < 0 {
		return target{}, nil, fmt.Errorf("%w: timeout %s: use 0s or more", service.ErrInvalid, r.Timeout)
	}
	line := Grant{origin: t, methods: []string{r.Method}}
	if !granted(p.grants, r.Method, t) {
		return target{}, nil, fmt.Errorf("%s %s: %w", r.Method, t, &service.Denial{Add: fmt.Sprintf("http: [%s]", line)})
	}
	if p.ceiling != nil && !granted(p.ceiling.Grants, r.Method, t) {
		return target{}, nil, fmt.Errorf("%s %s: %w", r.Method, t,
			&service.Denial{By: service.ByHost, Place: p.ceiling.Place, Add: fmt.Sprintf("http: [%s]", line)})
	}
	header, err := headers(r.Headers, len(r.Method)+len(r.URL), cfg.MaxHeader)
	if err != nil {
		return target{}, nil, err
	}
	if len(r.Body) > cfg.MaxRequest {
		return target{}, nil, fmt.Errorf("%w: the request's body has %d bytes, and may have %d", service.ErrTooBig, len(r.Body), cfg.MaxRequest)
	}
	request := &http.Request{
		Method: r.Method, URL: u, Host: u.Host, Header: header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Body: http.NoBody, GetBody: func() (io.ReadCloser, error) { return http.NoBody, nil },
	}
	if len(r.Body) > 0 {
		request.ContentLength = int64(len(r.Body))
		request.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(r.Body)), nil }
		request.Body = io.NopCloser(bytes.NewReader(r.Body))
	}
	return t, request, nil
}

// send sends a request and reads the answer to its end. An error that is neither ErrDenied nor ErrTooBig says why there
// is no answer.
func (p *plugin) send(ctx context.Context, t target, request *http.Request) (r service.Response, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := p.client.add(request, func() { cancel(errClosed) }); err != nil {
		return service.Response{}, err
	}
	defer func() {
		p.client.remove(request)
		if err != nil && errors.Is(context.Cause(ctx), errClosed) {
			err = errClosed // which may have come to light as a connection that is closed
		}
	}()
	if p.client.cfg.Proxy != nil {
		if err := p.pool.checkTarget(ctx, t); err != nil {
			return service.Response{}, err
		}
	}
	var b body
	defer func() {
		if err != nil {
			b.abandon()
		}
	}()
	response, err := p.pool.transport.RoundTrip(request.WithContext(httptrace.WithClientTrace(withCall(ctx), &httptrace.ClientTrace{GotConn: b.from})))
	if err != nil {
		return service.Response{}, transportError(err, p.client.cfg.MaxHeader)
	}
	defer response.Body.Close()
	if response.StatusCode < http.StatusOK {
		return service.Response{}, fmt.Errorf("the answer ends with status %d", response.StatusCode)
	}
	most := p.client.cfg.MaxResponse
	if request.Method != http.MethodHead && response.Body != http.NoBody && response.ContentLength > int64(most) {
		return service.Response{}, fmt.Errorf("%w: the answer has %d bytes, and may have %d", service.ErrTooBig, response.ContentLength, most)
	}
	if response.ProtoMajor > 1 {
		b.spare = connBuffer // what comes for others may be there before they have read it
	}
	if err := b.read(response.Body, most); err != nil {
		return service.Response{}, err
	}
	return service.Response{Status: response.StatusCode, Headers: answered(response.Header), Body: b.bytes}, nil
}

// transportError finds the kind of an error of RoundTrip. That headers are too large the transport says in words alone,
// and over HTTP/2 only of those that are less than about twice as large: beyond that it ends the connection.
func transportError(err error, maxHeader int) error {
	var refused *refusal
	if errors.As(err, &refused) {
		return refused // without the dialler's words about a socket
	}
	if s := err.Error(); strings.Contains(s, "response headers exceeded") || strings.Contains(s, "response header list larger") {
		return fmt.Errorf("%w: the answer's headers have more than %d bytes", service.ErrTooBig, maxHeader)
	}
	return err
}

// printable is an error for the log: it may hold what a server wrote.
func printable(err error) string {
	const most = 300 // bytes; names of hosts may have 253
	s := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, err.Error())
	return strings.ToValidUTF8(s[:min(len(s), most)], "?")
}
