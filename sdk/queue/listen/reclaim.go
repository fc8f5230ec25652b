package listen

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

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// DefaultMaxCrashes is the number of crashed hosts at which a task fails, unless its plugin's manifest sets a smaller
// number.
const DefaultMaxCrashes = 3

// reclaimTasks is the maximum number of tasks that one call of reclaim.lua moves.
const reclaimTasks = 14

// Reclaimed counts the tasks of a dead listener by what Reclaim did with them.
type Reclaimed struct {
	Returned  int // tasks returned to the front of their queue
	Scheduled int // tasks scheduled for later, because they crashed several hosts
	Failed    int // tasks that crashed too many hosts, must not run twice, or were cancelled
	Dropped   int // entries of the list without a task that the listener holds
	// DeadError is why the dead letter of a failed task was not written; "" if all were written.
	DeadError string
}

// Sum returns how many tasks were returned, scheduled or failed.
func (r Reclaimed) Sum() int { return r.Returned + r.Scheduled + r.Failed }

// Leases lists the tenant's Quern listeners. In dead are listeners whose lease is over, in alive listeners whose lease
// runs; each list is sorted by the end of the lease. next is how long the first lease in alive still runs, or 0 if
// alive is empty. Before the caller reclaims tasks of dead listeners, it must make sure that these could have renewed
// their leases: see Reclaim.
func (f *Fleet) Leases(ctx context.Context) (dead, alive []string, next time.Duration, err error) {
	c := f.client
	now, err := c.Store().Now(ctx)
	if err != nil {
		return nil, nil, 0, err
	}
	leases, err := c.Store().RDB.ZRangeWithScores(ctx, c.Store().Keys.Nodes(), 0, -1).Result()
	for _, z := range leases {
		id, _ := z.Member.(string)
		left := z.Score - float64(now.UnixMicro())/1e6
		if left < 0 {
			dead = append(dead, id)
			continue
		}
		if len(alive) == 0 {
			next = max(time.Duration(left*float64(time.Second)), time.Millisecond)
		}
		alive = append(alive, id)
	}
	return dead, alive, next, store.Wrap("read leases", err)
}

// Unleased lists the Quern listeners that are registered for a queue but have no lease. These are dead, too. Unleased
// reads the set of listeners of every queue, so only one host of the fleet calls it, and rarely.
func (f *Fleet) Unleased(ctx context.Context) ([]string, error) {
	c := f.client
	_, serves, err := listeners(ctx, c)
	if err != nil {
		return nil, err
	}
	// The leases are read after the listeners of the queues, because a listener gets its lease before it registers.
	leased, err := c.Store().RDB.ZRange(ctx, c.Store().Keys.Nodes(), 0, -1).Result()
	if err != nil {
		return nil, fmt.Errorf("read leases: %w", err)
	}
	for _, id := range leased {
		delete(serves, id)
	}
	maps.DeleteFunc(serves, func(id string, _ []string) bool { return !store.IsQuernListener(id) })
	return slices.Sorted(maps.Keys(serves)), nil
}

// OverlongLease is a lease whose remaining time is longer than its full length, because Redis's clock was set back
// after the last renewal. If the lease is still unchanged after Length, by a monotonic clock, its listener is dead: a
// live listener would have renewed the lease by the new clock.
type OverlongLease struct {
	Listener string
	Length   time.Duration // the full length of the lease
	end      float64       // when the lease ends, in seconds of Redis's clock
}

// OverlongLeases lists the tenant's leases whose remaining time is longer than their full length, and longer than a
// lease of this client.
func (f *Fleet) OverlongLeases(ctx context.Context) ([]OverlongLease, error) {
	c := f.client
	now, err := c.Store().Now(ctx)
	if err != nil {
		return nil, err
	}
	ahead, err := c.Store().RDB.ZRangeByScoreWithScores(ctx, c.Store().Keys.Nodes(), &redis.ZRangeBy{
		Min: "(" + store.Seconds(now.Add(c.Store().Lease)), Max: "+inf",
	}).Result()
	if err != nil {
		return nil, store.Wrap("read leases", err)
	}
	lengths, err := store.Pipelined(ctx, c.Store(), ahead, func(p redis.Pipeliner, z redis.Z) *redis.StringCmd {
		id, _ := z.Member.(string)
		return p.HGet(ctx, c.Store().Keys.Node(id), "lease")
	})
	var overlong []OverlongLease
	for i, length := range lengths {
		lease := OverlongLease{Length: store.SecondsDuration(length.Val()), end: ahead[i].Score}
		if lease.Length <= 0 || lease.Length > store.MaxLease {
			lease.Length = store.MaxLease // the listener published no valid length
		}
		if lease.end > float64(now.Add(lease.Length).UnixMicro())/1e6 {
			lease.Listener, _ = ahead[i].Member.(string)
			overlong = append(overlong, lease)
		}
	}
	return overlong, store.Wrap("read lengths of leases", err)
}

