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

// refusedPause is the least time between two log lines about refused connections.
const refusedPause = time.Minute

// connections bounds the connections that are open at a time, of all clients and of each address, and closes others at
// once: idle connections take memory and descriptors that other clients need.
type connections struct {
	net.Listener
	places *account.Budget
	logger hclog.Logger
	logged time.Time // when a refusal was last logged; used by Accept
}

// Bound bounds the connections of a listener; one address may have half of them. One goroutine may accept at a time.
func Bound(listener net.Listener, most int, logger hclog.Logger) net.Listener {
	return &connections{Listener: listener, places: account.NewBudget(int64(most), 2), logger: logger}
}

// Accept waits for a connection within the bounds.
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

// clientOf returns what counts as one client: an address of IPv4, or a /64 network of IPv6, whose 2⁶⁴ addresses one
// client may have.
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

// CloseWrite is for net/http, which calls it after answering a request that it has not read to the end.
func (c *connection) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
