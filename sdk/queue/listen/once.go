package listen

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// ForgetOnce sets how much longer Redis remembers IDs that were enqueued with Options.Once.
func (f *Fleet) ForgetOnce(ctx context.Context, ids []string, after time.Duration) error {
	s := f.client.Store()
	_, err := store.Pipelined(ctx, s, ids, func(p redis.Pipeliner, id string) *redis.BoolCmd {
		return p.Expire(ctx, s.Keys.Once(id), after)
	})
	return err
}
