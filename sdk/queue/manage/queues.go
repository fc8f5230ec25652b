package manage

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"

	"github.com/redis/go-redis/v9"
)

// tenantKeys is how many keys Tenants looks at.
const tenantKeys = 100_000

// Tenants lists the tenants of this Redis that have queues, by name. In a Redis of more than 100,000 keys it may miss some.
func (m *Manager) Tenants(ctx context.Context) ([]string, error) {
	const block = 1000
	names := make(map[string]bool)
	for cursor, seen := uint64(0), 0; seen < tenantKeys; seen += block {
		found, next, err := m.store.RDB.ScanType(ctx, cursor, "*"+store.Keys{}.Queues(), block, "zset").Result()
		if err != nil {
			return nil, store.Wrap("look for tenants", err)
		}
		for _, key := range found {
			// A tenant's name has no underscore, so what precedes this ending is one, or no key of the protocol.
			if name := strings.TrimSuffix(key, store.Keys{}.Queues()); queue.ValidTenant(name) == nil {
				names[name] = true
			}
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// HasQueue tells whether the tenant has a queue of this name.
func (m *Manager) HasQueue(ctx context.Context, name string) (bool, error) {
	if err := queue.ValidQueue(name); err != nil {
		return false, err
	}
	err := m.store.RDB.ZScore(ctx, m.store.Keys.Queues(), name).Err()
	if store.IsNil(err) {
		return false, nil
	}
	return err == nil, store.Wrap("look for queue "+name, err)
}

// busiestOf is of how many queues, those with the most listeners, BusiestQueues looks for the busiest.
const busiestOf = 10_000

// BusiestQueues lists the names of at most that many queues, and how many the tenant has. Of more, half are those with the most
// pending tasks of priority 50, which most tasks have, and the others those with the most listeners.
func (m *Manager) BusiestQueues(ctx context.Context, most int) (names []string, all int64, err error) {
	p := m.store.RDB.Pipeline()
	listed, count := p.ZRevRange(ctx, m.store.Keys.Queues(), 0, busiestOf-1), p.ZCard(ctx, m.store.Keys.Queues())
	_, err = p.Exec(ctx)
	names = slices.DeleteFunc(listed.Val(), func(name string) bool { return queue.ValidQueue(name) != nil })
	if err == nil && len(names) > most {
		names, err = m.busiest(ctx, names, most)
	}
	return names, count.Val(), store.Wrap("list queues in "+m.store.Keys.Queues(), err)
}

// busiest are that many of the queues, which come with the most listeners first.
func (m *Manager) busiest(ctx context.Context, served []string, most int) ([]string, error) {
	cmds, err := store.Pipelined(ctx, m.store, served, func(p redis.Pipeliner, name string) *redis.IntCmd { return p.LLen(ctx, m.store.Keys.Pending(name)) })
	if err != nil {
		return nil, err
	}
	pending := make(map[string]int64, len(served))
	for i, cmd := range cmds {
		pending[served[i]] = cmd.Val()
	}
	loaded := slices.SortedStableFunc(slices.Values(served), func(a, b string) int { return cmp.Compare(pending[b], pending[a]) })
	chosen := make(map[string]bool, most)
	for _, name := range slices.Concat(loaded[:(most+1)/2], served) {
		if len(chosen) < most {
			chosen[name] = true
		}
	}
	return slices.DeleteFunc(served, func(name string) bool { return !chosen[name] }), nil
}

// Info is what Redis tells of itself, in the sections that are named; without any, in its usual ones.
func (m *Manager) Info(ctx context.Context, sections ...string) (map[string]string, error) {
	text, err := m.store.RDB.Info(ctx, sections...).Result()
	info := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info, store.Wrap("read INFO", err)
}

// Warnings names settings of Redis by which tasks would be lost. The error tells that the user may not read them all.
func (m *Manager) Warnings(ctx context.Context) (warnings []string, err error) {
	setting := func(name string) (string, bool) {
		values, failed := m.store.RDB.ConfigGet(ctx, name).Result()
		err = cmp.Or(err, store.Wrap("read setting "+name, failed))
		value, ok := values[name]
		return value, ok
	}
	if policy, ok := setting("maxmemory-policy"); ok && policy != "noeviction" {
		warnings = append(warnings, fmt.Sprintf("Redis evicts keys when its memory is full (maxmemory-policy %s), tasks too: run `redis-cli CONFIG SET maxmemory-policy noeviction`, and write it into redis.conf", policy))
	}
	save, saves := setting("save")
	aof, appends := setting("appendonly")
	if saves && appends && strings.TrimSpace(save) == "" && aof == "no" {
		warnings = append(warnings, "Redis keeps nothing on disk, a restart loses every task: run `redis-cli CONFIG SET appendonly yes`, and write it into redis.conf")
	}
	return warnings, err
}

// Address is where the client looks for Redis: HOST:PORT, or the path of a socket; "" if its connection does not tell.
func (m *Manager) Address() string {
	if rdb := store.Single(m.store.RDB); rdb != nil {
		return rdb.Options().Addr
	}
	return ""
}

// QueuePage is Client.Queues for at most that many of them, from a place on: those with fewer listeners come first. next is where the
// page behind it begins, 0 if there is none.
func (m *Manager) QueuePage(ctx context.Context, from, most int64) (queues map[string]int64, next int64, err error) {
	return m.store.QueuePage(ctx, from, most, queue.ValidQueue)
}
