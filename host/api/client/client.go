// Package client acts on a tenant through the API of a server, with the types and errors of sdk/queue: what `quern --server` uses
// where others use Redis.
//
// # Failure
//
// What the API refuses is an api.Problem, in which errors.Is finds queue's own errors. A server that cannot be reached, or that
// cannot reach its Redis, is one for which queue.IsUnavailable is true: the same call may succeed later. No call repeats itself,
// except Wait.
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
	"strings"
	"time"

	"github.com/quern-project/quern/host/api"
	"github.com/quern-project/quern/sdk/queue"
)

const (
	dialTimeout = 5 * time.Second
	// answerTimeout bounds a call, beyond the time for which it asks the server to wait.
	answerTimeout = 30 * time.Second
	// maxAnswer bounds an answer: two payloads of what the API shows, as JSON.
	maxAnswer = 256 << 20
	// pageSize is how many entries of a list are asked for at a time.
	pageSize = 1000
)

// Client acts on one tenant. It is safe for concurrent use.
type Client struct {
	http   *http.Client
	base   *url.URL // above v1
	token  string
	tenant string
}

// New makes a client for the URL of a server: http[s]://HOST:PORT[/BASE-PATH]. The parameters ca, cert and key name PEM files of a
// private CA and a client certificate. token is "" for none. It sends nothing yet.
func New(rawURL, token, tenant string) (*Client, error) {
	base, err := url.Parse(rawURL)
	switch {
	case err != nil || base.Opaque != "":
		return nil, fmt.Errorf("%w: URL of a server: use https://HOST:PORT", queue.ErrInvalid) // it may have a password
	case base.User != nil:
		return nil, fmt.Errorf("%w: URL of a server: it has a user: leave that out, and give a token", queue.ErrInvalid)
	case base.Scheme != "http" && base.Scheme != "https" || base.Host == "":
		return nil, fmt.Errorf("%w: URL of a server %q: use https://HOST:PORT", queue.ErrInvalid, rawURL)
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
	base.RawQuery = ""
	base.Path = strings.TrimSuffix(base.Path, "/")
	// A redirect could carry the token to somewhere else.
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{&http.Client{Transport: transport, CheckRedirect: stay}, base, token, tenant}, nil
}

// security reads the files that the parameters of a URL name.
func security(base *url.URL) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	for name, values := range base.Query() {
		switch {
		case name != "ca" && name != "cert" && name != "key":
			return nil, fmt.Errorf("%w: URL of a server: parameter %q: use ca, cert and key, which name files", queue.ErrInvalid, name)
		case base.Scheme != "https":
			return nil, fmt.Errorf("%w: URL of a server: %s needs https://", queue.ErrInvalid, name)
		case name == "ca":
			pem, err := os.ReadFile(values[0])
			config.RootCAs = x509.NewCertPool()
			if err != nil || !config.RootCAs.AppendCertsFromPEM(pem) {
				return nil, fmt.Errorf("%w: URL of a server: ca %q: name a readable PEM file of certificates", queue.ErrInvalid, values[0])
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

// Tenant is the tenant that the client acts on.
func (c *Client) Tenant() string { return c.tenant }

// Address is the URL of the server.
func (c *Client) Address() string { return c.base.String() }

// UnreachableError is that of a server which does not answer, or not as an API does.
type UnreachableError struct {
	URL string
	Err error
}

func (e *UnreachableError) Error() string { return fmt.Sprintf("ask %s: %v", e.URL, e.Err) }
func (e *UnreachableError) Unwrap() error { return e.Err }

// laterError is a problem that passes by itself. Its methods make it a net.Error, so that queue.IsUnavailable is true for it.
type laterError struct{ *api.Problem }

func (e laterError) Unwrap() error { return e.Problem }
func (laterError) Timeout() bool   { return false }
func (laterError) Temporary() bool { return true }

// call is one request. path is that below the tenant, in words that are escaped, unless whole is set.
type call struct {
	method string
	path   []string
	above  bool // the path begins below v1
	query  url.Values
	body   any           // []byte, or what becomes JSON; nil for none
	into   any           // *[]byte, or what JSON is decoded into; nil: the answer does not matter
	wait   time.Duration // for which the server is asked to wait
}

func get(into any, path ...string) call { return call{method: http.MethodGet, path: path, into: into} }

func post(into any, path ...string) call {
	return call{method: http.MethodPost, path: path, into: into}
}

func (c *Client) do(ctx context.Context, what call) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout+what.wait)
	defer cancel()
	request, err := c.request(ctx, what)
	if err != nil {
		return err
	}
	response, err := c.http.Do(request)
	if err != nil {
		if sent, ok := errors.AsType[*url.Error](err); ok {
			err = sent.Err // the address stands before it
		}
		return &UnreachableError{c.Address(), err}
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return &UnreachableError{c.Address(), err}
	}
	if response.StatusCode/100 != 2 {
		return c.problem(response, body)
	}
	switch into := what.into.(type) {
	case nil:
	case *[]byte:
		*into = body
	default:
		if err := json.Unmarshal(body, into); err != nil {
			return &UnreachableError{c.Address(), fmt.Errorf("the answer is none of the API: %w", err)}
		}
	}
	return nil
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
	if c.token != "" {
		request.Header.Set("Authorization", "Bearer "+c.token)
	}
	return request, nil
}

// escape writes a word of a path; those of dots alone would be taken for steps.
func escape(word string) string {
	if strings.Trim(word, ".") == "" {
		return strings.ReplaceAll(word, ".", "%2E")
	}
	return url.PathEscape(word)
}

// problem reads the answer to a request that failed.
func (c *Client) problem(response *http.Response, body []byte) error {
	p := &api.Problem{}
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	if kind != "application/problem+json" || json.Unmarshal(body, p) != nil {
		p = &api.Problem{}
		if to := response.Header.Get("Location"); to != "" {
			p.Detail = fmt.Sprintf("it answers with a redirect to %s: name that, if you trust it", to)
		} else {
			p.Detail = fmt.Sprintf("it answers HTTP %s, which is no answer of Quern's API: mind the port, and the base path behind a proxy", response.Status)
		}
		p.Status = response.StatusCode
		if p.Status < http.StatusInternalServerError {
			return &UnreachableError{c.Address(), p}
		}
	}
	p.Status = response.StatusCode
	switch p.Status {
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return &UnreachableError{c.Address(), laterError{p}}
	case http.StatusTooManyRequests:
		if p.Unwrap() == nil { // too many requests, not a full queue
			return &UnreachableError{c.Address(), laterError{p}}
		}
	}
	return p
}

// pages reads a list to its end, or until visit returns false.
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
			return nil
		}
		what.query.Set("cursor", page.Next)
	}
}

// all reads a list to its end.
func all[T any](ctx context.Context, c *Client, what call) (list []T, err error) {
	list = []T{}
	err = pages(ctx, c, what, func(page []T) bool {
		list = append(list, page...)
		return true
	})
	return list, err
}
