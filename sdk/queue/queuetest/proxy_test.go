package queuetest

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestMain(m *testing.M) { Exit(m) }

// setup is a connection through a proxy, with a read time-out, and one past it; they share a key.
func setup(t *testing.T, timeout time.Duration) (p *Proxy, through, past *redis.Client, key string) {
	t.Helper()
	t.Parallel()
	server := Shared(t)
	p = NewProxy(t, server)
	through = redis.NewClient(&redis.Options{
		Addr: p.Addr(), MaxRetries: -1, DialerRetries: 1, ReadTimeout: timeout,
	})
	t.Cleanup(func() { _ = through.Close() })
	if err := through.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	return p, through, server.Client(t), Tenant()
}

func TestProxyCutsTheReplyOfWhatWasDone(t *testing.T) {
	p, through, past, key := setup(t, 20*time.Second)
	ctx := t.Context()
	p.CutReplies(1, key)
	if err := through.Ping(ctx).Err(); err != nil {
		t.Errorf("a request without the text: %v", err)
	}
	if err := through.Incr(ctx, key).Err(); err == nil {
		t.Error("the reply came")
	}
	if n, err := past.Get(ctx, key).Int(); err != nil || n != 1 {
		t.Errorf("the server counted to %d, %v", n, err)
	}
	if n, err := through.Incr(ctx, key).Result(); err != nil || n != 2 {
		t.Errorf("the second request: %d, %v", n, err)
	}
	if p.Cuts() != 1 {
		t.Errorf("%d replies were cut", p.Cuts())
	}
	p.CutReplies(-1, "")
	for range 3 {
		if err := through.Ping(ctx).Err(); err == nil {
			t.Error("the reply came")
		}
	}
	p.Pass()
	if err := through.Ping(ctx).Err(); err != nil {
		t.Errorf("after Pass: %v", err)
	}
}

func TestProxyRefuses(t *testing.T) {
	p, through, _, _ := setup(t, 20*time.Second)
	p.Refuse()
	for range 3 {
		if err := through.Ping(t.Context()).Err(); err == nil {
			t.Error("a refused connection answered")
		}
	}
	p.Pass()
	if err := through.Ping(t.Context()).Err(); err != nil {
		t.Errorf("after Pass: %v", err)
	}
}

func TestProxyBlocks(t *testing.T) {
	p, through, past, key := setup(t, time.Second)
	p.Block()
	var network net.Error
	if err := through.Incr(t.Context(), key).Err(); !errors.As(err, &network) || !network.Timeout() {
		t.Errorf("a blocked request: %v, want a time-out", err)
	}
	if n := past.Exists(t.Context(), key).Val(); n != 0 {
		t.Error("the request came through")
	}
	p.Pass()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for past.Exists(ctx, key).Val() == 0 { // though the client gave up
		select {
		case <-ctx.Done():
			t.Fatal("what was kept back never came")
		case <-ticker.C:
		}
	}
	if n, err := through.Incr(t.Context(), key).Result(); err != nil || n != 2 {
		t.Errorf("after Pass: %d, %v", n, err)
	}
}

func TestProxyBeforeADeadServer(t *testing.T) {
	t.Parallel()
	server := Start(t)
	p := NewProxy(t, server)
	rdb := redis.NewClient(&redis.Options{Addr: p.Addr(), MaxRetries: -1, DialerRetries: 1})
	defer rdb.Close()
	server.Kill()
	if err := rdb.Ping(t.Context()).Err(); err == nil {
		t.Error("a dead server answered")
	}
	server.Restart(t)
	if err := rdb.Ping(t.Context()).Err(); err != nil {
		t.Errorf("after the restart: %v", err)
	}
}
