package queue

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// NodeInfo is a listener with a lease, and what it says of itself.
type NodeInfo struct {
	ID       string
	LeaseEnd time.Time
	// About is what the node published with its last renewal; empty if that is too long ago.
	About map[string]string
}

// Nodes lists the tenant's listeners that have a lease, by ID. Python listeners have none.
func (c *Client) Nodes(ctx context.Context) ([]NodeInfo, error) {
	scored, err := c.rdb.ZRangeWithScores(ctx, c.keys.nodes(), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	nodes := make([]NodeInfo, len(scored))
	cmds := make([]*redis.MapStringStringCmd, len(scored))
	_, err = c.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, z := range scored {
			id, _ := z.Member.(string)
			nodes[i] = NodeInfo{ID: id, LeaseEnd: time.UnixMicro(int64(z.Score * 1e6))}
			cmds[i] = p.HGetAll(ctx, c.keys.node(id))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read nodes: %w", err)
	}
	for i, cmd := range cmds {
		nodes[i].About = cmd.Val()
	}
	sort.Slice(nodes, func(i, j int) bool { return nodes[i].ID < nodes[j].ID })
	return nodes, nil
}

// Clock is Redis's time: the one that leases, delays and ages are measured by.
func (c *Client) Clock(ctx context.Context) (time.Time, error) {
	now, err := c.rdb.Time(ctx).Result()
	if err != nil {
		return time.Time{}, fmt.Errorf("read Redis's clock: %w", err)
	}
	return now, nil
}

// Warnings looks for settings of Redis by which tasks would be lost: keys that are evicted when
// memory is full, and nothing kept on disk. What the user may not ask is not warned of.
func (c *Client) Warnings(ctx context.Context) []string {
	var warnings []string
	setting := func(name string) (string, bool) {
		values, err := c.rdb.ConfigGet(ctx, name).Result()
		value, ok := values[name]
		return value, err == nil && ok
	}
	if policy, ok := setting("maxmemory-policy"); ok && policy != "noeviction" {
		warnings = append(warnings, fmt.Sprintf("Redis evicts keys when its memory is full (maxmemory-policy %s), tasks too: set it to noeviction", policy))
	}
	save, saves := setting("save")
	aof, appends := setting("appendonly")
	if saves && appends && strings.TrimSpace(save) == "" && aof == "no" {
		warnings = append(warnings, "Redis keeps nothing on disk, a restart loses every task: set appendonly yes")
	}
	return warnings
}

// HasListener tells whether somebody listens to the queue: a Quern listener whose lease runs, or one
// of Python, which has no lease and counts as alive while it is in the set.
func (q *Queue) HasListener(ctx context.Context) (bool, error) {
	if err := ValidQueue(q.name); err != nil {
		return false, err
	}
	c := q.client
	listeners, err := c.rdb.SMembers(ctx, c.keys.listeners(q.name)).Result()
	if err != nil || len(listeners) == 0 {
		return false, wrap("list listeners of "+q.name, err)
	}
	now, err := c.Clock(ctx)
	if err != nil {
		return false, err
	}
	ends, err := c.rdb.ZMScore(ctx, c.keys.nodes(), listeners...).Result()
	if err != nil {
		return false, wrap("read leases", err)
	}
	for i, listener := range listeners {
		leased := ends[i] > 0 // a Quern listener without a lease is dead
		if leased && ends[i] > float64(now.Unix()) || !leased && !isQuernListener(listener) {
			return true, nil
		}
	}
	return false, nil
}

func wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}
