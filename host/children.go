package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue"
)

// children are the tasks that a task enqueues. They belong to the goroutine of its call until that has ended.
type children struct {
	task  *task
	grant *plugins.EnqueueGrant
	count int
	// waiting come into being when the task completes.
	waiting []queue.Child
}

// Enqueue implements service.Enqueuer.
func (c *children) Enqueue(ctx context.Context, asked service.Child) (string, error) {
	t := c.task
	child, err := NewChild(c.grant, asked)
	switch {
	case err != nil:
		return "", err
	case t.Depth >= c.grant.Depth:
		return "", fmt.Errorf("%w: the task has %d parents above it: raise capabilities.enqueue.depth if that is no circle", service.ErrLimit, t.Depth)
	case c.count == queue.MaxChildren:
		return "", fmt.Errorf("%w: a task may enqueue %d tasks", service.ErrLimit, queue.MaxChildren)
	}
	child.Parent, child.Depth, child.Traceparent = t.ID, t.Depth+1, t.Traceparent
	c.count++
	if c.grant.AfterCall {
		return c.now(ctx, child)
	}
	c.waiting = append(c.waiting, child)
	return child.ID, nil
}

// NewChild is a task that a handler asks for, with an ID if it names none: service.ErrInvalid or service.ErrDenied if
// that cannot be.
func NewChild(grant *plugins.EnqueueGrant, asked service.Child) (queue.Child, error) {
	if err := queue.ValidQueue(asked.Queue); err != nil {
		return queue.Child{}, invalid(err)
	}
	if !grant.Allows(asked.Queue) {
		return queue.Child{}, fmt.Errorf("%w: the queue %q: add it to capabilities.enqueue.queues", service.ErrDenied, asked.Queue)
	}
	child := queue.Child{Queue: asked.Queue, Spec: queue.Spec{Parameters: asked.Body, Options: queue.Options{
		ID: cmp.Or(asked.ID, queue.NewID()), Key: asked.Key, Labels: asked.Labels, Priority: asked.Priority, Delay: asked.Delay, At: asked.At,
		Retry: queue.Retry{MaxAttempts: asked.MaxAttempts}, Timeout: asked.Timeout, Unique: (*queue.Unique)(asked.Unique),
	}}}
	if err := child.Validate(); err != nil {
		return queue.Child{}, invalid(err)
	}
	return child, nil
}

// invalid is an error of the queue's as one of a service, which begins with the same word.
func invalid(err error) error {
	return fmt.Errorf("%w: %s", service.ErrInvalid, strings.TrimPrefix(err.Error(), queue.ErrInvalid.Error()+": "))
}

// now enqueues a child at once. With its ID that may be done again, if nobody knows whether it was.
func (c *children) now(ctx context.Context, child queue.Child) (id string, err error) {
	enqueue := func() error {
		receipts, err := c.task.session.client.Queue(child.Queue).EnqueueMany(ctx, []queue.Spec{child.Spec})
		if err == nil {
			id = receipts[0].ID
		}
		return err
	}
	err = within(ctx, enqueue)
	if queue.IsUnavailable(err) && ctx.Err() == nil {
		err = within(ctx, enqueue)
	}
	switch {
	case errors.Is(err, queue.ErrQueueFull):
		return "", fmt.Errorf("%w: %w", service.ErrQuota, err)
	case queue.IsUnavailable(err):
		return "", fmt.Errorf("%w: %w", service.ErrUnavailable, err)
	}
	return id, err
}
