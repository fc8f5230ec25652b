package queue

import "context"

// SetMaxQueues bounds how many queues the tenant may have; 0 lifts the bound. Beyond it nothing makes a new one: ErrManyQueues. Those
// that exist stay, and so do those that hosts and workers register for. Hosts set it when they start.
func (c *Client) SetMaxQueues(ctx context.Context, most int) error {
	if most <= 0 {
		return wrap("lift bound of queues", c.store.rdb.HDel(ctx, c.store.keys.limits(), maxQueuesField).Err())
	}
	return wrap("bound queues", c.store.rdb.HSet(ctx, c.store.keys.limits(), maxQueuesField, most).Err())
}

// Limits are those of the tenant's queues that have one.
func (c *Client) Limits(ctx context.Context) (map[string]int64, error) {
	read, err := c.store.rdb.HGetAll(ctx, c.store.keys.limits()).Result()
	limits := make(map[string]int64, len(read))
	for name, text := range read {
		if limit := asInt(text); limit > 0 && name != maxQueuesField {
			limits[name] = limit
		}
	}
	return limits, wrap("read limits in "+c.store.keys.limits(), err)
}

// MaxQueues is how many queues the tenant may have; 0: any number.
func (c *Client) MaxQueues(ctx context.Context) (int, error) { return c.store.maxQueues(ctx) }
