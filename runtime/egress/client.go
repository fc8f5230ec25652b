package egress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"

	"github.com/quern-project/quern/runtime/service"
)

// Client sends the requests of all plugins of a host.
type Client struct {
	cfg   Config
	wrong error // why cfg is invalid; nil if cfg is valid

	mu      sync.Mutex
	closed  bool             // guarded by mu
	pools   map[string]*pool // by tenant; guarded by mu
	open    map[any]func()   // functions by which Close ends each *http.Request and *conn; guarded by mu
	local   sync.Once        // makes the call of cfg.Loopback
	running sync.WaitGroup   // counts the entries of open; Add is called under mu while closed is false
}

// New makes a client, which the caller closes. With an invalid Config the client sends nothing: see Validate.
func New(cfg Config) *Client {
	return &Client{cfg: cfg.withDefaults(), wrong: cfg.Validate(), pools: map[string]*pool{}, open: map[any]func(){}}
}

// Ceiling limits the grants of a plugin to those that the host allows.
type Ceiling struct {
	// Grants must allow each request, in addition to the manifest's grants.
	Grants []Grant
	// Where names the place at which the operator can add a grant: an entry and its file. Error messages contain it.
	Where string
}

// For returns the HTTP service of one plugin of a tenant. Requests must be allowed by grants, which must not change,
// and by the ceiling; a nil ceiling allows all. The service need not be closed. The tenant's connections are kept until
// they have been idle for a while or the client is closed.
func (c *Client) For(tenant string, grants []Grant, ceiling *Ceiling) service.HTTP {
	return &plugin{client: c, tenant: tenant, grants: grants, ceiling: ceiling}
}

// pool returns the pool of a tenant's connections.
func (c *Client) pool(tenant string) *pool {
	c.mu.Lock()
	defer c.mu.Unlock()
	shared, ok := c.pools[tenant]
	if !ok {
		shared = newPool(c)
		c.pools[tenant] = shared
	}
	return shared
}

// Close ends all connections and all requests. These requests, and all later ones, fail with ErrUnavailable.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	open, pools := slices.Collect(maps.Values(c.open)), slices.Collect(maps.Values(c.pools))
	c.mu.Unlock()
	for _, end := range open { // without the lock, which a connection takes when it is closed
		end()
	}
	c.running.Wait()
	for _, p := range pools {
		p.transport.CloseIdleConnections()
	}
}

var errClosed = errors.New("the client is closed")

// add registers end under key. Close calls end, on any goroutine, unless key was removed before.
func (c *Client) add(key any, end func()) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return errClosed
	}
	c.open[key] = end
	c.running.Add(1)
	return nil
}

// remove undoes an add that returned no error. It reports whether the client was closed meanwhile.
func (c *Client) remove(key any) (closed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, key)
	c.running.Done()
	return c.closed
}

// plugin implements service.HTTP for one plugin.
type plugin struct {
	client  *Client
	tenant  string
	grants  []Grant
	ceiling *Ceiling // nil for none
}

