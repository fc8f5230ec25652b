package egress

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"time"

	"github.com/quern-project/quern/runtime/service"
)

// Config configures a Client. The zero value works.
type Config struct {
	// Networks are the networks that guests can reach in addition to public addresses of other hosts (default: none). An
	// IPv6 address that contains an IPv4 address can be reached if each of the two is public or in Networks. In
	// 64:ff9b:1::/48 only the last 32 bits are read as IPv4, so a network there should have 96 bits or more.
	Networks []netip.Prefix
	// Loopback lets guests also reach loopback addresses of this host that their URL names, as an address or as
	// localhost. It is called for the first request to one that is not in Networks, with the request's origin and
	// address (default nil: such requests are denied). It has no effect on requests through a proxy.
	Loopback func(origin string, addr netip.Addr)
	// Answer answers all requests that pass the checks of URL, grants and headers, in place of servers: for tests of
	// handlers (default nil).
	Answer func(r service.Request) (service.Response, error)
	// Proxy is the proxy for all requests (default: none): http or https, with or without a user and password. See the
	// package comment.
	Proxy *url.URL
	// MaxResponse is the maximum size of an answer's body, in bytes (default 16 MiB).
	MaxResponse int
	// Truncate cuts a longer body to its first MaxResponse bytes. Otherwise a longer body is an error.
	Truncate bool
	// Timeout is the maximum duration of a request, from its start to the last byte of the answer (default 30 s). A guest
	// can set a shorter timeout.
	Timeout time.Duration
	// MaxConns is the maximum number of a tenant's connections to one host (default 32); further requests wait. To all
	// hosts together, a tenant can have eight times as many connections; further requests fail. At most a quarter of each
	// number can be idle.
	MaxConns int

	// The fields below are the same for all clients, except in tests.

	resolver *net.Resolver  // default: the system's
	rootCAs  *x509.CertPool // trusted for TLS; default: the system's
	// maxRequest is the maximum size of a request's body, in bytes (default 16 MiB). maxHeader is the maximum size of a
	// request's method, URL and headers together, and of an answer's headers, in bytes (default 64 KiB).
	maxRequest, maxHeader int
	// dialTimeout is the maximum time for resolving and connecting, handshakeTimeout the maximum time for the TLS
	// handshake (default 10 s each).
	dialTimeout, handshakeTimeout time.Duration
	// idleTimeout is the time for which an idle connection is kept (default 90 s).
	idleTimeout time.Duration
}

func (c Config) withDefaults() Config {
	c.resolver = cmp.Or(c.resolver, net.DefaultResolver)
	c.maxRequest = cmp.Or(c.maxRequest, service.MaxBody)
	c.MaxResponse = cmp.Or(c.MaxResponse, service.MaxBody)
	c.maxHeader = cmp.Or(c.maxHeader, 64<<10)
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	c.dialTimeout = cmp.Or(c.dialTimeout, 10*time.Second)
	c.handshakeTimeout = cmp.Or(c.handshakeTimeout, 10*time.Second)
	c.idleTimeout = cmp.Or(c.idleTimeout, 90*time.Second)
	c.MaxConns = cmp.Or(c.MaxConns, 32)
	return c
}

// Validate returns an error if a network or the proxy is invalid. The error names the invalid value and says what is
// valid. A client with an invalid Config sends nothing and returns this error for every request.
func (c Config) Validate() error {
	for _, n := range c.Networks {
		if !n.IsValid() {
			return fmt.Errorf("network %s: use an address and its bits, such as 10.0.0.0/8", n)
		}
	}
	if p := c.Proxy; p != nil {
		if p.Scheme != "http" && p.Scheme != "https" {
			// The error leaves out the URL, which can contain a password.
			return errors.New("proxy: has no scheme that is known: begin its URL with http:// or https://")
		}
		if p.Hostname() == "" {
			return errors.New("proxy: has no host: use a URL such as http://proxy.example.com:3128")
		}
	}
	return nil
}