// EndLease ends an overlong lease. The caller must have seen the lease unchanged for lease.Length, and must have
// renewed its own lease during that time: this proves that the listener is dead. EndLease returns false if the lease
// was renewed meanwhile, or another host has ended it.
func (f *Fleet) EndLease(ctx context.Context, lease OverlongLease) (bool, error) {
	ended, err := f.client.Store().Condemn(ctx, lease.Listener, "overlong", strconv.FormatFloat(lease.end, 'f', -1, 64),
		lease.Length.Seconds())
	return ended, store.Wrap("end lease of "+lease.Listener, err)
}

// Reclaim takes all tasks from a Quern listener whose lease is over, block by block, and removes the listener. For a
// task that had started it counts a crash. With its maxCrashes-th crash a task fails (0: DefaultMaxCrashes), or sooner
// if its manifest allows fewer crashes. Several hosts can reclaim at once, and if one dies half-way, another goes on.
// The error is queue.ErrStatus if the lease still runs.
//
// After an outage of Redis every lease is over, also that of a live listener. So a host that calls Reclaim without an
// operator must first have renewed its own lease for a whole lease's length without a failure. Before that, other
// listeners may not have been able to renew theirs.
func (f *Fleet) Reclaim(ctx context.Context, listener string, maxCrashes int) (Reclaimed, error) {
	condemned, err := f.client.Store().Condemn(ctx, listener, "")
	if err != nil {
		return Reclaimed{}, fmt.Errorf("reclaim from %s: %w", listener, err)
	}
	if !condemned {
		return Reclaimed{}, fmt.Errorf("listener %s is alive, its lease runs: %w", listener, queue.ErrStatus)
	}
	return f.reclaim(ctx, listener, maxCrashes, false)
}

// ReclaimForced is Reclaim for a Python listener, which has no lease: only an operator can know that it is dead.
func (f *Fleet) ReclaimForced(ctx context.Context, listener string, maxCrashes int) (Reclaimed, error) {
	return f.reclaim(ctx, listener, maxCrashes, true)
}

func (f *Fleet) reclaim(ctx context.Context, listener string, maxCrashes int, force bool) (Reclaimed, error) {
	queues, err := f.client.Queues(ctx)
	if err != nil {
		return Reclaimed{}, err
	}
	var total Reclaimed
	var errs []error // a damaged queue does not stop the others
	for _, name := range slices.Sorted(maps.Keys(queues)) {
		err := f.ReclaimQueue(ctx, &total, listener, name, cmp.Or(maxCrashes, DefaultMaxCrashes), force)
		if err != nil && (ctx.Err() != nil || queue.IsUnavailable(err) || errors.Is(err, queue.ErrStatus)) {
			return total, err
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return total, err
	}
	return total, f.client.Store().Retire(ctx, listener, "1")
}

// ReclaimQueue reclaims a listener's tasks of one queue, block by block, and adds their numbers to total. force is true
// for a Python listener, which has no lease: an operator has declared it dead. The error is queue.ErrStatus if the
// listener is alive.
func (f *Fleet) ReclaimQueue(ctx context.Context, total *Reclaimed, listener, name string, maxCrashes int,
	force bool,
) error {
	c := f.client
	block := store.NewCall("reclaim", c.Store().Keys.Reserved(name, listener),
		c.Store().Clock, name, listener, reclaimTasks, maxCrashes, store.Optional(force, "1"),
		(c.Store().Lease / 2).Seconds())
	for {
		reply, err := c.Store().Eval(ctx, block)
		if err != nil {
			return fmt.Errorf("reclaim tasks of %q from %s: %w", name, listener, err)
		}
		if reply == "alive" {
			return fmt.Errorf("listener %s is alive: %w", listener, queue.ErrStatus)
		}
		v := store.ValuesOf(reply)
		left := v.Count()
		total.Returned += v.Count()
		total.Scheduled += v.Count()
		total.Failed += v.Count()
		total.Dropped += v.Count()
		total.DeadError = cmp.Or(v.Text(), total.DeadError)
		if v.Err() != nil || left == 0 {
			return v.Err()
		}
	}
}
