package listen

import (
	"context"

	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// Persist repeats a call while Redis is unavailable; the call must be safe to repeat. When ctx ends, Persist returns
// Redis's last error.
func Persist(ctx context.Context, call func(context.Context) error) error {
	return store.Persist(ctx, call)
}
