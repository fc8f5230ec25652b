package oci

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/quern-project/quern/runtime/egress"
)

const (
	dialTime   = 5 * time.Second  // maximum time of a connection, and of a TLS handshake
	headerTime = 10 * time.Second // maximum time from a request to the header of its response
	stallTime  = 10 * time.Second // maximum time in which no byte of a file arrives
	maxHeader  = 64 << 10         // maximum bytes of a header
)

// guard sends requests to the registries, and to servers to which they lead.
type guard struct {
	next     *http.Transport
	plain    map[string]bool // by the address of each registry: whether it has no TLS
	proxy    string          // the address of the proxy; "" for none
	networks []netip.Prefix
}

func newTransport(c *Config) (*guard, func()) {
	g := &guard{plain: make(map[string]bool), networks: c.Networks}
	for _, r := range c.Registries {
		u := &url.URL{Scheme: "https", Host: Reference{Registry: r.Host}.Host()}
		if r.Plain {
			u.Scheme = "http"
		}
		g.plain[address(u)] = r.Plain
	}
	g.next = &http.Transport{
		DialContext: g.dial, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, TLSHandshakeTimeout: dialTime,
		ResponseHeaderTimeout: headerTime, MaxResponseHeaderBytes: maxHeader, IdleConnTimeout: time.Minute,
		MaxConnsPerHost: 4, DisableCompression: true, ForceAttemptHTTP2: true,
	}
	switch {
	case c.Proxy != nil:
		g.next.Proxy, g.proxy = http.ProxyURL(c.Proxy), address(c.Proxy)
	case c.Person:
		g.next.Proxy = http.ProxyFromEnvironment
	}
	return g, g.next.CloseIdleConnections
}

// address returns the host and port of a URL.
func address(u *url.URL) string {
	port := u.Port()
	if port == "" {
		if port = "443"; u.Scheme == "http" {
			port = "80"
		}
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// RoundTrip implements http.RoundTripper.
func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := g.check(r); err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	return g.next.RoundTrip(r)
}

func (g *guard) check(r *http.Request) error {
	plain, listed := g.plain[address(r.URL)]
	switch {
	case r.URL.Scheme != "https" && !plain:
		return fmt.Errorf("the registry leads to %s without TLS, which is not allowed", address(r.URL))
	case listed || g.proxy == "":
		return nil // dial checks the address
	}
	// The proxy can choose any of the addresses.
	addrs, err := net.DefaultResolver.LookupNetIP(r.Context(), "ip", r.URL.Hostname())
	if err != nil {
		return fmt.Errorf("resolve before asking the proxy: %w", err)
	}
	for _, a := range addrs {
		if err := egress.CheckAddr(a.Unmap(), g.networks); err != nil {
			return err
		}
	}
	return nil
}

func (g *guard) dial(ctx context.Context, network, to string) (net.Conn, error) {
	d := net.Dialer{Timeout: dialTime}
	if _, listed := g.plain[strings.ToLower(to)]; !listed && to != g.proxy {
		d.ControlContext = func(_ context.Context, _, socket string, _ syscall.RawConn) error {
			at, _ := netip.ParseAddrPort(socket) // CheckAddr refuses the zero address of a failed parse
			return egress.CheckAddr(at.Addr(), g.networks)
		}
	}
	return d.DialContext(ctx, network, to)
}
