// Package client acts on a tenant through the API of a server, with the types of host/admin and the errors of
// sdk/queue. `quern --server` uses it where other commands use Redis.
//
// # Failure
//
// A refusal of the API is an api.Problem, in which errors.Is finds the errors of sdk/queue. If the server cannot be
// reached, or cannot reach its Redis, queue.IsUnavailable is true for the error: the same call may succeed later. No
// call retries by itself, except Wait.
package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/api"
	"github.com/quern-project/quern/sdk/queue"
)

const (
	dialTimeout = 5 * time.Second
	// answerTimeout bounds a call that reads, and actTimeout a call that changes something, for which the server takes
	// up to two minutes. The time for which a call asks the server to wait comes on top.
	answerTimeout = 30 * time.Second
	actTimeout    = 2*time.Minute + dialTimeout
	// maxAnswer is the maximum size of an answer, in bytes.
	maxAnswer = 256 << 20
	// pageSize is how many entries of a list one request asks for.
	pageSize = 1000
)

// Client acts on one tenant. It is safe for concurrent use.
type Client struct {
	http   *http.Client
	base   *url.URL // of the server, without v1
	token  string
	tenant string
	// Trace has the headers traceparent and tracestate, or is nil. Calls that change something send them.
	Trace map[string]string
	// Withheld, if set, is called for each task that Task reads and that the token's holder may see only in part.
	Withheld func(*admin.Task)

	servedQueues
	quotas
}

// servedQueues remembers queues that hosts serve, as the last answer to an enqueue said.
type servedQueues struct {
	mu     sync.Mutex
	served map[string]bool // guarded by mu
}

// IsServed reports whether the server's last answer to an enqueue in the queue said that hosts serve it, or did. A
// warning does not count: the server may give one that is some seconds old.
func (s *servedQueues) IsServed(queue string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.served[queue]
}

// warningHeader is the header of an answer that says that no host serves the queue: see api.Warned.
const warningHeader = "Quern-Warning"

// enqueue sends a request that enqueues in a queue, and keeps what the answer says of the queue.
func (c *Client) enqueue(ctx context.Context, queue string, what call) error {
	header := http.Header{}
	what.header = &header
	if err := c.do(ctx, what); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.served == nil {
		c.served = make(map[string]bool)
	}
	c.served[queue] = header.Get(warningHeader) == ""
	return nil
}

var _ admin.Tenant = (*Client)(nil)

// New makes a client for the URL of a server: http[s]://HOST:PORT[/BASE-PATH]. The URL's parameters ca, cert and key
// name PEM files of a private CA and a client certificate. token may be "". New sends nothing.
func New(rawURL, token, tenant string) (*Client, error) {
	base, err := url.Parse(rawURL)
	switch {
	case (err != nil || base.Opaque != "") && strings.Contains(rawURL, "@"):
		// The message leaves out the URL, which may contain a password.
		return nil, fmt.Errorf("%w: URL of a server: use https://HOST:PORT", queue.ErrInvalid)
	case err != nil || base.Opaque != "":
		return nil, fmt.Errorf("%w: URL of a server %q: use https://HOST:PORT", queue.ErrInvalid, rawURL)
	case base.User != nil:
		return nil, fmt.Errorf("%w: URL of a server: it has a user: leave that out, and give a token", queue.ErrInvalid)
	case base.Scheme != "http" && base.Scheme != "https" || base.Host == "":
		return nil, fmt.Errorf("%w: URL of a server %q: use https://HOST:PORT", queue.ErrInvalid, rawURL)
	case base.Fragment != "":
		return nil, fmt.Errorf("%w: URL of a server %q: leave out what begins with #, which is a place in the page",
			queue.ErrInvalid, rawURL)
	case strings.ContainsAny(token, " \r\n\t"):
		return nil, fmt.Errorf("%w: the token has a space or a line break in it", queue.ErrInvalid)
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSHandshakeTimeout: dialTimeout, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 8,
	}
	if transport.TLSClientConfig, err = security(base); err != nil {
		return nil, err
	}
	base.RawQuery, base.ForceQuery, base.RawPath = "", false, ""
	base.Path = strings.TrimSuffix(base.Path, "/")
	// A redirect could send the token to another server.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	c := &Client{
		http: &http.Client{Transport: transport, CheckRedirect: stay}, base: base, token: token,
		tenant: tenant,
	}
	c.quotas = quotas{c}
	return c, nil
}

