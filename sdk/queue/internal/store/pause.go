package store

import (
	"context"
	"errors"
	"time"
)

// MinPause to MaxPause is the wait before a call is repeated while Redis is unavailable.
const (
	MinPause = 50 * time.Millisecond
	MaxPause = 2 * time.Second
)

// Notify puts a token into a channel of length 1, unless there is one already.
func Notify(tokens chan<- struct{}) {
	select {
	case tokens <- struct{}{}:
	default:
	}
}

// Persist repeats a call, which must be safe to repeat, while Redis is unavailable. When ctx ends it returns what was wrong with Redis.
func Persist(ctx context.Context, call func(context.Context) error) error {
	var last error
	for pause := MinPause; ; pause = min(2*pause, MaxPause) {
		err := call(ctx)
		if last != nil && ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return last
		}
		if !IsUnavailable(err) {
			return err
		}
		if last = err; !Sleep(ctx, pause) {
			return err
		}
	}
}

// Sleep waits. It returns false, at once, if ctx ends first.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
