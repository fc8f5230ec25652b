package web

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/host/account"
)

// refusedPause is the minimum time between two log lines about refused connections.
const refusedPause = time.Minute

// connections limits how many connections are open at a time, of all clients and of each client. It closes further
// connections at once, because idle connections take memory and descriptors that other clients need.
type connections struct {
	net.Listener
	places *account.Budget
	logger hclog.Logger
	logged time.Time // when a refusal was last logged; only Accept uses it
}

// Bound returns a listener that has at most limit open connections. One client has at most half of them. Only one
// goroutine can call Accept at a time.
func Bound(listener net.Listener, limit int, logger hclog.Logger) net.Listener {
	return &connections{Listener: listener, places: account.NewBudget(int64(limit), 2), logger: logger}
}

// Accept waits for a connection within the limits.
func (c *connections) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		address := conn.RemoteAddr().String()
		if from, err := netip.ParseAddrPort(address); err == nil {
			address = clientOf(from.Addr().Unmap())
		}
		if place := c.places.TryTake(address, 1); place != nil {
			return &connection{Conn: conn, closed: sync.OnceFunc(place.Give)}, nil
		}
		if time.Since(c.logged) > refusedPause {
			c.logged = time.Now()
			c.logger.Warn("closed a connection: too many are open", "from", address, "most", c.places.Whole(),
				"most_of_one", c.places.Each())
		}
		_ = conn.Close()
	}
}

// clientOf returns the client to which an address belongs: the address itself for IPv4, and its /64 network for IPv6,
// because one client can have all 2⁶⁴ addresses of such a network.
func clientOf(address netip.Addr) string {
	if network, err := address.Prefix(64); err == nil && address.Is6() {
		return network.String()
	}
	return address.String()
}

// connection gives its place back when it is closed.
type connection struct {
	net.Conn
	closed func()
}

func (c *connection) Close() error {
	defer c.closed()
	return c.Conn.Close()
}

// CloseWrite is for net/http, which calls it after it has answered a request that it has not read to the end.
func (c *connection) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
