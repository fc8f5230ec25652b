package queuetest

import (
	"bytes"
	"net"
	"sync"
	"testing"
)

// Proxy forwards connections between a client and a server, and breaks them where a test wants it. At first it forwards
// everything.
type Proxy struct {
	target   string
	listener net.Listener
	children sync.WaitGroup

	mu    sync.Mutex // guards the following fields
	moved *sync.Cond // signals that mode, cuts or a link has changed
	mode  proxyMode
	text  []byte // a request that contains text gets no reply: see CutReplies
	cuts  int    // number of replies still to be cut; -1 for all
	done  int    // number of replies cut so far
	holds []byte // the reply to a request that contains holds is kept back; nil for none
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
	seen           []byte // the last bytes of the request, because a text may be split between reads; guarded by Proxy.mu
	cut            bool   // the next reply is to be cut; guarded by Proxy.mu
	held           bool   // the next reply is kept back; guarded by Proxy.mu
}

// seenBytes is the maximum length of a text that is found even if it is split between two reads.
const seenBytes = 256

// NewProxy forwards connections from a free loopback port to the server, a Redis or another one, until the test ends.
func NewProxy(t testing.TB, server interface{ Addr() string }) *Proxy {
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

// Addr returns the proxy's host and port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// URL returns the Redis URL that clients use instead of the server's.
func (p *Proxy) URL() string { return "redis://" + p.Addr() + "/0" }

// Pass forwards everything again, first the requests and replies that Block has kept back.
func (p *Proxy) Pass() { p.change(passing) }

// Block acts like a network that hangs. Connections stay open; requests and replies are kept back until Pass, even if
// their client has given up meanwhile.
func (p *Proxy) Block() { p.change(blocking) }

// Refuse ends all connections. New ones are ended at once, until Pass.
func (p *Proxy) Refuse() { p.change(refusing) }

// CutReplies makes the proxy forward the next n requests that contain text (all of them if n is negative), but end the
// connection instead of forwarding the reply. So the client does not learn what the server has done. Pass ends this.
// Every request contains the empty text.
func (p *Proxy) CutReplies(n int, text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cuts, p.text = n, []byte(text)
}

// HoldReplies makes the proxy keep back the replies to requests that contain text until Pass, like a slow server. Other
// connections are not affected.
func (p *Proxy) HoldReplies(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holds = []byte(text)
}

// Held returns the number of connections with a reply that is kept back.
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

// Cuts returns the number of replies that CutReplies has cut so far.
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

// connect forwards one connection until either side ends it.
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

// pump copies from one connection to the other. It ends both when one ends, or when allow returns false for a chunk.
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

// request waits while the proxy blocks, and decides whether the reply is to be cut or kept back. It reports whether the
// request is to be forwarded.
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

// reply waits while the proxy blocks or keeps the reply back. It reports whether the reply is to be forwarded.
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

// reset ends a connection like a crash, with a TCP reset, so that the client does not take it for an orderly end.
func reset(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}
