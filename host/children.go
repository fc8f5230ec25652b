package host

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/sdk/queue"
)

// children are the tasks that a task enqueues. They belong to the goroutine of its call until that has ended.
type children struct {
	task  *task
	grant *plugins.EnqueueGrant
	left  Allowance
	// waiting come into being when the task completes.
	waiting []queue.Child
}

// Enqueue implements service.Enqueuer.
func (c *children) Enqueue(ctx context.Context, asked service.Child) (string, error) {
	t := c.task
	child, err := NewChild(c.grant, asked, t.ID)
	switch {
	case err != nil:
		return "", err
	case t.Depth >= c.grant.Depth:
		return "", fmt.Errorf("%w: the task has %d parents above it: raise capabilities.enqueue.depth if that is no circle", service.ErrLimit, t.Depth)
	}
	if err := c.left.Take(&child); err != nil {
		return "", err
	}
	if !t.tenant.queues.claim(child.Queue) {
		c.left.giveBack(&child)
		return "", fmt.Errorf("%w: the tenant has %d queues, and the host lets handlers add no more: use one of them, or raise --max-queues",
			service.ErrLimit, t.tenant.queues.most)
	}
	child.Depth, child.Traceparent = t.Depth+1, t.Traceparent
	if !c.grant.AfterCall {
		c.waiting = append(c.waiting, child)
		return child.ID, nil
	}
	id, err := c.now(ctx, child)
	if err != nil && !errors.Is(err, service.ErrUnavailable) { // else it may be there
		c.left.giveBack(&child)
	}
	return id, err
}

// Allowance is how much one run of a task may enqueue still.
type Allowance struct {
	terms       *plugins.Terms
	most, tasks int
	all, bytes  int64
}

// NewAllowance is all that the terms grant.
func NewAllowance(terms *plugins.Terms) Allowance {
	a := Allowance{terms: terms}
	if grant := terms.Capabilities.Enqueue; grant != nil {
		a.most, a.tasks, a.all, a.bytes = grant.Tasks, grant.Tasks, grant.Bytes, grant.Bytes
	}
	return a
}

// Take takes a child's part, or returns an error that wraps service.ErrLimit if there is too little left.
func (a *Allowance) Take(child *queue.Child) error {
	size := sizeOf(child)
	switch {
	case a.tasks == 0:
		return fmt.Errorf("%w: a task may enqueue %d tasks: %s", service.ErrLimit, a.most, a.terms.RaiseEnqueue("tasks"))
	case size > a.bytes:
		return fmt.Errorf("%w: a task may enqueue tasks of %s together, and this one of %s is more than is left: %s",
			service.ErrLimit, units.FormatSize(a.all), units.FormatSize(size), a.terms.RaiseEnqueue("bytes"))
	}
	a.tasks--
	a.bytes -= size
	return nil
}

// giveBack is for a child that has not come into being.
func (a *Allowance) giveBack(child *queue.Child) {
	a.tasks++
	a.bytes += sizeOf(child)
}

func sizeOf(child *queue.Child) int64 { return int64(len(child.Queue) + len(child.ID) + child.Size()) }

// NewChild is a task that a handler asks for in the task parent, with an ID if it names none: service.ErrInvalid or
// service.ErrDenied if that cannot be.
func NewChild(grant *plugins.EnqueueGrant, asked service.Child, parent string) (queue.Child, error) {
	if err := queue.ValidQueue(asked.Queue); err != nil {
		return queue.Child{}, invalid(err)
	}
	if !grant.Allows(asked.Queue) {
		return queue.Child{}, fmt.Errorf("%w: the queue %q: add it to capabilities.enqueue.queues", service.ErrDenied, asked.Queue)
	}
	if asked.MaxAttempts < 0 { // which would be unlimited: that takes a longest age
		return queue.Child{}, fmt.Errorf("%w: max_attempts %d: use 1 or more", service.ErrInvalid, asked.MaxAttempts)
	}
	child := queue.Child{Queue: asked.Queue, Spec: queue.Spec{Parameters: asked.Body, Options: queue.Options{
		ID: cmp.Or(asked.ID, queue.NewID()), Key: asked.Key, Labels: asked.Labels, Priority: asked.Priority, Delay: asked.Delay, At: asked.At,
		Retry: queue.Retry{MaxAttempts: asked.MaxAttempts}, Timeout: asked.Timeout, Unique: (*queue.Unique)(asked.Unique),
		Parent: parent,
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
func (c *children) now(ctx context.Context, child queue.Child) (string, error) {
	tenant := c.task.tenant
	enqueue := func() ([]queue.Receipt, error) {
		return tenant.client.Queue(child.Queue).EnqueueMany(ctx, []queue.Spec{child.Spec})
	}
	receipts, err := within(ctx, enqueue)
	if queue.IsUnavailable(err) && ctx.Err() == nil {
		receipts, err = within(ctx, enqueue)
	}
	switch {
	case err == nil:
		return receipts[0].ID, nil
	case errors.Is(err, queue.ErrQueueFull):
		return "", fmt.Errorf("%w: %w", service.ErrQuota, err)
	case errors.Is(err, queue.ErrDamaged):
		tenant.logger.Warn("a task cannot enqueue", "task_id", c.task.ID, "plugin", c.task.version.Name, "error", err)
		return "", fmt.Errorf("%w: %w", service.ErrUnavailable, err)
	case queue.IsUnavailable(err):
		return "", fmt.Errorf("%w: %w", service.ErrUnavailable, err)
	default:
		return "", err
	}
}
