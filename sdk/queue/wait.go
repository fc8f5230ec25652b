package queue

import (
	"context"
	"fmt"
	"time"
)

// lookInterval is how often a waiter looks by itself: a task that Python settles is not announced.
const lookInterval = 5 * time.Second

// Wait blocks until the task is finished and returns it. ErrNoTask if it does not exist or is
// deleted meanwhile. While Redis is away it goes on trying until ctx ends.
func (c *Client) Wait(ctx context.Context, id string) (*Task, error) {
	if err := ValidID(id); err != nil {
		return nil, err
	}
	// Subscribe, then look, then wait: what finishes between the look and the wait is announced.
	announced := c.rdb.Subscribe(ctx, c.keys.done(id))
	defer announced.Close()
	wake := announced.ChannelWithSubscriptions()
	ticker := time.NewTicker(lookInterval)
	defer ticker.Stop()
	var again <-chan time.Time // soon, after a look that told nothing
	wait := settleBackoff
	for {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for task %s: %w", id, context.Cause(ctx))
		case <-wake: // an announcement, or a subscription that stands (again)
		case <-ticker.C:
		case <-again:
		}
		task, err := c.finished(ctx, id)
		switch {
		case IsUnavailable(err):
			again, wait = time.After(wait), min(2*wait, maxSettleBackoff)
		case err != nil && ctx.Err() == nil:
			return nil, err
		case task != nil:
			return task, nil
		default:
			again, wait = nil, settleBackoff
		}
	}
}

// finished reads a task if it is finished; nil if it is not yet.
func (c *Client) finished(ctx context.Context, id string) (*Task, error) {
	status, err := c.rdb.HGet(ctx, c.keys.task(id), "status").Result()
	if isNil(err) {
		var exists int64
		if exists, err = c.rdb.Exists(ctx, c.keys.task(id)).Result(); err == nil && exists == 0 {
			return nil, fmt.Errorf("task %s: %w", id, ErrNoTask)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("wait for task %s: %w", id, err)
	}
	if !Status(status).Finished() {
		return nil, nil
	}
	return c.Task(ctx, id)
}
