package listen

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// Fleet has the calls that hosts make on behalf of all listeners of a tenant, and calls that read these listeners. Its
// methods are safe for concurrent use.
type Fleet struct{ client *queue.Client }

// NewFleet returns the fleet of the client's tenant.
func NewFleet(c *queue.Client) *Fleet { return &Fleet{c} }

// The kinds of listeners.
const (
	KindQuern   = "quern"   // a host
	KindGo      = "go"      // a worker in plain Go (package worker)
	KindPython  = "python"  // a listener of Blueque
	KindWebhook = "webhook" // the listener with which a host delivers webhooks
)

// Running describes the running tasks of one queue on a host, as the host publishes it.
type Running struct {
	Tasks int     `json:"tasks"`
	Since float64 `json:"since" doc:"When the longest of them began."` // Since and Last are in seconds of Redis's clock
	Last  float64 `json:"last,omitempty" doc:"When the last of them began."`
}

// NodeInfo describes a listener: what it publishes about itself, its queues and its tasks.
type NodeInfo struct {
	ID   string
	Kind string
	// LeaseEnd is when the lease ends, or ended. It is zero for a listener without a lease, such as a Python listener,
	// and for a listener whose tasks are being reclaimed.
	LeaseEnd time.Time
	Draining bool              // the listener reserves no more tasks
	About    map[string]string // the fields published with the last renewal; empty after they expired
	// Queues are the queues for which the listener is registered. Holds maps each queue to the IDs in the listener's
	// reserved list, newest first, whether the tasks have started or not.
	Queues []string
	Holds  map[string][]string
}

