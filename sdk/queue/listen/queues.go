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

// QueuePage returns up to limit queues with the number of listeners of each, beginning at position from. Queues with
// fewer listeners come first. next is the position at which the next page begins, or 0 if this page is the last.
func (f *Fleet) QueuePage(ctx context.Context, from, limit int64) (queues map[string]int64, next int64, err error) {
	return f.client.Store().QueuePage(ctx, from, limit, queue.ValidQueue)
}

// SetMaxQueues sets the maximum number of queues of the tenant; 0 means no maximum. When it is reached, calls that
// would create another queue return queue.ErrManyQueues. Existing queues stay, and hosts and workers can still register
// for new queues. Hosts call SetMaxQueues when they start.
func (f *Fleet) SetMaxQueues(ctx context.Context, limit int) error {
	if limit <= 0 {
		return store.Wrap("lift bound of queues", f.client.Store().RDB.HDel(ctx, f.client.Store().Keys.Limits(),
			store.MaxQueuesField).Err())
	}
	return store.Wrap("bound queues", f.client.Store().RDB.HSet(ctx, f.client.Store().Keys.Limits(), store.MaxQueuesField,
		limit).Err())
}
