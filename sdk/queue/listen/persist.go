package listen

import (
	"context"

	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// Persist repeats a call, which must be safe to repeat, while Redis is unavailable. When ctx ends it returns what was wrong with Redis.
func Persist(ctx context.Context, call func(context.Context) error) error {
	return store.Persist(ctx, call)
}