// Do sends a request: see service.HTTP. Headers that the host sets itself and ambiguous URLs are ErrInvalid; a request
// that exceeds its own timeout is ErrUnavailable.
func (p *plugin) Do(ctx context.Context, r service.Request) (service.Response, error) {
	if err := ctx.Err(); err != nil {
		return service.Response{}, err
	}
	if p.client.wrong != nil {
		return service.Response{}, fmt.Errorf("egress: %w", p.client.wrong)
	}
	t, request, err := p.check(ctx, r)
	if err != nil {
		return service.Response{}, err
	}
	if answer := p.client.cfg.Answer; answer != nil {
		return answer(r)
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
	case errors.Is(own.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("no answer within %s", most)
	}
	return service.Response{}, failure(r.Method+" "+t.String(), t, err)
}

// denial returns the denial of a request that the grants do not allow, with what to add to them.
func denial(grants []Grant, method string, t target) *service.Denial {
	for _, g := range grants {
		if granted([]Grant{{origin: g.origin, wildcard: g.wildcard, methods: []string{method}}}, method, t) {
			return &service.Denial{Add: method, Into: "methods of " + g.Host() + " in capabilities.http"}
		}
	}
	line := Grant{origin: t, methods: []string{method}}.String()
	if len(grants) > 0 {
		return &service.Denial{Add: line, Into: "capabilities.http"}
	}
	return &service.Denial{Add: "http: [" + line + "]"}
}

// check returns the guest's request as an *http.Request if it is valid and granted, and the request's target.
func (p *plugin) check(ctx context.Context, r service.Request) (target, *http.Request, error) {
	cfg := p.client.cfg
	if used := len(r.Method) + len(r.URL); used > cfg.maxHeader {
		return target{}, nil, fmt.Errorf("%w: method and URL have %d bytes, and the maximum is %d with the headers",
			service.ErrTooBig, used, cfg.maxHeader)
	}
	if err := CheckMethod(r.Method); err != nil {
		return target{}, nil, fmt.Errorf("%w: method %q %w", service.ErrInvalid, r.Method, err)
	}
	t, u, err := parseURL(r.URL)
	if err != nil {
		return target{}, nil, fmt.Errorf("%w: %w", service.ErrInvalid, err)
	}
	if r.Timeout < 0 {
		return target{}, nil, fmt.Errorf("%w: timeout %s: use 0s or more", service.ErrInvalid, r.Timeout)
	}
	if !granted(p.grants, r.Method, t) {
		return target{}, nil, fmt.Errorf("%s %s: %w", r.Method, t, denial(p.grants, r.Method, t))
	}
	if p.ceiling != nil && !granted(p.ceiling.Grants, r.Method, t) {
		d := denial(p.ceiling.Grants, r.Method, t)
		d.By, d.Where = service.ByHost, p.ceiling.Where
		return target{}, nil, fmt.Errorf("%s %s: %w", r.Method, t, d)
	}
	header, err := headers(r.Headers, len(r.Method)+len(r.URL), cfg.maxHeader)
	if err != nil {
		return target{}, nil, err
	}
	addTrace(header, r.Trace)
	if len(r.Body) > cfg.maxRequest {
		return target{}, nil, fmt.Errorf("%w: the request's body has %d bytes, and the maximum is %d", service.ErrTooBig,
			len(r.Body), cfg.maxRequest)
	}
	request, err := http.NewRequestWithContext(ctx, r.Method, "", bytes.NewReader(r.Body))
	if err != nil {
		return target{}, nil, err
	}
	request.URL, request.Host, request.Header = u, u.Host, header
	return t, request, nil
}

// send sends a request and reads the answer to its end. An error other than ErrDenied and ErrTooBig says why there is
// no answer.
func (p *plugin) send(ctx context.Context, t target, request *http.Request) (r service.Response, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := p.client.add(request, cancel); err != nil {
		return service.Response{}, err
	}
	defer func() {
		if closed := p.client.remove(request); closed && err != nil {
			err = errClosed // err only says that the context or the connection ended
		}
	}()
	connections := p.client.pool(p.tenant)
	if p.client.cfg.Proxy != nil {
		if err := connections.checkTarget(ctx, t); err != nil {
			return service.Response{}, err
		}
	}
	var b body
	defer func() {
		if err != nil && b.conn != nil {
			b.conn.overhead.Add(-streamBuffer) // allows for the rest of the answer, which nobody reads
		}
	}()
	named := context.WithValue(context.WithValue(ctx, callKey{}, ctx), targetKey{}, t)
	traced := httptrace.WithClientTrace(named, &httptrace.ClientTrace{GotConn: b.from})
	response, err := connections.transport.RoundTrip(request.WithContext(traced))
	if err != nil {
		return service.Response{}, transportError(err, p.client.cfg.maxHeader)
	}
	defer response.Body.Close()
	if response.StatusCode < http.StatusOK {
		return service.Response{}, fmt.Errorf("the answer has status %d: the server wants another protocol than HTTP", response.StatusCode)
	}
	most, truncate := p.client.cfg.MaxResponse, p.client.cfg.Truncate
	if !truncate && request.Method != http.MethodHead && response.Body != http.NoBody &&
		response.ContentLength > int64(most) {
		return service.Response{}, fmt.Errorf("%w: the answer has %d bytes, and the maximum is %d", service.ErrTooBig,
			response.ContentLength, most)
	}
	if response.ProtoMajor > 1 {
		b.spare = connBuffer // data for other streams can arrive before it is read there
	}
	if err := b.read(response.Body, most); truncate && errors.Is(err, service.ErrTooBig) {
		b.bytes = b.bytes[:most]
	} else if err != nil {
		return service.Response{}, err
	}
	maps.DeleteFunc(response.Header, func(name string,
		_ []string,
	) bool {
		return name != "Content-Length" && isOurs(canonical(name))
	})
	return service.Response{Status: response.StatusCode, Headers: response.Header, Body: b.bytes}, nil
}

// transportError classifies an error of RoundTrip. Only the error's text says that headers are too large. Over HTTP/2
// this text is used only up to about twice the limit: beyond that, the transport ends the connection.
func transportError(err error, maxHeader int) error {
	var refused *refusal
	if errors.As(err, &refused) {
		return refused // leaves out the dialer's text about the socket
	}
	if s := err.Error(); strings.Contains(s, "response headers exceeded") ||
		strings.Contains(s, "response header list larger") {
		return fmt.Errorf("%w: the answer's headers have more than %d bytes", service.ErrTooBig, maxHeader)
	}
	return err
}