// Nodes lists the tenant's listeners, sorted by ID: those with a lease, and those without a lease that are registered
// for a queue. About gets only the named fields, or all fields if none is named. The field with a host's plugins can be
// large.
func (f *Fleet) Nodes(ctx context.Context, fields ...string) ([]NodeInfo, error) {
	c := f.client
	scored, err := c.Store().RDB.ZRangeWithScores(ctx, c.Store().Keys.Nodes(), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	queues, serves, err := listeners(ctx, c)
	if err != nil {
		return nil, err
	}
	found := make(map[string]NodeInfo)
	for id, names := range serves {
		found[id] = NodeInfo{ID: id, Queues: names}
	}
	for _, z := range scored {
		node := leased(z)
		node.Queues = found[node.ID].Queues
		found[node.ID] = node
	}
	nodes := slices.SortedFunc(maps.Values(found), func(a, b NodeInfo) int { return cmp.Compare(a.ID, b.ID) })
	return nodes, store.Wrap("read nodes", describe(ctx, c.Store(), nodes, queues, fields))
}

// publishedNodes is the number of nodes that Published reads in one round trip.
const publishedNodes = 16

// Published reads one published field of the nodes, some nodes at a time. It calls visit with the field's text for each
// node that has the field.
func (f *Fleet) Published(ctx context.Context, nodes []NodeInfo, field string,
	visit func(node *NodeInfo, text string),
) error {
	for block := range slices.Chunk(nodes, publishedNodes) {
		cmds, err := store.Pipelined(ctx, f.client.Store(), block, func(p redis.Pipeliner, node NodeInfo) *redis.StringCmd {
			return p.HGet(ctx, f.client.Store().Keys.Node(node.ID), field)
		})
		if err != nil {
			return store.Wrap("read nodes", err)
		}
		for i, cmd := range cmds {
			if cmd.Err() == nil {
				visit(&block[i], cmd.Val())
			}
		}
	}
	return nil
}

// Leased lists up to limit listeners with a lease. The listener whose lease was renewed most recently comes first.
// Leased does not set Queues and Holds, because it would have to read every queue, and each listener's reserved list of
// the queue. fields has the same meaning as in Nodes.
func (f *Fleet) Leased(ctx context.Context, limit int, fields ...string) ([]NodeInfo, error) {
	c := f.client
	scored, err := c.Store().RDB.ZRevRangeWithScores(ctx, c.Store().Keys.Nodes(), 0, int64(limit)-1).Result()
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	nodes := make([]NodeInfo, len(scored))
	for i, z := range scored {
		nodes[i] = leased(z)
	}
	return nodes, store.Wrap("read nodes", describe(ctx, c.Store(), nodes, nil, fields))
}

// leased reads the ID and the lease of a listener from an entry of the sorted set of leases.
func leased(z redis.Z) (node NodeInfo) {
	if node.ID, _ = z.Member.(string); z.Score > 0 {
		node.LeaseEnd = time.UnixMicro(int64(z.Score * 1e6))
	}
	return node
}

// DatabaseAway is a database of handlers that does not serve a host. Hosts publish a list of them.
type DatabaseAway struct {
	Secret string `json:"secret" doc:"The secret with its URL."`
	Why    string `json:"why"`
	Remedy string `json:"remedy"`
}

// describe sets Kind, Draining, About and Holds of the nodes. It reads the named fields that each node has published,
// or all if none is named, and the node's reserved lists of the given queues.
func describe(ctx context.Context, s *store.Store, nodes []NodeInfo, queues, fields []string) error {
	type read struct {
		all  *redis.MapStringStringCmd
		some *redis.SliceCmd
	}
	if len(fields) > 0 {
		fields = append([]string{"kind", "draining", "drain"}, fields...)
	}
	cmds, err := store.PipelinedBy(ctx, s, store.LargeItems, nodes, func(p redis.Pipeliner, node NodeInfo) (r read) {
		if len(fields) > 0 {
			r.some = p.HMGet(ctx, s.Keys.Node(node.ID), fields...)
		} else {
			r.all = p.HGetAll(ctx, s.Keys.Node(node.ID))
		}
		return r
	})
	var lists []reservedList
	for i, cmd := range cmds {
		n := &nodes[i]
		if n.Kind, n.Holds = KindPython, make(map[string][]string); cmd.some != nil {
			n.About = store.HashOf(fields, cmd.some.Val())
		} else {
			n.About = cmd.all.Val()
		}
		if store.IsQuernListener(n.ID) {
			n.Kind = cmp.Or(n.About["kind"], KindQuern)
		}
		n.Draining = n.About["draining"] == "true" || n.About["drain"] != ""
		for _, queue := range queues {
			lists = append(lists, reservedList{n.ID, queue, n.Holds})
		}
	}
	return cmp.Or(err, readReserved(ctx, s, lists))
}

// reservedList is the reserved list of one listener and one queue. readReserved stores the list's IDs in into[queue].
type reservedList struct {
	listener, queue string
	into            map[string][]string
}

// readReserved reads the IDs in reserved lists, newest first. It skips empty and damaged lists. It first checks which
// lists exist, because few do.
func readReserved(ctx context.Context, s *store.Store, lists []reservedList) error {
	key := func(l reservedList) string { return s.Keys.Reserved(l.queue, l.listener) }
	lists, err := store.Existing(ctx, s, lists, key)
	if err != nil {
		return store.Wrap("look for reserved lists", err)
	}
	cmds, err := store.Pipelined(ctx, s, lists, func(p redis.Pipeliner, l reservedList) *redis.StringSliceCmd {
		return p.LRange(ctx, key(l), 0, -1)
	})
	for i, cmd := range cmds {
		if ids := cmd.Val(); len(ids) > 0 {
			lists[i].into[lists[i].queue] = ids
		}
	}
	return store.Wrap("read reserved lists", err)
}

// listeners lists the tenant's queues, and maps each listener to the queues for which it is registered. serves lacks
// queues whose set of listeners is damaged.
func listeners(ctx context.Context, c *queue.Client) (queues []string, serves map[string][]string, err error) {
	counted, err := c.Queues(ctx)
	if err != nil {
		return nil, nil, err
	}
	queues = slices.Sorted(maps.Keys(counted))
	cmds, err := store.Pipelined(ctx, c.Store(), queues, func(p redis.Pipeliner, queue string) *redis.StringSliceCmd {
		return p.SMembers(ctx, c.Store().Keys.Listeners(queue))
	})
	serves = make(map[string][]string)
	for i, cmd := range cmds {
		for _, listener := range cmd.Val() {
			serves[listener] = append(serves[listener], queues[i])
		}
	}
	return queues, serves, store.Wrap("read listeners", err)
}

// Backlog describes the tasks that wait in one queue.
type Backlog struct {
	Queue      string
	Pending    int64
	NextETA    time.Time // when the next scheduled task is due; zero if none is scheduled
	NextExpiry time.Time // when the next waiting task expires; zero if no waiting task expires
	// Looked is the earliest of the times at which Recheck last checked the blocked tasks, one time for each task. It is
	// zero if no task is blocked.
	Looked time.Time
}

// Waits reports whether anything waits in the queue.
func (b *Backlog) Waits() bool {
	return b.Pending > 0 || !b.NextETA.IsZero() || !b.NextExpiry.IsZero() || !b.Looked.IsZero()
}

// Backlogs describes the tasks that wait in several queues.
type Backlogs struct {
	Clock time.Time // Redis's time of the reply
	// LeaseEnd is the earliest end of the tenant's leases. It is in 1970 while a listener is being reclaimed, and zero if
	// there is no lease.
	LeaseEnd time.Time
	Queues   []Backlog
}

// Backlogs reads the backlogs of many queues. Hosts poll with it, to find work that no Pub/Sub message has announced.
func (f *Fleet) Backlogs(ctx context.Context, queues []string) (Backlogs, error) {
	const block = 200 // number of queues per script call
	c := f.client
	var calls []store.Call
	for from := 0; from < len(queues) || from == 0; from += block {
		calls = append(calls, store.NewCall("poll", c.Store().Keys.Nodes(),
			store.Named(queues[from:min(from+block, len(queues))], c.Store().Clock)...))
	}
	all := Backlogs{Queues: make([]Backlog, 0, len(queues))}
	for _, queue := range queues {
		all.Queues = append(all.Queues, Backlog{Queue: queue})
	}
	for i, reply := range c.Store().EvalAll(ctx, calls) {
		v, of := store.ValuesOf(reply.Val()), all.Queues[i*block:]
		all.Clock, all.LeaseEnd = v.Time(), v.Eta()
		for v.More() {
			number := v.Count()
			if number < 1 || number > len(of) {
				return Backlogs{}, store.ErrReply
			}
			look := &of[number-1]
			look.Pending, look.NextETA, look.NextExpiry, look.Looked = v.Number(), v.Eta(), v.Eta(), v.Eta()
		}
		if err := cmp.Or(reply.Err(), v.Err()); err != nil {
			return Backlogs{}, fmt.Errorf("poll %d queues: %w", len(queues), err)
		}
	}
	return all, nil
}

// Changed reports whether any of the queues in empty has a pending task now, or any of the queues in waiting has none.
// It reads nothing else, so it costs a twentieth of Backlogs. In the queues in empty it does not see tasks with a
// priority, but those are always announced.
func (f *Fleet) Changed(ctx context.Context, empty, waiting []string) (bool, error) {
	c := f.client
	pipe := c.Store().RDB.Pipeline()
	lists := make([]string, len(empty))
	for i, queue := range empty {
		lists[i] = c.Store().Keys.Pending(queue)
	}
	filled := new(redis.IntCmd)
	if len(lists) > 0 {
		filled = pipe.Exists(ctx, lists...)
	}
	still := make([]*redis.IntCmd, len(waiting))
	for i, queue := range waiting { // if all its tasks have priorities, the plain list does not exist
		still[i] = pipe.Exists(ctx, c.Store().Keys.Pending(queue), c.Store().Keys.Priorities(queue))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return false, fmt.Errorf("look at %d queues: %w", len(empty)+len(waiting), err)
	}
	return filled.Val() > 0 || slices.ContainsFunc(still,
		func(exists *redis.IntCmd) bool { return exists.Val() == 0 }), nil
}
