package listen

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

const (
	// MaxUnpublished is the maximum number of publications that Unpublished lists.
	MaxUnpublished = 100
	// publishingPause is the time without a new task after which another process goes on with a publication.
	publishingPause = 5 * time.Second
)

// Unpublished lists the IDs of accepted publications whose tasks are not all enqueued, and for which nobody has
// enqueued a task for 5 s. It lists at most MaxUnpublished IDs. The publication that has waited longest comes first.
func (f *Fleet) Unpublished(ctx context.Context) ([]string, error) {
	c := f.client
	now, err := c.Store().Now(ctx)
	if err != nil {
		return nil, err
	}
	ids, err := c.Store().RDB.ZRangeByScore(ctx, c.Store().Keys.Publishing(), &redis.ZRangeBy{
		Min: "-inf", Max: store.Seconds(now.Add(-publishingPause)), Count: MaxUnpublished,
	}).Result()
	return ids, store.Wrap("list publications under way", err)
}

// ForgetUnpublished removes a publication that is not stored any more from the list of Unpublished.
func (f *Fleet) ForgetUnpublished(ctx context.Context, id string) error {
	return store.Wrap("forget publication "+id, f.client.Store().RDB.ZRem(ctx, f.client.Store().Keys.Publishing(),
		id).Err())
}

// PostponeUnpublished moves publications that the caller has tried to finish to the end of the list of Unpublished, if
// they are still in the list.
func (f *Fleet) PostponeUnpublished(ctx context.Context, ids []string) error {
	now, err := f.client.Store().Now(ctx)
	if err != nil || len(ids) == 0 {
		return err
	}
	tried := make([]redis.Z, len(ids))
	for i, id := range ids {
		tried[i] = redis.Z{Score: float64(now.UnixMicro()) / 1e6, Member: id}
	}
	return store.Wrap("postpone publications", f.client.Store().RDB.ZAddXX(ctx, f.client.Store().Keys.Publishing(),
		tried...).Err())
}

// PublicationSize returns the size of a publication's payload in bytes. The error is queue.ErrNoPublication if the
// publication is not stored (any more).
func (f *Fleet) PublicationSize(ctx context.Context, id string) (int64, error) {
	if err := queue.ValidPublication(id); err != nil {
		return 0, err
	}
	size, kept, err := f.client.Store().PublicationSize(ctx, id)
	if err == nil && !kept {
		err = fmt.Errorf("publication %s: %w", id, queue.ErrNoPublication)
	}
	return size, err
}
