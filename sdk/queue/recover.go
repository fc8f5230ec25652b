package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// DefaultMaxCrashes is how many hosts a task may lose before it fails, unless its plugin's manifest
// says fewer.
const DefaultMaxCrashes = 3

// reclaimTasks is how many tasks one block of a reclaim moves.
const reclaimTasks = 16

// Reclaimed counts what became of the tasks of a listener that is dead.
type Reclaimed struct {
	Returned  int // to the front of their queue
	Scheduled int // for later: they have lost several hosts
	Failed    int // they have lost too many, or must not run twice, or were cancelled
	Dropped   int // entries without a task of this listener
	// DeadError is why one that failed has no dead letter; "" if all have theirs.
	DeadError string
}

// Sum is how many tasks went to another host or failed.
func (r Reclaimed) Sum() int { return r.Returned + r.Scheduled + r.Failed }

func (r *Reclaimed) add(other Reclaimed) {
	r.Returned += other.Returned
	r.Scheduled += other.Scheduled
	r.Failed += other.Failed
	r.Dropped += other.Dropped
	r.DeadError = cmp.Or(other.DeadError, r.DeadError)
}

// Dead lists the Quern listeners of the tenant whose lease is over, and tells how long the first of the
// other leases still runs (0: there is none). Who calls it makes sure that the leases could be renewed:
// see Reclaim.
func (c *Client) Dead(ctx context.Context) (listeners []string, next time.Duration, err error) {
	now, err := c.now(ctx)
	if err != nil {
		return nil, 0, err
	}
	leases, err := c.rdb.ZRangeWithScores(ctx, c.keys.nodes(), 0, -1).Result()
	if err != nil {
		return nil, 0, fmt.Errorf("read leases: %w", err)
	}
	for _, z := range leases { // in the order of their ends
		id, _ := z.Member.(string)
		left := time.Duration((z.Score - float64(now.UnixMicro())/1e6) * float64(time.Second))
		if z.Score != 0 && left >= 0 {
			next = max(left, time.Millisecond)
			break
		}
		listeners = append(listeners, id)
	}
	return listeners, next, nil
}

// Unleased lists the Quern listeners that are in a queue's set and have no lease: they are dead too. It
// reads the set of every queue, so it is for one host of the fleet, and rarely.
func (c *Client) Unleased(ctx context.Context) ([]string, error) {
	serves, err := c.listenersOfQueues(ctx)
	if err != nil {
		return nil, err
	}
	leased, err := c.rdb.ZRange(ctx, c.keys.nodes(), 0, -1).Result() // later: who registers has a lease
	if err != nil {
		return nil, fmt.Errorf("read leases: %w", err)
	}
	for _, id := range leased {
		delete(serves, id)
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(serves)), func(id string) bool { return !isQuernListener(id) }), nil
}

// FarLease is a lease that ends further ahead than it is long. Redis's clock was set back since it was renewed; a
// listener that lives renews it by the clock of now. So if it is the same after Length, by a clock that nobody sets, its
// listener is dead.
type FarLease struct {
	Listener string
	Length   time.Duration
	end      float64
}

// FarLeases lists the leases of the tenant that end further ahead than they are long, and than the client's own.
func (c *Client) FarLeases(ctx context.Context) ([]FarLease, error) {
	now, err := c.now(ctx)
	if err != nil {
		return nil, err
	}
	ahead, err := c.rdb.ZRangeByScoreWithScores(ctx, c.keys.nodes(), &redis.ZRangeBy{
		Min: "(" + seconds(now.Add(c.config.Lease)), Max: "+inf",
	}).Result()
	if err != nil || len(ahead) == 0 {
		return nil, wrap("read leases", err)
	}
	lengths := make([]*redis.StringCmd, len(ahead))
	_, err = c.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, z := range ahead {
			id, _ := z.Member.(string)
			lengths[i] = p.HGet(ctx, c.keys.node(id), "lease")
		}
		return nil
	})
	if err = passReplies(err); err != nil && !isNil(err) {
		return nil, fmt.Errorf("read lengths of leases: %w", err)
	}
	var far []FarLease
	for i, z := range ahead {
		lease := FarLease{Length: secondsDuration(lengths[i].Val()), end: z.Score}
		if lease.Length <= 0 || lease.Length > maxLease {
			lease.Length = maxLease // it did not say
		}
		if z.Score > float64(now.Add(lease.Length).UnixMicro())/1e6 {
			lease.Listener, _ = z.Member.(string)
			far = append(far, lease)
		}
	}
	return far, nil
}

// Condemn ends a far lease that the caller has seen stand still for its length, while it renewed its own: Dead lists
// the listener then. false if it was renewed meanwhile, or somebody else has ended it.
func (c *Client) Condemn(ctx context.Context, far FarLease) (bool, error) {
	answer, err := c.eval(ctx, call{
		script: condemnScript, keys: []string{c.keys.nodes()},
		args: []any{c.clock, far.Listener, "far", strconv.FormatFloat(far.end, 'f', -1, 64), far.Length.Seconds()},
	})
	if err != nil {
		return false, fmt.Errorf("condemn %s: %w", far.Listener, err)
	}
	return answer == "ok", nil
}

// now is the time by which the scripts work.
func (c *Client) now(ctx context.Context) (time.Time, error) {
	if c.clock != "" {
		return parseSeconds(c.clock), nil
	}
	return c.Clock(ctx)
}

