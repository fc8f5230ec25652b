package queue_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

// Renewals follow to where new connections lead, though the old ones still stand: Sentinel may have made another server
// the primary without the old one's knowing.
func TestRenewalsFollowThePrimary(t *testing.T) {
	t.Parallel()
	a, b := queuetest.Start(t), queuetest.Start(t)
	var primary atomic.Pointer[queuetest.Server]
	primary.Store(a)
	rdb := redis.NewClient(&redis.Options{MaxRetries: -1, Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, primary.Load().Addr())
	}})
	t.Cleanup(func() { _ = rdb.Close() })
	client := must[*queue.Client](t)(queue.NewFromRedis(rdb, queue.Config{Lease: time.Second}))
	t.Cleanup(func() { _ = client.Close() })
	node := listen.New(client)
	if err := node.Join(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := node.Renew(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	primary.Store(b)
	eventually(t, "a renewal that the new primary answers", func() bool {
		_, err := node.Renew(t.Context(), nil)
		return errors.Is(err, listen.ErrLeaseLost)
	})
}
