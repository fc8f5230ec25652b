package queue

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/quern-project/quern/sdk/queue/internal/store"

	"github.com/redis/go-redis/v9"
)

// Queue is a named queue of a tenant.
type Queue struct {
	client *Client
	name   string
}

// Queue names a queue; its methods refuse an invalid name.
func (c *Client) Queue(name string) *Queue { return &Queue{client: c, name: name} }

// Client is the client that named the queue.
func (q *Queue) Client() *Client { return q.client }

// Name is the queue's name.
func (q *Queue) Name() string { return q.name }

// Pause stops listeners, except Python's, from reserving tasks of the queue; what runs goes on.
func (q *Queue) Pause(ctx context.Context) error {
	if err := ValidQueue(q.name); err != nil {
		return err
	}
	return store.Wrap("pause queue "+q.name, q.client.store.RDB.SAdd(ctx, q.client.store.Keys.Paused(), q.name).Err())
}

// Resume ends a pause, and what Hold began, and wakes the listeners.
func (q *Queue) Resume(ctx context.Context) error {
	if err := ValidQueue(q.name); err != nil {
		return err
	}
	_, err := q.client.store.RDB.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.SRem(ctx, q.client.store.Keys.Paused(), q.name)
		p.HDel(ctx, q.client.store.Keys.Stats(q.name), "held")
		return nil
	})
	if err != nil {
		return store.Wrap("resume queue "+q.name, err)
	}
	// If this is lost, or forbidden by an ACL, the listeners' poll finds the tasks.
	_ = q.client.store.RDB.Publish(ctx, q.client.store.Keys.Channel(q.name), "").Err()
	return nil
}

// SetLimit bounds how many tasks may wait in the queue, pending or scheduled; 0 lifts the bound. Only new tasks are refused.
func (q *Queue) SetLimit(ctx context.Context, limit int64) error {
	if err := ValidQueue(q.name); err != nil {
		return err
	}
	if limit < 0 {
		return fmt.Errorf("%w: limit %d of queue %q: use 1 or more, or 0 for none", ErrInvalid, limit, q.name)
	}
	limits := q.client.store.Keys.Limits()
	if limit == 0 {
		return store.Wrap("lift limit of queue "+q.name, q.client.store.RDB.HDel(ctx, limits, q.name).Err())
	}
	return store.Wrap("limit queue "+q.name, q.client.store.RDB.HSet(ctx, limits, q.name, limit).Err())
}

// manyQueues is a script's error MANYQUEUES.
func manyQueues(err error) error {
	text, _ := store.Answered(err)
	return fmt.Errorf("%w: %s: use one of them, or raise --max-queues of the hosts; one with nothing left is forgotten within minutes", ErrManyQueues, strings.TrimPrefix(text, "MANYQUEUES "))
}

// Limit is how many tasks may wait in the queue; 0: there is no bound.
func (q *Queue) Limit(ctx context.Context) (int64, error) {
	limit, err := q.client.store.RDB.HGet(ctx, q.client.store.Keys.Limits(), q.name).Result()
	if store.IsNil(err) {
		return 0, nil
	}
	return store.AsInt(limit), store.Wrap("read limit of queue "+q.name, err)
}

// Hold keeps listeners, except Python's, from reserving tasks of the queue for some time, because the server to which they go asked
// for that; what runs goes on. A longer hold stays. Resume ends it, and so does another URL of the webhook.
func (q *Queue) Hold(ctx context.Context, wait time.Duration) error {
	if err := ValidQueue(q.name); err != nil {
		return err
	}
	_, err := q.client.store.Eval(ctx, store.NewCall("hold", q.client.store.Keys.Stats(q.name), q.client.store.Clock, wait.Seconds()))
	return store.Wrap("hold queue "+q.name, err)
}

// HasListener tells whether a listener serves the queue: one of Quern with a lease, or one of Python, which has none.
func (q *Queue) HasListener(ctx context.Context) (bool, error) {
	if err := ValidQueue(q.name); err != nil {
		return false, err
	}
	c := q.client
	listeners, err := c.store.RDB.SMembers(ctx, c.store.Keys.Listeners(q.name)).Result()
	if err != nil || len(listeners) == 0 {
		return false, store.Wrap("list listeners of "+q.name, err)
	}
	now, err := c.Clock(ctx)
	if err != nil {
		return false, err
	}
	ends, err := store.Pipelined(ctx, c.store, listeners, func(p redis.Pipeliner, listener string) *redis.FloatCmd {
		return p.ZScore(ctx, c.store.Keys.Nodes(), listener) // which a producer may ask
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
