package listen

import (
	"context"
	"fmt"

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
	return err == nil, store.Wrap(fmt.Sprintf("look for queue %q", name), err)
}

// QueuePage is queue.Client.Queues for up to most queues, beginning at place from. Queues with fewer listeners come
// first. next is the place at which the next page begins; 0 if there is none.
func (f *Fleet) QueuePage(ctx context.Context, from, most int64) (queues map[string]int64, next int64, err error) {
	return f.client.Store().QueuePage(ctx, from, most, queue.ValidQueue)
}

// SetMaxQueues bounds how many queues the tenant may have; 0 lifts the bound. When the bound is reached, nothing
// creates another queue: queue.ErrManyQueues. Existing queues stay, and hosts and workers may still register for new
// ones. Hosts set the bound when they start.
func (f *Fleet) SetMaxQueues(ctx context.Context, most int) error {
	if most <= 0 {
		return store.Wrap("lift bound of queues", f.client.Store().RDB.HDel(ctx, f.client.Store().Keys.Limits(),
			store.MaxQueuesField).Err())
	}
	return store.Wrap("bound queues", f.client.Store().RDB.HSet(ctx, f.client.Store().Keys.Limits(), store.MaxQueuesField,
		most).Err())
}
