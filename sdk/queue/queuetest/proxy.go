package queuetest

import (
	"bytes"
	"net"
	"sync"
	"testing"
)

// Proxy stands between a client and a server and breaks their connections where a test wants it. At first it passes everything.
type Proxy struct {
	target   string
	listener net.Listener
	children sync.WaitGroup

	mu    sync.Mutex // guards what follows
	moved *sync.Cond // the mode, cuts or a link has changed
	mode  proxyMode
	text  []byte // marks a request whose reply is cut
	cuts  int    // how many replies are still to be cut; -1: all
	done  int    // how many were
	holds []byte // marks a request whose reply is kept back; nil: none is
	links map[*link]struct{}
}

type proxyMode int

const (
	passing proxyMode = iota
	blocking
	refusing
)

// link is one connection through the proxy.
type link struct {
	client, server net.Conn
	seen           []byte // the end of the request so far, should the text be split; guarded by Proxy.mu
	cut            bool   // the next reply is to be; guarded by Proxy.mu
	held           bool   // the next reply is; guarded by Proxy.mu
}

// seenBytes is the longest text that is found although it is split.
const seenBytes = 256

// NewProxy passes connections from a free loopback port to the server, for the length of the test.
func NewProxy(t testing.TB, server *Server) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{target: server.Addr(), listener: listener, links: make(map[*link]struct{})}
	p.moved = sync.NewCond(&p.mu)
	p.children.Go(p.accept)
	t.Cleanup(func() {
		p.Refuse()
		_ = listener.Close()
		p.children.Wait()
	})
	return p
}

// Addr is the proxy's host and port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// URL is what a client connects to in place of the server.
func (p *Proxy) URL() string { return "redis://" + p.Addr() + "/0" }

// Pass lets everything through again; what Block kept back goes first.
func (p *Proxy) Pass() { p.change(passing) }

// Block is a network that hangs: the connections stay, and requests and replies are kept back until Pass, also those of a
// client that has given up meanwhile.
func (p *Proxy) Block() { p.change(blocking) }

// Refuse ends every connection and each new one at once.
func (p *Proxy) Refuse() { p.change(refusing) }

// CutReplies passes the next n requests that contain text (all of them if n is negative) and ends the connection in place of
// the reply, so that the client does not learn what the server has done. Pass ends it; the empty text is in every request.
func (p *Proxy) CutReplies(n int, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cuts, p.text = n, []byte(text)
}

// HoldReplies keeps back the replies of requests that contain text until Pass, as a slow server would. Other connections go on.
func (p *Proxy) HoldReplies(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holds = []byte(text)
}

// Held is how many connections wait for a reply that is kept back.
func (p *Proxy) Held() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		if l.held {
			n++
		}
	}
	return n
}

// Cuts is how many replies were cut so far.
func (p *Proxy) Cuts() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done
}

func (p *Proxy) change(mode proxyMode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mode = mode
	if mode == passing {
		p.cuts, p.holds = 0, nil
		for l := range p.links {
			l.held = false
		}
	}
	if mode == refusing {
		for l := range p.links {
			reset(l.client)
			l.close()
		}
	}
	p.moved.Broadcast()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.children.Go(func() { p.connect(client) })
	}
}

// connect serves one connection until either side ends it.
func (p *Proxy) connect(client net.Conn) {
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		reset(client)
		return
	}
	l := &link{client: client, server: server}
	p.mu.Lock()
	refused := p.mode == refusing
	if !refused {
		p.links[l] = struct{}{}
	}
	p.mu.Unlock()
	if refused {
		reset(client)
		l.close()
		return
	}
	var replies sync.WaitGroup
	replies.Go(func() { l.pump(server, client, func([]byte) bool { return p.reply(l) }) })
	l.pump(client, server, func(chunk []byte) bool { return p.request(l, chunk) })
	replies.Wait()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// pump copies what allow admits, and ends both connections when one ends.
func (l *link) pump(from, to net.Conn, allow func(chunk []byte) bool) {
	defer l.close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if !allow(buffer[:n]) {
				reset(l.client)
				return
			}
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// request waits while everything is blocked and notes whether the reply is to be cut.
func (p *Proxy) request(l *link, chunk []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.mode == blocking {
		p.moved.Wait()
	}
	l.seen = append(l.seen, chunk...)
	if p.cuts != 0 && !l.cut && bytes.Contains(l.seen, p.text) {
		l.cut = true
		p.cuts = max(-1, p.cuts-1)
	}
	l.held = l.held || p.holds != nil && bytes.Contains(l.seen, p.holds)
	l.seen = bytes.Clone(l.seen[max(0, len(l.seen)-seenBytes):])
	return p.mode == passing
}

// reply waits while everything is blocked and tells whether the reply goes to the client.
func (p *Proxy) reply(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.mode == blocking || p.mode == passing && l.held {
		p.moved.Wait()
	}
	if l.cut {
		p.done++
	}
	l.seen = nil
	return p.mode == passing && !l.cut
}

func (l *link) close() {
	_ = l.client.Close()
	_ = l.server.Close()
}

// reset ends a connection as a crash would, so that the client does not take it for an orderly end.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
