package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/quern-project/quern/sdk"
)

// longestWait is the longest time that a task waits for a token. A task that would have to wait longer is retried
// later, and leaves its slot on the host to another task meanwhile.
const longestWait = 5 * time.Second

// limit is a token bucket that all tasks of a tenant share, wherever they run. Its state is one number in the store:
// the time at which the bucket is full again, in Unix milliseconds. Each request moves that time by the time in which a
// token comes back. The number expires when its time has come: without a number the bucket is full.
type limit struct {
	key   string        // the host of the limited requests
	every time.Duration // the time in which a token comes back
	burst int           // how many tokens a full bucket has
}

// newLimit returns the limit for requests to a host, as the manifest sets it.
func newLimit(host string) (*limit, error) {
	rate, err := number("rate")
	if err != nil {
		return nil, err
	}
	burst, err := number("burst")
	if err != nil {
		return nil, err
	}
	return &limit{key: host, every: time.Second / time.Duration(rate), burst: burst}, nil
}

func number(name string) (int, error) {
	text, _ := sdk.Config(name)
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 1000 {
		return 0, fmt.Errorf("config: %s is %q: the manifest must set it to a whole number, 1 to 1000", name, text)
	}
	return n, nil
}

// wait takes a token from the bucket. If the bucket is empty, it waits until a token has come back.
func (l *limit) wait(ctx context.Context) error {
	wait, err := l.take(time.Now())
	if err != nil {
		return err
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// take takes a token from the bucket, and returns how long to wait for the token: 0 unless the bucket is empty. If two
// tasks take a token at the same time, one of them finds that the number has changed, and tries again. The hosts'
// clocks should agree to a fraction of a second.
func (l *limit) take(now time.Time) (wait time.Duration, err error) {
	for {
		present, err := limits.Get(l.key)
		if err != nil && !errors.Is(err, sdk.ErrNotFound) {
			return 0, fmt.Errorf("look at the rate limit: %w", err)
		}
		full := now
		if ms, err := strconv.ParseInt(string(present), 10, 64); err == nil && time.UnixMilli(ms).After(now) {
			full = time.UnixMilli(ms)
		}
		full = full.Add(l.every)
		wait = max(full.Sub(now)-time.Duration(l.burst)*l.every, 0)
		if wait > longestWait {
			return 0, sdk.RetryAfter(errors.New("the rate limit is used up"), wait)
		}
		// Rounded up, like the milliseconds of the time to live.
		next := strconv.AppendInt(nil, full.Add(time.Millisecond-1).UnixMilli(), 10)
		if _, err = limits.Swap(l.key, present, next, full.Sub(now)); err == nil {
			return wait, nil
		}
		if !errors.Is(err, sdk.ErrConflict) {
			return 0, fmt.Errorf("take from the rate limit: %w", err)
		}
	}
}
