package queue

import (
	"context"
	"fmt"
	"math"

	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// Payloads are the parameters and results of tasks, and the payloads of publications. They can be larger than any other
// value, so the methods of this file ask for the size before they read one.

// Parameters reads the parameters of a task. For a dead letter, it reads the parameters of the failed task. The error
// is ErrNoTask if the task does not exist. If the parameters have more than limit bytes, they are not read, and the
// error is ErrTooLarge.
func (c *Client) Parameters(ctx context.Context, id string, limit int64) ([]byte, error) {
	value, found, err := c.store.ReadPayload(ctx, id, "parameters", limit)
	if found || err != nil {
		return value, err
	}
	live, err := c.store.RDB.HGet(ctx, c.store.Keys.Task(id), "live_id").Result()
	if err == nil {
		value, _, err = c.store.ReadPayload(ctx, live, "parameters", limit)
		return value, err
	}
	exists, err := c.store.RDB.Exists(ctx, c.store.Keys.Task(id)).Result()
	if err == nil && exists == 0 {
		return nil, fmt.Errorf("task %s: %w", id, ErrNoTask)
	}
	return nil, store.Wrap("read parameters of task "+id, err) // no error: a task written by hand may have none
}

// Result reads the result of a task. The error is ErrNoTask if there is no result, because the task is not complete or
// was deleted. If the result has more than limit bytes, it is not read, and the error is ErrTooLarge.
func (c *Client) Result(ctx context.Context, id string, limit int64) ([]byte, error) {
	if err := ValidID(id); err != nil {
		return nil, err
	}
	value, found, err := c.store.ReadPayload(ctx, id, "result", limit)
	if err == nil && !found {
		err = fmt.Errorf("result of task %s: %w", id, ErrNoTask)
	}
	return value, err
}

// Publication reads a publication. The error is ErrNoPublication if it does not exist (any more).
func (c *Client) Publication(ctx context.Context, id string) (*Publication, error) {
	return c.PublicationWithin(ctx, id, math.MaxInt64)
}

// PublicationWithin is Publication with a limit for the payload. If the payload has more than limit bytes, nothing is
// read, and the error is ErrTooLarge.
func (c *Client) PublicationWithin(ctx context.Context, id string, limit int64) (*Publication, error) {
	if err := ValidPublication(id); err != nil {
		return nil, err
	}
	var size int64
	if c.store.Measures(limit) {
		var err error
		if size, _, err = c.store.PublicationSize(ctx, id); err != nil {
			return nil, err
		}
	}
	if size > c.store.SealedSize(limit) {
		return nil, store.NoRoom("the payload of publication "+id, size, limit)
	}
	rdb, end := c.store.PayloadReader(size)
	defer end()
	hash, err := rdb.HGetAll(ctx, c.store.Keys.Publication(id)).Result()
	if err != nil {
		return nil, fmt.Errorf("read publication %s: %w", id, err)
	}
	if len(hash) == 0 {
		return nil, fmt.Errorf("publication %s: %w", id, ErrNoPublication)
	}
	p := ParsePublication(id, hash)
	if p.Payload, err = c.store.Seal.Open(p.Payload); err != nil {
		return nil, fmt.Errorf("read publication %s: %w", id, err)
	}
	return p, nil
}
