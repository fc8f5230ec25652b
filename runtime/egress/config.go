package egress

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"time"

	"github.com/quern-project/quern/runtime/service"
)

// largest is what a Config may say of sizes, in bytes.
const largest = 1 << 30

// Config says what guests may send at most. The zero value works.
type Config struct {
	// Networks may be reached beside the public addresses that no interface of this host has (default: none). A form of IPv6 that carries an IPv4
	// address is reached if both are public or in Networks; of the prefix 64:ff9b:1::/48 only the last 32 bits
	// are understood as such, so that a network in it should have 96 bits or more.
	Networks []netip.Prefix
	// Proxy takes all requests (default: none). Its scheme is http or https, and it may have a user and a password.
	// The package's comment says what holds with it.
	Proxy *url.URL
	// Resolver resolves names (default: the system's).
	Resolver *net.Resolver
	// RootCAs are whom TLS trusts (default: the system's). The caller does not change it any more.
	RootCAs *x509.CertPool
	// MaxRequest and MaxResponse bound bodies, in bytes (default 16 MiB each).
	MaxRequest, MaxResponse int
	// MaxHeader bounds method, URL and headers of a request, and likewise the headers of an answer, in bytes
	// (default 64 KiB).
	MaxHeader int
	// Timeout bounds a request, from its start to the answer's last byte (default 30 s). A guest's own counts
	// if it is shorter.
	Timeout time.Duration
	// DialTimeout bounds resolving and connecting (default 10 s), HandshakeTimeout TLS (default 10 s).
	DialTimeout, HandshakeTimeout time.Duration
	// IdleTimeout is how long a connection is kept that nobody uses (default 90 s).
	IdleTimeout time.Duration
	// MaxConns bounds the connections of a tenant to one host, in use or not (default 32): further requests wait.
	// To all hosts it has eight times as many: further requests fail. A quarter of these numbers may be idle.
	MaxConns int
}

func (c Config) withDefaults() Config {
	if c.Resolver == nil {
		c.Resolver = net.DefaultResolver
	}
	for _, size := range []*int{&c.MaxRequest, &c.MaxResponse} {
		if *size == 0 {
			*size = service.MaxBody
		}
	}
	if c.MaxHeader == 0 {
		c.MaxHeader = 64 << 10
	}
	if c.Timeout == 0 {
		c.Timeout = 30 * time.Second
	}
	for _, timeout := range []*time.Duration{&c.DialTimeout, &c.HandshakeTimeout} {
		if *timeout == 0 {
			*timeout = 10 * time.Second
		}
	}
	if c.IdleTimeout == 0 {
		c.IdleTimeout = 90 * time.Second
	}
	if c.MaxConns == 0 {
		c.MaxConns = 32
	}
	return c
}

// Validate names the first field that cannot be, and what it may be. A client that is made of such a Config sends
// nothing, and answers every request with this error.
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
			return errors.New("proxy: has no scheme that is known: begin its URL with http:// or https://") // without the URL: what is damaged may show a password
		}
		if p.Hostname() == "" {
			return errors.New("proxy: has no host: use a URL such as http://proxy.example.com:3128")
		}
	}
	return nil
}
