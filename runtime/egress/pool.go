package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// perTenant times MaxConns is the maximum number of a tenant's connections to all hosts.
	perTenant = 8
	// idlePart limits idle connections: one in idlePart of the maximum number of connections can be idle.
	idlePart = 4

	// streamBuffer and connBuffer are the numbers of bytes that a server can send over HTTP/2 before they are read: on
	// one stream, and on all streams of a connection.
	streamBuffer = 512 << 10
	connBuffer   = 2 << 20
	// An HTTP/2 connection on which nothing arrives for pingAfter gets a ping, and is closed if the reply takes longer
	// than pingTimeout. Otherwise each request on a dead connection would wait for its own timeout.
	pingAfter   = 15 * time.Second
	pingTimeout = 10 * time.Second
)

// pool holds the connections of one tenant.
type pool struct {
	client    *Client
	transport *http.Transport
	dialer    net.Dialer
	conns     atomic.Int64 // number of connections that are open or being opened
}

func newPool(c *Client) *pool {
	cfg := c.cfg
	p := &pool{client: c, dialer: net.Dialer{Timeout: cfg.dialTimeout, Resolver: cfg.resolver}}
	p.transport = &http.Transport{
		DialContext:            p.dial,
		TLSClientConfig:        &tls.Config{RootCAs: cfg.rootCAs, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    cfg.handshakeTimeout,
		DisableCompression:     true,
		MaxConnsPerHost:        cfg.MaxConns,
		MaxIdleConnsPerHost:    max(1, cfg.MaxConns/idlePart),
		MaxIdleConns:           max(1, perTenant*cfg.MaxConns/idlePart),
		IdleConnTimeout:        cfg.idleTimeout,
		MaxResponseHeaderBytes: int64(cfg.maxHeader),
		ForceAttemptHTTP2:      true,
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream: streamBuffer, MaxReceiveBufferPerConnection: connBuffer,
			SendPingTimeout: pingAfter, PingTimeout: pingTimeout, WriteByteTimeout: pingTimeout,
		},
	}
	if cfg.Proxy != nil {
		// All sockets lead to the proxy, which the operator chose; checkTarget checks the target instead.
		p.transport.Proxy = http.ProxyURL(cfg.Proxy)
	} else {
		p.dialer.ControlContext = p.checkSocket
	}
	return p
}

// checkSocket refuses a socket that is about to connect to an address that is not allowed.
func (p *pool) checkSocket(ctx context.Context, _, address string, _ syscall.RawConn) error {
	to, _ := netip.ParseAddrPort(address) // CheckAddr refuses the zero address of a failed parse
	err := CheckAddr(to.Addr(), p.client.cfg.Networks)
	// The pool keeps connections by origin, so the connection serves only requests that name a loopback address, too.
	if t, _ := ctx.Value(targetKey{}).(target); err != nil && p.client.cfg.Loopback != nil && t.isLoopback() &&
		to.Addr().IsLoopback() {
		p.client.local.Do(func() { p.client.cfg.Loopback(t.String(), to.Addr()) })
		return nil
	}
	return err
}

// checkTarget refuses a target if any of its addresses is not allowed, because the proxy can choose any of them.
func (p *pool) checkTarget(ctx context.Context, t target) error {
	ctx, cancel := context.WithTimeout(ctx, p.client.cfg.dialTimeout)
	defer cancel()
	// If t.host is an address, the result is that address.
	addrs, err := p.client.cfg.resolver.LookupNetIP(ctx, "ip", t.host)
	if err != nil {
		return fmt.Errorf("resolve before asking the proxy: %w", err)
	}
	for _, a := range addrs {
		// Resolvers can return IPv4 addresses in IPv6 form; sockets connect to the IPv4 address.
		if err := CheckAddr(a.Unmap(), p.client.cfg.Networks); err != nil {
			return err
		}
	}
	return nil
}

// callKey is the key under which a context holds the request's own context. The transport dials with a context that
// outlives the request.
type callKey struct{}

// targetKey is the key under which a context holds the target of the request that needs a connection.
type targetKey struct{}

// dial opens a connection, and gives up when the request that needs the connection ends. Otherwise a guest whose
// requests end early and often could pile up pending dials.
func (p *pool) dial(ctx context.Context, network, address string) (net.Conn, error) {
	call, ok := ctx.Value(callKey{}).(context.Context)
	if !ok {
		return nil, errors.New("dial without a request")
	}
	if most := int64(perTenant * p.client.cfg.MaxConns); p.conns.Add(1) > most {
		p.conns.Add(-1)
		return nil, fmt.Errorf("the tenant has %d connections, its limit", most)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(call, cancel)()
	inner, err := p.dialer.DialContext(ctx, network, address)
	if err == nil {
		c := &conn{Conn: inner, pool: p}
		if err = p.client.add(c, func() { _ = c.Close() }); err == nil {
			return c, nil
		}
		_ = inner.Close()
	}
	p.conns.Add(-1)
	return nil, err
}

// conn is a connection that its pool counts and that the client can close.
type conn struct {
	net.Conn
	pool *pool
	once sync.Once
	// overhead is the number of bytes received in addition to the bodies that were read, minus the allowed overhead: see
	// framing.
	overhead atomic.Int64
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.overhead.Add(int64(n))
	return n, err
}

// Close closes the connection, once.
func (c *conn) Close() (err error) {
	c.once.Do(func() {
		err = c.Conn.Close()
		c.pool.conns.Add(-1)
		c.pool.client.remove(c)
	})
	return err
}
