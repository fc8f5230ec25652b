package manage

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// tenantKeys is roughly the maximum number of keys that Tenants looks at.
const tenantKeys = 100_000

// Tenants lists the tenants of this Redis, or Cluster, that have queues, by name. In a server of more than 100,000 keys
// it may miss some.
func (m *Manager) Tenants(ctx context.Context) ([]string, error) {
	names := make(map[string]bool)
	err := m.store.EachPrimary(ctx, func(rdb redis.UniversalClient) error { return tenantsOn(ctx, rdb, names) })
	return slices.Sorted(maps.Keys(names)), store.Wrap("look for tenants", err)
}

// tenantsOn adds the tenants of one server to names.
func tenantsOn(ctx context.Context, rdb redis.UniversalClient, names map[string]bool) error {
	const block = 1000
	for cursor, seen := uint64(0), 0; seen < tenantKeys; seen += block {
		found, next, err := rdb.ScanType(ctx, cursor, "*"+store.Keys{}.Queues(), block, "zset").Result()
		if err != nil {
			return err
		}
		for _, key := range found {
			// No tenant's name contains an underscore. So if the text before the suffix is no valid name, the key does not
			// belong to the protocol.
			if name := strings.TrimSuffix(key, store.Keys{}.Queues()); queue.ValidTenant(name) == nil {
				names[name] = true
			}
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	return nil
}

// busiestOf is the number of queues that BusiestQueues considers; it takes those with the most listeners.
const busiestOf = 10_000

// BusiestQueues lists the names of up to limit queues. all is the number of the tenant's queues. If the tenant has more
// than limit, half of the listed queues are those with the most pending tasks of the default priority, and the rest are
// those with the most listeners.
func (m *Manager) BusiestQueues(ctx context.Context, limit int) (names []string, all int64, err error) {
	p := m.store.RDB.Pipeline()
	listed, count := p.ZRevRange(ctx, m.store.Keys.Queues(), 0, busiestOf-1), p.ZCard(ctx, m.store.Keys.Queues())
	_, err = p.Exec(ctx)
	names = slices.DeleteFunc(listed.Val(), func(name string) bool { return queue.ValidQueue(name) != nil })
	if err == nil && len(names) > limit {
		names, err = m.busiest(ctx, names, limit)
	}
	return names, count.Val(), store.Wrap("list queues in "+m.store.Keys.Queues(), err)
}

// busiest chooses limit of the queues in served, which the caller has sorted by the number of listeners, largest first.
func (m *Manager) busiest(ctx context.Context, served []string, limit int) ([]string, error) {
	cmds, err := store.Pipelined(ctx, m.store, served,
		func(p redis.Pipeliner, name string) *redis.IntCmd { return p.LLen(ctx, m.store.Keys.Pending(name)) })
	if err != nil {
		return nil, err
	}
	pending := make(map[string]int64, len(served))
	for i, cmd := range cmds {
		pending[served[i]] = cmd.Val()
	}
	loaded := slices.SortedStableFunc(slices.Values(served),
		func(a, b string) int { return cmp.Compare(pending[b], pending[a]) })
	chosen := make(map[string]bool, limit)
	for _, name := range slices.Concat(loaded[:(limit+1)/2], served) {
		if len(chosen) < limit {
			chosen[name] = true
		}
	}
	return slices.DeleteFunc(served, func(name string) bool { return !chosen[name] }), nil
}