// listenersOfQueues reads the listener sets of all queues: which queues each listener serves.
func (c *Client) listenersOfQueues(ctx context.Context) (map[string][]string, error) {
	queues, err := c.Queues(ctx)
	if err != nil {
		return nil, err
	}
	names := slices.Sorted(maps.Keys(queues))
	cmds := make([]*redis.StringSliceCmd, len(names))
	_, err = c.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, name := range names {
			cmds[i] = p.SMembers(ctx, c.keys.listeners(name))
		}
		return nil
	})
	if err = passReplies(err); err != nil {
		return nil, fmt.Errorf("read listeners: %w", err)
	}
	serves := make(map[string][]string)
	for i, cmd := range cmds {
		for _, listener := range cmd.Val() { // none of a key of another type
			serves[listener] = append(serves[listener], names[i])
		}
	}
	return serves, nil
}

// passReplies drops an error that Redis gave for one command of several, such as a key of the wrong
// type: the others have their answers.
func passReplies(err error) error {
	var reply redis.Error
	if errors.As(err, &reply) && !IsUnavailable(err) {
		return nil
	}
	return err
}

// Reclaim takes all tasks from a Quern listener whose lease is over, block by block, and forgets it.
// What had started counts a crash, and fails after maxCrashes (0: DefaultMaxCrashes), or fewer if its
// manifest said so. Several may do it at once, and any may die half-way: another one goes on.
// ErrStatus while the lease runs.
//
// After an outage of Redis every lease is over. So whoever calls this by itself has renewed its own
// lease without fail for a whole lease's length: until then others may not have come to renew theirs.
func (c *Client) Reclaim(ctx context.Context, listener string, maxCrashes int) (Reclaimed, error) {
	answer, err := c.eval(ctx, call{
		script: condemnScript, keys: []string{c.keys.nodes()}, args: []any{c.clock, listener, ""},
	})
	if err != nil {
		return Reclaimed{}, fmt.Errorf("reclaim from %s: %w", listener, err)
	}
	if answer != "ok" {
		return Reclaimed{}, fmt.Errorf("listener %s is alive, its lease runs: %w", listener, ErrStatus)
	}
	return c.reclaim(ctx, listener, maxCrashes, false)
}

// ReclaimNode takes all tasks from a listener at somebody's wish: from one of Quern whose lease is
// over, or from one of Python, of which only that person can know that it is dead. ErrStatus while the
// lease runs, ErrNoNode if there is no such listener. maxCrashes is that of Reclaim. Blueque takes one that it thinks dead out of the
// queue's set and leaves it its list: what is in that is moved too.
func (c *Client) ReclaimNode(ctx context.Context, listener string, maxCrashes int) (Reclaimed, error) {
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return Reclaimed{}, err
	}
	i := slices.IndexFunc(nodes, func(n NodeInfo) bool { return n.ID == listener })
	if isQuernListener(listener) && i >= 0 {
		return c.Reclaim(ctx, listener, maxCrashes)
	}
	var got Reclaimed
	if !isQuernListener(listener) {
		got, err = c.reclaim(ctx, listener, maxCrashes, true)
	}
	if err == nil && i < 0 && got == (Reclaimed{}) {
		err = fmt.Errorf("listener %s: %w", listener, ErrNoNode)
	}
	return got, err
}

func (c *Client) reclaim(ctx context.Context, listener string, maxCrashes int, force bool) (Reclaimed, error) {
	if maxCrashes == 0 {
		maxCrashes = DefaultMaxCrashes
	}
	queues, err := c.Queues(ctx)
	if err != nil {
		return Reclaimed{}, err
	}
	names := slices.Sorted(maps.Keys(queues))
	var total Reclaimed
	var errs []error // one damaged queue must not keep the tasks of the others
	for _, name := range names {
		got, err := c.reclaimQueue(ctx, listener, name, maxCrashes, force)
		total.add(got)
		if err != nil && (ctx.Err() != nil || IsUnavailable(err) || errors.Is(err, ErrStatus)) {
			return total, err
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return total, err
	}
	return total, c.retire(ctx, listener, "1")
}

// retire forgets a listener that is condemned and of which nothing is left: dead is "1", or "" if it has left by itself.
func (c *Client) retire(ctx context.Context, listener, dead string) error {
	_, err := c.eval(ctx, call{script: retireScript, keys: []string{c.keys.nodes()}, args: []any{listener, dead}})
	return wrap("forget listener "+listener, err)
}

func (c *Client) reclaimQueue(ctx context.Context, listener, queue string, maxCrashes int, force bool) (total Reclaimed, err error) {
	for {
		value, err := c.eval(ctx, call{
			script: reclaimScript,
			keys:   []string{c.keys.reserved(queue, listener)},
			args:   []any{c.clock, queue, listener, reclaimTasks, maxCrashes, optional(force, "1"), (c.config.Lease / 2).Seconds()},
		})
		if err != nil {
			return total, fmt.Errorf("reclaim tasks of %q from %s: %w", queue, listener, err)
		}
		if value == "alive" {
			return total, fmt.Errorf("listener %s is alive: %w", listener, ErrStatus)
		}
		answer := asList(value)
		if len(answer) < 6 {
			return total, errors.New("unexpected answer of a script")
		}
		total.add(Reclaimed{
			Returned: int(asInt(answer[1])), Scheduled: int(asInt(answer[2])), Failed: int(asInt(answer[3])),
			Dropped: int(asInt(answer[4])), DeadError: asString(answer[5]),
		})
		if asInt(answer[0]) == 0 {
			return total, nil
		}
	}
}

// Recount sets the queue's number of listeners right, should it be wrong, and what of it is started. A
// queue of which nothing is left, neither a task nor a listener nor a setting, is forgotten, with its
// counters; the next enqueue or listener makes it anew.
func (q *Queue) Recount(ctx context.Context) (forgotten bool, err error) {
	answer, err := q.client.eval(ctx, call{
		script: recountScript, keys: []string{q.client.keys.listeners(q.name)}, args: []any{q.name},
	})
	return answer == "forgotten", wrap("count listeners of "+q.name, err)
}
