package listen

import (
	"context"
	"time"

	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// Persist repeats a call, which must be safe to repeat, while Redis is unavailable. When ctx ends it returns what was wrong with Redis.
func Persist(ctx context.Context, call func(context.Context) error) error {
	return store.Persist(ctx, call)
}

// Sleep waits. It returns false, at once, if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) bool { return store.Sleep(ctx, d) }
