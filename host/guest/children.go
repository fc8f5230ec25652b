package guest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// Children has the tasks that one task enqueues, and its publications. It belongs to the goroutine of the task's call
// until the call has ended.
type Children struct {
	task    *Task
	grant   *manifest.EnqueueGrant
	tasks   int   // how many more tasks the task can enqueue
	bytes   int64 // how many bytes further tasks can have together
	after   int   // how many dependencies the tasks enqueued so far have together
	waiting []listen.Child

	published publications
}

// Waiting returns the children that are enqueued when the task completes.
func (c *Children) Waiting() []listen.Child {
	if c == nil {
		return nil
	}
	return c.waiting
}

// Enqueue implements service.Enqueuer.
func (c *Children) Enqueue(ctx context.Context, asked service.Child) (string, error) {
	t := c.task
	if err := queue.ValidTarget(asked.Queue); err != nil {
		return "", invalid(err)
	}
	if err := cmp.Or(t.Permissions.DenyQueue(asked.Queue), t.Permissions.DenyDepth(t.Depth)); err != nil {
		return "", err
	}
	asked.Headers = queue.InheritTrace(t.Headers, asked.Headers)
	child, err := newChild(asked, t.ID)
	switch {
	case err != nil:
		return "", err
	case t.Depth >= c.grant.Depth:
		return "", fmt.Errorf("%w: the task has %d parents above it: raise capabilities.enqueue.depth if the tasks do not enqueue each other in a circle",
			service.ErrLimit, t.Depth)
	}
	if err := c.charge(&child); err != nil {
		return "", err
	}
	if err := t.Host.AdmitQueue(ctx, child.Queue); err != nil {
		c.giveBack(&child)
		return "", err
	}
	child.Depth = t.Depth + 1
	if !c.grant.AfterCall() {
		c.waiting = append(c.waiting, child)
		return child.ID, nil
	}
	id, err := atOnce(ctx, t.Host, "a task cannot enqueue", func() (string, error) { return t.Host.Enqueue(ctx, child) })
	if err != nil && !errors.Is(err, service.ErrUnavailable) { // if unavailable, the child may exist
		c.giveBack(&child)
	}
	return id, err
}

// charge counts a child against the grant, or returns an error that wraps service.ErrLimit.
func (c *Children) charge(child *listen.Child) error {
	size, permissions := sizeOf(child), c.task.Permissions
	switch {
	case c.tasks == 0:
		return fmt.Errorf("%w: a task may enqueue %d tasks: %s", service.ErrLimit, c.grant.Tasks,
			permissions.RaiseEnqueue("tasks"))
	case c.after+len(child.After) > listen.MaxChildDependencies:
		return fmt.Errorf("%w: the tasks that one task enqueues may have %d dependencies in total: make them depend on one task that depends on the others",
			service.ErrLimit, listen.MaxChildDependencies)
	case size > c.bytes:
		return fmt.Errorf("%w: a task may enqueue tasks of %s together, and this one of %s is more than is left: %s",
			service.ErrLimit, units.FormatSize(c.grant.Bytes), units.FormatSize(size), permissions.RaiseEnqueue("bytes"))
	}
	c.tasks--
	c.bytes -= size
	c.after += len(child.After)
	return nil
}

// giveBack undoes charge for a child that was not enqueued.
func (c *Children) giveBack(child *listen.Child) {
	c.tasks++
	c.bytes += sizeOf(child)
	c.after -= len(child.After)
}

func sizeOf(child *listen.Child) int64 { return int64(len(child.Queue) + len(child.ID) + child.Size()) }

// newChild returns the task that a handler asks for, with a new ID if the handler names none. The error wraps
// service.ErrInvalid.
func newChild(asked service.Child, parent string) (listen.Child, error) {
	if asked.MaxAttempts < 0 { // -1 would be unlimited, which needs a maximum age
		return listen.Child{}, fmt.Errorf("%w: max_attempts %d: use 1 or more", service.ErrInvalid, asked.MaxAttempts)
	}
	child := listen.Child{Queue: asked.Queue, Spec: queue.Spec{Parameters: asked.Body, Options: queue.Options{
		ID: cmp.Or(asked.ID, queue.NewID()), Key: asked.Key, Labels: asked.Labels, Headers: asked.Headers,
		Priority: asked.Priority, Delay: asked.Delay, At: asked.At,
		Retry: queue.Retry{MaxAttempts: asked.MaxAttempts}, Timeout: asked.Timeout, Unique: (*queue.Unique)(asked.Unique),
		Parent: parent, After: asked.After, When: queue.When(asked.When), FairKey: asked.FairKey,
		FairWeight: asked.FairWeight, ConcurrencyKey: asked.ConcurrencyKey, MaxConcurrent: asked.MaxConcurrent,
	}}}
	if err := child.Validate(); err != nil {
		return listen.Child{}, invalid(err)
	}
	return child, nil
}

// invalid turns an error of package queue into one that wraps service.ErrInvalid. It replaces the prefix of the text,
// so that the text does not say twice that something is invalid.
func invalid(err error) error {
	return fmt.Errorf("%w: %s", service.ErrInvalid, strings.TrimPrefix(err.Error(), queue.ErrInvalid.Error()+": "))
}
