package queue

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
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
	for {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for task %s: %w", id, context.Cause(ctx))
		case <-wake: // an announcement, or a subscription that stands (again)
		case <-ticker.C:
		}
		status, err := c.rdb.HGet(ctx, c.keys.task(id), "status").Result()
		switch {
		case errors.Is(err, redis.Nil):
			exists, err := c.rdb.Exists(ctx, c.keys.task(id)).Result()
			if err == nil && exists == 0 {
				return nil, fmt.Errorf("task %s: %w", id, ErrNoTask)
			}
		case err != nil && !IsUnavailable(err) && ctx.Err() == nil:
			return nil, fmt.Errorf("wait for task %s: %w", id, err)
		case Status(status).Finished():
			task, err := c.Task(ctx, id)
			if err == nil || !IsUnavailable(err) {
				return task, err
			}
		}
	}
}
