package queue

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// The kinds of listeners: a host, a worker of this package, and Blueque's.
const (
	KindQuern  = "quern"
	KindGo     = "go"
	KindPython = "python"
)

// NodeInfo is a listener, what it says of itself, and what it holds.
type NodeInfo struct {
	ID   string
	Kind string
	// LeaseEnd is when its lease ends, or ended; zero for a Python listener, which has none, and for
	// one whose tasks are being reclaimed.
	LeaseEnd time.Time
	// Draining says that it takes nothing more.
	Draining bool
	// About is what it published with its last renewal; empty if that is too long ago.
	About map[string]string
	// Queues are those that it listens to, and Holds the tasks in its reserved lists by queue, newest
	// first, started or not.
	Queues []string
	Holds  map[string][]string
}

// Nodes lists the tenant's listeners, by ID: those with a lease, and those that a queue has without.
func (c *Client) Nodes(ctx context.Context) ([]NodeInfo, error) {
	scored, err := c.rdb.ZRangeWithScores(ctx, c.keys.nodes(), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	serves, err := c.listenersOfQueues(ctx)
	if err != nil {
		return nil, err
	}
	queues, err := c.Queues(ctx)
	if err != nil {
		return nil, err
	}
	found := make(map[string]NodeInfo)
	for id, names := range serves {
		found[id] = NodeInfo{ID: id, Queues: names}
	}
	for _, z := range scored {
		id, _ := z.Member.(string)
		node := found[id]
		node.ID = id
		if z.Score > 0 {
			node.LeaseEnd = time.UnixMicro(int64(z.Score * 1e6))
		}
		found[id] = node
	}
	nodes := slices.SortedFunc(maps.Values(found), func(a, b NodeInfo) int { return cmp.Compare(a.ID, b.ID) })
	if err := c.describe(ctx, nodes, slices.Sorted(maps.Keys(queues))); err != nil {
		return nil, fmt.Errorf("read nodes: %w", err)
	}
	return nodes, nil
}

// describe reads what nodes say of themselves and what they hold, in one round trip.
func (c *Client) describe(ctx context.Context, nodes []NodeInfo, queues []string) error {
	about := make([]*redis.MapStringStringCmd, len(nodes))
	holds := make([][]*redis.StringSliceCmd, len(nodes))
	_, err := c.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, node := range nodes {
			about[i] = p.HGetAll(ctx, c.keys.node(node.ID))
			for _, queue := range queues {
				holds[i] = append(holds[i], p.LRange(ctx, c.keys.reserved(queue, node.ID), 0, maxPage-1))
			}
		}
		return nil
	})
	if err = passReplies(err); err != nil {
		return err
	}
	for i := range nodes {
		n := &nodes[i]
		n.About, n.Kind, n.Holds = about[i].Val(), KindPython, make(map[string][]string)
		if isQuernListener(n.ID) {
			n.Kind = cmp.Or(n.About["kind"], KindQuern)
		}
		n.Draining = n.About["draining"] == "true" || n.About["drain"] != ""
		for j, cmd := range holds[i] {
			if ids := cmd.Val(); len(ids) > 0 {
				n.Holds[queues[j]] = ids
			}
		}
	}
	return nil
}

// Drain tells a Quern listener to take nothing more, finish what it runs and end: ErrNoNode if none of
// that ID lives.
func (c *Client) Drain(ctx context.Context, listener string) error {
	answer, err := c.eval(ctx, call{
		script: drainScript, keys: []string{c.keys.nodes()}, args: []any{c.clock, listener},
	})
	if err != nil {
		return fmt.Errorf("drain %s: %w", listener, err)
	}
	if answer != "ok" {
		return fmt.Errorf("listener %s: %w", listener, ErrNoNode)
	}
	return nil
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
