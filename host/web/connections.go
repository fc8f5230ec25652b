package web

import (
	"errors"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// refusedPause is between two lines in the log about connections that are too many.
const refusedPause = time.Minute

// connections accepts only so many connections at a time, of all clients and of each address, and closes the others at once: what a
// client opens and leaves idle takes memory and descriptors that others need.
type connections struct {
	net.Listener
	most, each int
	logger     hclog.Logger

	mu        sync.Mutex // guards what follows
	open      int
	byAddress map[string]int // of the addresses that have any
	told      time.Time      // when the log last had a line about a refusal
}

// Bound bounds the connections of a listener; one address may have half of them.
func Bound(listener net.Listener, most int, logger hclog.Logger) net.Listener {
	return &connections{Listener: listener, most: most, each: most / 2, logger: logger, byAddress: make(map[string]int)}
}

// Accept waits for a connection that is not too many.
func (c *connections) Accept() (net.Conn, error) {
	for {
		conn, err := c.Listener.Accept()
		if err != nil {
			return nil, err
		}
		address := conn.RemoteAddr().String()
		if host, _, err := net.SplitHostPort(address); err == nil {
			address = host
		}
		if c.admit(address) {
			return &connection{Conn: conn, closed: sync.OnceFunc(func() { c.leave(address) })}, nil
		}
		_ = conn.Close()
	}
}

func (c *connections) admit(address string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open >= c.most || c.byAddress[address] >= c.each {
		if time.Since(c.told) > refusedPause {
			c.told = time.Now()
			c.logger.Warn("closed a connection: too many are open", "from", address, "open", c.open, "most", c.most, "of_one_address", c.byAddress[address], "most_of_one", c.each)
		}
		return false
	}
	c.open++
	c.byAddress[address]++
	return true
}

func (c *connections) leave(address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
	if c.byAddress[address]--; c.byAddress[address] == 0 {
		delete(c.byAddress, address)
	}
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
