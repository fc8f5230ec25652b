package listen

import (
	"context"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// HasQueue reports whether the tenant has a queue of this name.
func (f *Fleet) HasQueue(ctx context.Context, name string) (bool, error) {
	if err := queue.ValidQueue(name); err != nil {
		return false, err
	}
	err := f.client.Store().RDB.ZScore(ctx, f.client.Store().Keys.Queues(), name).Err()
	if store.IsNil(err) {
		return false, nil
	}
	return err == nil, store.Wrap("look for queue "+name, err)
}

// QueuePage is queue.Client.Queues for at most that many queues, from a place on: those with fewer listeners come first. next is
// where the next page begins, 0 if there is none.
func (f *Fleet) QueuePage(ctx context.Context, from, most int64) (queues map[string]int64, next int64, err error) {
	return f.client.Store().QueuePage(ctx, from, most, queue.ValidQueue)
}

// SetMaxQueues bounds how many queues the tenant may have; 0 lifts the bound. Beyond it nothing makes a new one: queue.ErrManyQueues.
// Those that exist stay, and so do those that hosts and workers register for. Hosts set it when they start.
func (f *Fleet) SetMaxQueues(ctx context.Context, most int) error {
	if most <= 0 {
		return store.Wrap("lift bound of queues", f.client.Store().RDB.HDel(ctx, f.client.Store().Keys.Limits(), store.MaxQueuesField).Err())
	}
	return store.Wrap("bound queues", f.client.Store().RDB.HSet(ctx, f.client.Store().Keys.Limits(), store.MaxQueuesField, most).Err())
}
