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

// largest is the largest size in a Config, in bytes.
const largest = 1 << 30

// Config sets the limits of what guests may send. The zero value works.
type Config struct {
	// Networks may be reached in addition to public addresses of other hosts (default: none). An IPv6 address that
	// carries an IPv4 address is reached if both are public or in Networks. In 64:ff9b:1::/48 only the last 32 bits are
	// read as IPv4, so a network there should have 96 bits or more.
	Networks []netip.Prefix
	// Proxy is the proxy for all requests (default: none): http or https, with or without a user and password. See the
	// package comment.
	Proxy *url.URL
	// Resolver resolves names (default: the system's).
	Resolver *net.Resolver
	// RootCAs are trusted for TLS (default: the system's). The caller must not change them any more.
	RootCAs *x509.CertPool
	// MaxRequest and MaxResponse bound bodies, in bytes (default 16 MiB each).
	MaxRequest, MaxResponse int
	// Truncate keeps the first MaxResponse bytes of a longer answer, which is an error otherwise.
	Truncate bool
	// MaxHeader bounds method, URL and headers of a request, and the headers of an answer, in bytes (default 64 KiB).
	MaxHeader int
	// Timeout bounds a request, from its start to the last byte of the answer (default 30 s). A guest may set a shorter
	// one.
	Timeout time.Duration
	// DialTimeout bounds resolving and connecting, HandshakeTimeout the TLS handshake (default 10 s each).
	DialTimeout, HandshakeTimeout time.Duration
	// IdleTimeout is how long an idle connection is kept (default 90 s).
	IdleTimeout time.Duration
	// MaxConns bounds a tenant's connections to one host (default 32): further requests wait. To all hosts the bound is
	// eight times as high: further requests fail. A quarter of each may be idle.
	MaxConns int
}

func (c Config) withDefaults() Config {
	c.Resolver = cmp.Or(c.Resolver, net.DefaultResolver)
	c.MaxRequest = cmp.Or(c.MaxRequest, service.MaxBody)
	c.MaxResponse = cmp.Or(c.MaxResponse, service.MaxBody)
	c.MaxHeader = cmp.Or(c.MaxHeader, 64<<10)
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	c.DialTimeout = cmp.Or(c.DialTimeout, 10*time.Second)
	c.HandshakeTimeout = cmp.Or(c.HandshakeTimeout, 10*time.Second)
	c.IdleTimeout = cmp.Or(c.IdleTimeout, 90*time.Second)
	c.MaxConns = cmp.Or(c.MaxConns, 32)
	return c
}

// Validate names the first invalid field and its allowed values. A client with such a Config sends nothing and answers
// every request with this error.
func (c Config) Validate() error {
	for _, size := range []struct {
		name  string
		value int
	}{{"max request", c.MaxRequest}, {"max response", c.MaxResponse}, {"max header", c.MaxHeader}} {
		if size.value < 0 || size.value > largest {
			return fmt.Errorf("%s %d: use 1 to %d bytes, or 0 for the default", size.name, size.value, largest)
		}
	}
	for _, timeout := range []struct {
		name  string
		value time.Duration
	}{{"timeout", c.Timeout}, {"dial timeout", c.DialTimeout}, {"handshake timeout", c.HandshakeTimeout}, {"idle timeout", c.IdleTimeout}} {
		if timeout.value < 0 {
			return fmt.Errorf("%s %s: use more than 0s, or 0s for the default", timeout.name, timeout.value)
		}
	}
	if c.MaxConns < 0 || c.MaxConns > 10_000 {
		return fmt.Errorf("max conns %d: use 1 to 10000, or 0 for the default", c.MaxConns)
	}
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
