package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// proxy stands between one client, or some, and Redis, always at the same address.
type proxy struct {
	mu       sync.Mutex
	upstream string           // guarded by mu
	current  *toxiproxy.Proxy // guarded by mu
}

// toxic is one way in which a proxy breaks what goes through it, as toxiproxy's documents name them.
type toxic struct {
	Type       string           `json:"type"`
	Stream     string           `json:"stream"` // upstream: requests; downstream: answers
	Attributes map[string]int64 `json:"attributes"`
}

func newProxy(t testing.TB, upstream string) *proxy {
	t.Helper()
	p := &proxy{upstream: upstream, current: newToxiproxy("127.0.0.1:0", upstream)}
	if err := p.current.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if err := bounded(func() error { p.current.Stop(); return nil }); err != nil {
			t.Error(err)
		}
	})
	return p
}

func newToxiproxy(listen, upstream string) *toxiproxy.Proxy {
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	return toxiproxy.NewProxy(server, "redis", listen, upstream)
}

// url is what a client connects to in place of the server.
func (p *proxy) url() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return "redis://" + p.current.Listen + "/0"
}

// breaks adds toxics, to the connections that there are and to new ones.
func (p *proxy) breaks(toxics []toxic) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return bounded(func() error {
		for _, toxic := range toxics {
			text, err := json.Marshal(toxic)
			if err != nil {
				return err
			}
			if _, err := p.current.Toxics.AddToxicJson(bytes.NewReader(text)); err != nil {
				return fmt.Errorf("add toxic %s: %w", text, err)
			}
		}
		return nil
	})
}

// heal ends all connections and begins with sound ones. Taking toxics from connections that live is
// what toxiproxy can do, too, but it waits for ever for one whose client has just gone.
func (p *proxy) heal() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return bounded(func() error {
		p.current.Stop()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		var err error
		until(ctx, func() bool { // a connection of another program may have the port meanwhile
			p.current = newToxiproxy(p.current.Listen, p.upstream)
			err = p.current.Start()
			return !errors.Is(err, syscall.EADDRINUSE)
		})
		return err
	})
}

// bounded bounds what toxiproxy may take: it has no limits of its own.
func bounded(act func() error) error {
	done := make(chan error, 1)
	go func() { done <- act() }()
	select {
	case err := <-done:
		return err
	case <-time.After(2 * time.Minute):
		return errors.New("toxiproxy hangs")
	}
}
