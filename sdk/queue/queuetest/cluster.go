package queuetest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Cluster is a Redis Cluster of three primaries, each with a replica.
type Cluster struct {
	// Servers are the primaries of the slots 0 to 5461, to 10922 and to 16383, and then their replicas.
	Servers []*Server
}

// AnyPort stands for a free port in the options of StartCluster.
const AnyPort = "any port"

const (
	primaries = 3
	slots     = 16384
)

// StartCluster runs a Redis Cluster for one test. options are added to the command line of each server; AnyPort stands
// for a free port.
func StartCluster(t testing.TB, options ...string) *Cluster {
	t.Helper()
	c, err := startCluster(t.TempDir(), options)
	t.Cleanup(c.Kill)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// sharedCluster is started by the first test that asks for it.
var (
	sharedCluster      *Cluster
	startSharedCluster = sync.OnceValue(func() (err error) {
		sharedCluster, err = startCluster(filepath.Join(sharedDir, "cluster"), nil)
		return err
	})
)

// SharedCluster returns a Redis Cluster that all tests of the package share. Main ends it.
func SharedCluster(t testing.TB) *Cluster {
	t.Helper()
	if err := startSharedCluster(); err != nil {
		t.Fatal(err)
	}
	return sharedCluster
}

// URL returns a URL with the addresses of all servers.
func (c *Cluster) URL() string {
	addresses := make([]string, len(c.Servers))
	for i, s := range c.Servers {
		addresses[i] = s.Addr()
	}
	return "redis://" + strings.Join(addresses, ",") + "?cluster=true"
}

// Kill ends all servers at once.
func (c *Cluster) Kill() {
	for _, s := range c.Servers {
		s.Kill()
	}
}

// Owner returns the primary of a key's slot, or nil while there is none.
func (c *Cluster) Owner(t testing.TB, key string) *Server {
	t.Helper()
	slot := c.Slot(t, key)
	for _, s := range c.Servers {
		all, err := owners(context.Background(), s.Client(t))
		if err != nil {
			continue // it was killed
		}
		for _, o := range all {
			if o.Start <= slot && slot <= o.End {
				return c.at(o.Nodes[0].Addr)
			}
		}
		return nil
	}
	return nil
}

func owners(ctx context.Context, rdb *redis.Client) ([]redis.ClusterSlot, error) {
	return rdb.ClusterSlots(ctx).Result() //nolint:staticcheck // as go-redis itself does
}

func (c *Cluster) at(address string) *Server {
	for _, s := range c.Servers {
		if s.Addr() == address {
			return s
		}
	}
	return nil
}

// Slot returns the slot of a key, which any server that lives knows.
func (c *Cluster) Slot(t testing.TB, key string) int {
	t.Helper()
	var err error
	for _, s := range c.Servers {
		var slot int64
		if slot, err = s.Client(t).ClusterKeySlot(context.Background(), key).Result(); err == nil {
			return int(slot)
		}
	}
	t.Fatal(err)
	return 0
}

// Move moves the slot of a key to another primary, as `redis-cli --cluster reshard` does. between is called after each
// key that has been moved; it can be nil.
func (c *Cluster) Move(t testing.TB, key string, to *Server, between func()) {
	t.Helper()
	ctx := context.Background()
	slot, from := c.Slot(t, key), c.Owner(t, key)
	source, target := from.Client(t), to.Client(t)
	sourceID, targetID := source.ClusterMyID(ctx).Val(), target.ClusterMyID(ctx).Val()
	do := func(rdb *redis.Client, args ...any) {
		t.Helper()
		if err := rdb.Do(ctx, args...).Err(); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
	}
	do(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", sourceID)
	do(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", targetID)
	for {
		keys, err := source.ClusterGetKeysInSlot(ctx, slot, 10).Result()
		if err != nil {
			t.Fatal(err)
		}
		if len(keys) == 0 {
			break
		}
		for _, key := range keys {
			do(source, "MIGRATE", "127.0.0.1", strconv.Itoa(to.port), key, 0, 10_000)
			if between != nil {
				between()
			}
		}
	}
	do(target, "CLUSTER", "SETSLOT", slot, "NODE", targetID)
	do(source, "CLUSTER", "SETSLOT", slot, "NODE", targetID)
	for _, s := range c.Servers { // the others hear of it soon in any case
		_ = s.Client(t).Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", targetID).Err()
	}
}

func startCluster(dir string, options []string) (*Cluster, error) {
	c := &Cluster{}
	for i := range 2 * primaries {
		own := filepath.Join(dir, strconv.Itoa(i))
		if err := os.MkdirAll(own, 0o700); err != nil {
			return c, err
		}
		bus, err := freePort()
		if err != nil {
			return c, err
		}
		all := append([]string{
			"--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(bus), "--cluster-node-timeout", "5000",
			"--repl-diskless-sync-delay", "0",
		}, options...)
		if at := slices.Index(all, AnyPort); at >= 0 {
			port, err := freePort()
			if err != nil {
				return c, err
			}
			all[at] = strconv.Itoa(port)
		}
		s, err := start(own, newest, "", all)
		if err != nil {
			return c, err
		}
		c.Servers = append(c.Servers, s)
	}
	return c, c.join()
}

// join makes a Cluster of the servers.
func (c *Cluster) join() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	nodes := make([]*redis.Client, len(c.Servers))
	for i, s := range c.Servers {
		nodes[i] = redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1})
		defer nodes[i].Close()
	}
	first := c.Servers[0]
	bus, err := nodes[0].ConfigGet(ctx, "cluster-port").Result()
	if err != nil {
		return err
	}
	for i, rdb := range nodes {
		if err := rdb.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err(); err != nil {
			return err
		}
		if i < primaries {
			from, to := i*slots/primaries, (i+1)*slots/primaries-1
			if err := rdb.ClusterAddSlotsRange(ctx, from, to).Err(); err != nil {
				return err
			}
		}
		if i > 0 {
			if err := rdb.Do(ctx, "CLUSTER", "MEET", "127.0.0.1", first.port, bus["cluster-port"]).Err(); err != nil {
				return err
			}
		}
	}
	known := fmt.Sprintf("cluster_known_nodes:%d\r\n", len(nodes))
	if err := each(ctx, nodes, func(_ int, rdb *redis.Client) bool {
		return strings.Contains(rdb.ClusterInfo(ctx).Val(), known)
	}); err != nil {
		return err
	}
	for i, rdb := range nodes[primaries:] {
		if err := rdb.ClusterReplicate(ctx, nodes[i].ClusterMyID(ctx).Val()).Err(); err != nil {
			return err
		}
	}
	return each(ctx, nodes, func(i int, rdb *redis.Client) bool {
		all, _ := owners(ctx, rdb)
		for _, o := range all {
			if len(o.Nodes) != 2 {
				return false
			}
		}
		linked := i < primaries || strings.Contains(rdb.Info(ctx, "replication").Val(), "master_link_status:up")
		return linked && len(all) == primaries && strings.Contains(rdb.ClusterInfo(ctx).Val(), "cluster_state:ok")
	})
}

// each waits until a condition holds at each node.
func each(ctx context.Context, nodes []*redis.Client, holds func(i int, rdb *redis.Client) bool) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for i, rdb := range nodes {
		for !holds(i, rdb) {
			select {
			case <-ctx.Done():
				return fmt.Errorf("make a Redis Cluster: server %d is not ready: %w", i, ctx.Err())
			case <-ticker.C:
			}
		}
	}
	return nil
}
