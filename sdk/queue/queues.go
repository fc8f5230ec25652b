package queue

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// tenantKeys is how many keys Tenants looks at.
const tenantKeys = 100_000

// Tenants lists the tenants of this Redis that have queues, by name. In a Redis of more than 100,000 keys it may miss some.
func (c *Client) Tenants(ctx context.Context) ([]string, error) {
	const block = 1000
	names := make(map[string]bool)
	for cursor, seen := uint64(0), 0; seen < tenantKeys; seen += block {
		found, next, err := c.store.rdb.ScanType(ctx, cursor, "*"+keys{}.queues(), block, "zset").Result()
		if err != nil {
			return nil, wrap("look for tenants", err)
		}
		for _, key := range found {
			// A tenant's name has no underscore, so what precedes this ending is one, or no key of the protocol.
			if name := strings.TrimSuffix(key, keys{}.queues()); ValidTenant(name) == nil {
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
func (c *Client) HasQueue(ctx context.Context, name string) (bool, error) {
	if err := ValidQueue(name); err != nil {
		return false, err
	}
	err := c.store.rdb.ZScore(ctx, c.store.keys.queues(), name).Err()
	if isNil(err) {
		return false, nil
	}
	return err == nil, wrap("look for queue "+name, err)
}

// busiestOf is of how many queues, those with the most listeners, BusiestQueues looks for the busiest.
const busiestOf = 10_000

// BusiestQueues lists the names of at most that many queues, and how many the tenant has. Of more, half are those with the most
// pending tasks of priority 50, which most tasks have, and the others those with the most listeners.
func (c *Client) BusiestQueues(ctx context.Context, most int) (names []string, all int64, err error) {
	p := c.store.rdb.Pipeline()
	listed, count := p.ZRevRange(ctx, c.store.keys.queues(), 0, busiestOf-1), p.ZCard(ctx, c.store.keys.queues())
	_, err = p.Exec(ctx)
	names = slices.DeleteFunc(listed.Val(), func(name string) bool { return ValidQueue(name) != nil })
	if err == nil && len(names) > most {
		names, err = c.busiest(ctx, names, most)
	}
	return names, count.Val(), wrap("list queues in "+c.store.keys.queues(), err)
}

// busiest are that many of the queues, which come with the most listeners first.
func (c *Client) busiest(ctx context.Context, served []string, most int) ([]string, error) {
	cmds, err := pipelined(ctx, c.store, served, func(p redis.Pipeliner, name string) *redis.IntCmd { return p.LLen(ctx, c.store.keys.pending(name)) })
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
func (c *Client) Info(ctx context.Context, sections ...string) (map[string]string, error) {
	text, err := c.store.rdb.Info(ctx, sections...).Result()
	info := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info, wrap("read INFO", err)
}

// Warnings names settings of Redis by which tasks would be lost. The error tells that the user may not read them all.
func (c *Client) Warnings(ctx context.Context) (warnings []string, err error) {
	setting := func(name string) (string, bool) {
		values, failed := c.store.rdb.ConfigGet(ctx, name).Result()
		err = cmp.Or(err, wrap("read setting "+name, failed))
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
