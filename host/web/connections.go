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

// refusedPause is between two lines in the log about connections that are too many.
const refusedPause = time.Minute

// connections accepts only so many connections at a time, of all clients and of each address, and closes the others at once: what a
// client opens and leaves idle takes memory and descriptors that others need.
type connections struct {
	net.Listener
	places *account.Budget
	logger hclog.Logger
	told   time.Time // when the log last had a line about a refusal; used by Accept
}

// Bound bounds the connections of a listener; one address may have half of them. One goroutine may accept at a time.
func Bound(listener net.Listener, most int, logger hclog.Logger) net.Listener {
	return &connections{Listener: listener, places: account.NewBudget(int64(most), 2), logger: logger}
}

// Accept waits for a connection that is not too many.
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
		if time.Since(c.told) > refusedPause {
			c.told = time.Now()
			c.logger.Warn("closed a connection: too many are open", "from", address, "most", c.places.Whole(), "most_of_one", c.places.Each())
		}
		_ = conn.Close()
	}
}

// clientOf is what counts as one client: an address of IPv4, or a /64 network of IPv6, whose 2⁶⁴ addresses one client may have.
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

// CloseWrite is for net/http, which ends an answer to a request that it has not read with it.
func (c *connection) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}