// security returns the TLS configuration for a URL. It reads the files that the URL's parameters name.
func security(base *url.URL) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	for name, values := range base.Query() {
		switch {
		case name != "ca" && name != "cert" && name != "key":
			return nil, fmt.Errorf("%w: URL of a server: parameter %q: use ca, cert and key, which name files", queue.ErrInvalid,
				name)
		case base.Scheme != "https":
			return nil, fmt.Errorf("%w: URL of a server: %s needs https://", queue.ErrInvalid, name)
		case name == "ca":
			pem, err := os.ReadFile(values[0])
			config.RootCAs = x509.NewCertPool()
			if err != nil || !config.RootCAs.AppendCertsFromPEM(pem) {
				return nil, fmt.Errorf("%w: URL of a server: ca %q: name a readable PEM file of certificates", queue.ErrInvalid,
					values[0])
			}
		}
	}
	cert, key := base.Query().Get("cert"), base.Query().Get("key")
	if cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("%w: URL of a server: cert %q and key %q: %w", queue.ErrInvalid, cert, key, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// Close ends the client's connections.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// Tenant returns the tenant that the client acts on.
func (c *Client) Tenant() string { return c.tenant }

// Address returns the URL of the server.
func (c *Client) Address() string { return c.base.String() }

// failed wraps an error in an admin.ServerError, which adds the server's URL.
func (c *Client) failed(err error) error { return &admin.ServerError{URL: c.Address(), Err: err} }

// laterError is a problem that passes by itself. after is the server's Retry-After, or 0. The methods make it a
// net.Error, so that queue.IsUnavailable is true for it.
type laterError struct {
	*api.Problem
	after time.Duration
}

func (e laterError) Unwrap() error { return e.Problem }
func (laterError) Timeout() bool   { return false }
func (laterError) Temporary() bool { return true }

// call is one request. path has the words of the path below the tenant, not escaped.
type call struct {
	method string
	path   []string
	above  bool // path begins below v1, and not below the tenant
	query  url.Values
	body   any           // []byte, or a value to encode as JSON; nil: no body
	into   any           // *[]byte for bytes, or a pointer for decoding JSON; nil: the answer is dropped
	wait   time.Duration // how long the server is asked to wait
	header *http.Header  // gets the header of the answer if it is not nil
}

func get(into any, path ...string) call { return call{method: http.MethodGet, path: path, into: into} }

func post(into any, path ...string) call {
	return call{method: http.MethodPost, path: path, into: into}
}

func (c *Client) do(ctx context.Context, what call) error {
	timeout := answerTimeout
	if what.method != http.MethodGet {
		timeout = actTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout+what.wait)
	defer cancel()
	request, err := c.request(ctx, what)
	if err != nil {
		return err
	}
	response, err := c.http.Do(request)
	if err != nil {
		if sent, ok := errors.AsType[*url.Error](err); ok {
			err = sent.Err // c.failed adds the address
		}
		return c.failed(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err == nil && len(body) > maxAnswer {
		err = fmt.Errorf("the answer has more than %d MiB: read from Redis instead", maxAnswer>>20)
	}
	if err != nil {
		return c.failed(err)
	}
	if response.StatusCode/100 != 2 {
		return c.problem(response, body)
	}
	if what.header != nil {
		*what.header = response.Header
	}
	if err := decode(response, body, what.into); err != nil {
		return c.failed(fmt.Errorf("the answer is not from Quern's API: %w: check the port, and the base path behind a proxy",
			err))
	}
	return nil
}

// decode decodes the answer to a request that succeeded. An answer of another content type is not from the API; it may
// be a page of a proxy.
func decode(response *http.Response, body []byte, into any) error {
	want := "application/json"
	value, isBytes := into.(*[]byte)
	if isBytes {
		want = "application/octet-stream"
	}
	if into == nil && response.StatusCode == http.StatusNoContent {
		return nil
	}
	if kind := mediaType(response); kind != want {
		return fmt.Errorf("its type is %q instead of %s", kind, want)
	}
	switch {
	case isBytes:
		*value = body
	case into != nil:
		return json.Unmarshal(body, into)
	}
	return nil
}

func mediaType(response *http.Response) string {
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	return kind
}

func (c *Client) request(ctx context.Context, what call) (*http.Request, error) {
	words := []string{"v1"}
	if !what.above {
		words = append(words, "tenants", c.tenant)
	}
	target := c.base.String()
	for _, word := range append(words, what.path...) {
		target += "/" + escape(word)
	}
	if len(what.query) > 0 {
		target += "?" + what.query.Encode()
	}
	body, kind := []byte(nil), "application/octet-stream"
	switch content := what.body.(type) {
	case nil:
	case []byte:
		body = content
	default:
		kind = "application/json"
		var err error
		if body, err = json.Marshal(content); err != nil {
			return nil, err
		}
	}
	request, err := http.NewRequestWithContext(ctx, what.method, target, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if what.body != nil {
		request.Header.Set("Content-Type", kind)
	}
	for name, value := range c.Trace {
		if what.method != http.MethodGet {
			request.Header.Set(name, value)
		}
	}
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	return request, nil
}

// escape escapes a word of a path, even a word of dots only, which would mean this or the parent directory.
func escape(word string) string {
	if strings.Trim(word, ".") == "" {
		return strings.ReplaceAll(word, ".", "%2E")
	}
	return url.PathEscape(word)
}

// problem converts the answer to a request that failed to an error. The answer may come from the API, or from a proxy
// before it.
func (c *Client) problem(response *http.Response, body []byte) error {
	p := &api.Problem{}
	ours := mediaType(response) == "application/problem+json" && json.Unmarshal(body, p) == nil
	if !ours {
		p = &api.Problem{Detail: foreign(response)}
	}
	p.Status = response.StatusCode
	switch p.Status {
	case http.StatusTooManyRequests:
		if p.Unwrap() != nil { // a full queue, not too many requests
			return p
		}
		fallthrough
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
		return c.failed(laterError{p, time.Duration(seconds) * time.Second})
	}
	switch {
	case !ours:
		return c.failed(p)
	case p.Status == http.StatusNotFound && strings.HasPrefix(p.Detail, api.NoPath):
		return c.failed(errors.New("the API is not below this path: leave the path out, or name the base path of the server"))
	case p.Status == http.StatusUnauthorized && c.token == "" && strings.HasPrefix(p.Detail,
		"no token"): // otherwise a certificate was refused
		return admin.ErrNoToken
	}
	return p
}

// foreign describes an answer that is not a problem of the API, and adds a remedy.
func foreign(response *http.Response) string {
	if to := response.Header.Get("Location"); to != "" {
		return fmt.Sprintf("it answers with a redirect to %s: use that URL if you trust it", to)
	}
	remedy := "check the port, and the base path behind a proxy"
	switch response.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusProxyAuthRequired:
		remedy = "a proxy in front of it refuses you: log in there"
	case http.StatusRequestEntityTooLarge, http.StatusRequestURITooLong, http.StatusRequestHeaderFieldsTooLarge:
		remedy = "the request is too large for it, or for a proxy before it"
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		remedy = "try again"
	}
	return fmt.Sprintf("it answers HTTP %s, which is no answer of Quern's API: %s", response.Status, remedy)
}

// pages reads a list page by page, and calls visit for each page, until the list ends or visit returns false. An error
// may concern single entries only; visit has got the others by then.
func pages[T any](ctx context.Context, c *Client, what call, visit func([]T) bool) error {
	if what.query == nil {
		what.query = url.Values{}
	}
	if !what.query.Has("limit") {
		what.query.Set("limit", fmt.Sprint(pageSize))
	}
	for {
		var page api.List[T]
		what.into = &page
		if err := c.do(ctx, what); err != nil {
			return err
		}
		if !visit(page.Items) || page.Next == "" {
			if page.Error != "" {
				return errors.New(page.Error)
			}
			return nil
		}
		what.query.Set("cursor", page.Next)
	}
}

// all reads a whole list.
func all[T any](ctx context.Context, c *Client, what call) (list []T, err error) {
	list = []T{}
	err = pages(ctx, c, what, func(page []T) bool {
		list = append(list, page...)
		return true
	})
	return list, err
}
