package queue

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// HasListener tells whether a listener serves the queue: one of Quern with a lease, or one of Python, which has none.
func (q *Queue) HasListener(ctx context.Context) (bool, error) {
	if err := ValidQueue(q.name); err != nil {
		return false, err
	}
	c := q.client
	listeners, err := c.store.rdb.SMembers(ctx, c.store.keys.listeners(q.name)).Result()
	if err != nil || len(listeners) == 0 {
		return false, wrap("list listeners of "+q.name, err)
	}
	now, err := c.Clock(ctx)
	if err != nil {
		return false, err
	}
	ends, err := pipelined(ctx, &c.store, listeners, func(p redis.Pipeliner, listener string) *redis.FloatCmd {
		return p.ZScore(ctx, c.store.keys.nodes(), listener) // which a producer may ask
	})
	for i, listener := range listeners[:len(ends)] {
		end, failed := ends[i].Result()
		if failed != nil && !isNil(failed) {
			return false, wrap("read leases", failed)
		}
		leased := end > 0 // a Quern listener without a lease is dead
		if leased && end > float64(now.Unix()) || !leased && !isQuernListener(listener) {
			return true, nil
		}
	}
	return false, wrap("read leases", err)
}
