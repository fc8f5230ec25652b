package chaos

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// relay is an address that leads to one server and later to another, as a service's does at a failover:
// what is connected by then stays where it is.
type relay struct {
	listener net.Listener
	upstream atomic.Pointer[string]

	mu    sync.Mutex
	links map[net.Conn]bool // open connections, both sides; guarded by mu
	ended bool
}

func newRelay(t testing.TB, upstream string) *relay {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{listener: listener, links: make(map[net.Conn]bool)}
	r.lead(upstream)
	var running sync.WaitGroup
	running.Go(func() { r.accept(&running) })
	t.Cleanup(func() {
		_ = listener.Close()
		r.mu.Lock()
		r.ended = true
		for link := range r.links {
			_ = link.Close()
		}
		r.mu.Unlock()
		running.Wait()
	})
	return r
}

func (r *relay) addr() string { return r.listener.Addr().String() }

// lead leads new connections to another server.
func (r *relay) lead(upstream string) { r.upstream.Store(&upstream) }

func (r *relay) accept(running *sync.WaitGroup) {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		running.Go(func() {
			server, err := net.Dial("tcp", *r.upstream.Load())
			if err != nil {
				_ = client.Close()
				return
			}
			if r.open(client, server) {
				running.Go(func() { r.pipe(client, server) })
				r.pipe(server, client)
			}
		})
	}
}

// open books a pair of connections, unless the relay has ended.
func (r *relay) open(pair ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, link := range pair {
		if r.ended {
			_ = link.Close()
		}
		r.links[link] = true
	}
	return !r.ended
}

// pipe copies until either side ends, and ends both.
func (r *relay) pipe(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, link := range []net.Conn{to, from} {
		_ = link.Close()
		delete(r.links, link)
	}
}
