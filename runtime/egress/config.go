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
	// Networks may be reached in addition to public addresses of other hosts (default: none). An IPv6 address that
	// carries an IPv4 address is reached if both are public or in Networks. In 64:ff9b:1::/48 only the last 32 bits are
	// read as IPv4, so a network there should have 96 bits or more.
	Networks []netip.Prefix
	// Proxy is the proxy for all requests (default: none): http or https, with or without a user and password. See the
	// package comment.
	Proxy *url.URL
	// MaxResponse bounds the body of an answer, in bytes (default 16 MiB).
	MaxResponse int
	// Truncate keeps the first MaxResponse bytes of a longer answer, which is an error otherwise.
	Truncate bool
	// Timeout bounds a request, from its start to the last byte of the answer (default 30 s). A guest may set a shorter
	// one.
	Timeout time.Duration
	// MaxConns bounds a tenant's connections to one host (default 32): further requests wait. Eight times as many may
	// lead to all hosts: further requests fail. A quarter of each number may be idle.
	MaxConns int

	// The fields below are the same for all clients, except in tests.

	resolver *net.Resolver  // default: the system's
	rootCAs  *x509.CertPool // trusted for TLS; default: the system's
	// maxRequest bounds the body of a request, 16 MiB; maxHeader its method, URL and headers, and the headers of an
	// answer, 64 KiB.
	maxRequest, maxHeader int
	// dialTimeout bounds resolving and connecting, handshakeTimeout the TLS handshake: 10 s each.
	dialTimeout, handshakeTimeout time.Duration
	// idleTimeout is how long an idle connection is kept: 90 s.
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

// Validate returns an error that names an invalid network or proxy, and what it may be. A client with such a Config
// sends nothing and answers every request with this error.
func (c Config) Validate() error {
	for _, n := range c.Networks {
		if !n.IsValid() {
			return fmt.Errorf("network %s: use an address and its bits, such as 10.0.0.0/8", n)
		}
	}
	if p := c.Proxy; p != nil {
		if p.Scheme != "http" && p.Scheme != "https" {
			// Without the URL, which may show a password.
			return errors.New("proxy: has no scheme that is known: begin its URL with http:// or https://")
		}
		if p.Hostname() == "" {
			return errors.New("proxy: has no host: use a URL such as http://proxy.example.com:3128")
		}
	}
	return nil
}
