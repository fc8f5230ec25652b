package queue

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// Queue is a named queue of a tenant.
type Queue struct {
	client *Client
	name   string
}

// Queue returns the queue with this name. It does not check the name: the queue's methods return an error if it is
// invalid.
func (c *Client) Queue(name string) *Queue { return &Queue{client: c, name: name} }

// Client returns the client that made the Queue.
func (q *Queue) Client() *Client { return q.client }

// Name returns the queue's name.
func (q *Queue) Name() string { return q.name }

// Pause stops listeners, except Python listeners, from reserving tasks of the queue. Running tasks continue. For
// other pauses, and to say who pauses and why, see manage.Pauses.
func (q *Queue) Pause(ctx context.Context) error {
	if err := ValidQueue(q.name); err != nil {
		return err
	}
	s := q.client.store
	_, err := s.Eval(ctx, store.NewCall("pause", s.Keys.Paused(), s.Clock, "taking", q.name, "{}", store.MaxPauses))
	return store.Wrap(fmt.Sprintf("pause queue %q", q.name), err)
}

// Resume ends a Pause or a Hold, and wakes the listeners.
func (q *Queue) Resume(ctx context.Context) error {
	if err := ValidQueue(q.name); err != nil {
		return err
	}
	_, err := q.client.store.RDB.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.SRem(ctx, q.client.store.Keys.Paused(), q.name)
		p.HDel(ctx, q.client.store.Keys.Pauses(), "taking "+q.name)
		p.HDel(ctx, q.client.store.Keys.Stats(q.name), "held")
		return nil
	})
	if err != nil {
		return store.Wrap(fmt.Sprintf("resume queue %q", q.name), err)
	}
	// If this message is lost, or forbidden by an ACL, the listeners' poll finds the tasks.
	_ = q.client.store.RDB.Publish(ctx, q.client.store.Keys.Channel(q.name), "").Err()
	return nil
}

// SetLimit sets the maximum number of waiting tasks (pending or scheduled) in the queue; 0 removes the limit. A full
// queue refuses only new tasks, with ErrQueueFull. Existing tasks can still return to it.
func (q *Queue) SetLimit(ctx context.Context, limit int64) error { return q.limit(ctx, limit, "") }

// SetRollingLimit is SetLimit for a queue that drops its oldest tasks instead: when a new task comes to the full queue,
// the pending task that has waited longest fails with the reason dropped. Tasks of lower priorities go first. Tasks
// that are scheduled or blocked are not dropped: if only such tasks wait, the new one is refused.
func (q *Queue) SetRollingLimit(ctx context.Context, limit int64) error {
	return q.limit(ctx, limit, " drop")
}

func (q *Queue) limit(ctx context.Context, limit int64, drop string) error {
	if err := ValidQueue(q.name); err != nil {
		return err
	}
	if limit < 0 {
		return fmt.Errorf("%w: limit %d of queue %q: use 1 or more, or 0 for none", ErrInvalid, limit, q.name)
	}
	limits := q.client.store.Keys.Limits()
	if limit == 0 {
		return store.Wrap(fmt.Sprintf("lift limit of queue %q", q.name), q.client.store.RDB.HDel(ctx, limits, q.name).Err())
	}
	return store.Wrap(fmt.Sprintf("limit queue %q", q.name), q.client.store.RDB.HSet(ctx, limits, q.name,
		strconv.FormatInt(limit, 10)+drop).Err())
}

// manyQueues turns a script's error reply MANYQUEUES into ErrManyQueues.
func manyQueues(err error) error {
	text, _ := store.Answered(err)
	return fmt.Errorf("%w: %s: use an existing queue, or raise --max-queues of the hosts; an empty queue is forgotten within minutes", ErrManyQueues, strings.TrimPrefix(text, "MANYQUEUES "))
}

// Limit reads the maximum number of waiting tasks in the queue; 0 means that there is no limit.
func (q *Queue) Limit(ctx context.Context) (int64, error) {
	limit, err := q.client.store.RDB.HGet(ctx, q.client.store.Keys.Limits(), q.name).Result()
	if store.IsNil(err) {
		return 0, nil
	}
	most, _ := store.ParseLimit(limit)
	return most, store.Wrap(fmt.Sprintf("read limit of queue %q", q.name), err)
}

// Hold stops listeners, except Python listeners, from reserving tasks of the queue until wait has passed. Hosts
// call it when a webhook's server asks for a pause. Running tasks continue. A hold never shortens an earlier one.
// Resume ends a hold, and so does a change of the webhook's URL.
func (q *Queue) Hold(ctx context.Context, wait time.Duration) error {
	if err := ValidQueue(q.name); err != nil {
		return err
	}
	_, err := q.client.store.Eval(ctx, store.NewCall("hold", q.client.store.Keys.Stats(q.name), q.client.store.Clock,
		wait.Seconds()))
	return store.Wrap(fmt.Sprintf("hold queue %q", q.name), err)
}

// HasListener reports whether a listener serves the queue: a Quern listener whose lease has not ended, or a Python
// listener, which has no lease.
func (q *Queue) HasListener(ctx context.Context) (bool, error) {
	if err := ValidQueue(q.name); err != nil {
		return false, err
	}
	c := q.client
	listeners, err := c.store.RDB.SMembers(ctx, c.store.Keys.Listeners(q.name)).Result()
	if err != nil || len(listeners) == 0 {
		return false, store.Wrap(fmt.Sprintf("list listeners of %q", q.name), err)
	}
	now, err := c.Clock(ctx)
	if err != nil {
		return false, err
	}
	ends, err := store.Pipelined(ctx, c.store, listeners, func(p redis.Pipeliner, listener string) *redis.FloatCmd {
		return p.ZScore(ctx, c.store.Keys.Nodes(), listener) // ZSCORE, because a producer's ACL allows it
	})
	for i, listener := range listeners[:len(ends)] {
		end, failed := ends[i].Result()
		if failed != nil && !store.IsNil(failed) {
			return false, store.Wrap("read leases", failed)
		}
		leased := end > 0 // a Quern listener without a lease is dead
		if leased && end > float64(now.Unix()) || !leased && !store.IsQuernListener(listener) {
			return true, nil
		}
	}
	return false, store.Wrap("read leases", err)
}
