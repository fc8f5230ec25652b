package store

import (
	"context"
	"errors"

	"github.com/quern-project/quern/sdk/queue/periodic"
)

// Persist repeats a call while Redis is unavailable. The call must be safe to repeat. When ctx ends, Persist returns
// the last error of Redis.
func Persist(ctx context.Context, call func(context.Context) error) error {
	var last error
	for pause := (periodic.Pause{}); ; {
		err := call(ctx)
		if last != nil && ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return last
		}
		if !IsUnavailable(err) {
			return err
		}
		if last = err; !pause.Sleep(ctx) {
			return err
		}
	}
}
