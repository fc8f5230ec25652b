package guest

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/sdk/queue"
)

// publications are what one task publishes.
type publications struct {
	count, bytes int
	waiting      []*queue.Publication
}

// Publications are what is published when the task completes.
func (c *Children) Publications() []*queue.Publication {
	if c == nil {
		return nil
	}
	return c.published.waiting
}

// Publish implements service.Publisher.
func (c *Children) Publish(ctx context.Context, asked service.Publication) (string, error) {
	t := c.task
	if err := t.Permissions.DenyTopic(asked.Topic); err != nil {
		return "", err
	}
	trace := queue.InheritTrace(t.Headers, asked.Trace)
	p := &queue.Publication{
		ID: cmp.Or(asked.ID, queue.NewID()), Topic: asked.Topic, Payload: asked.Body, Attributes: asked.Attributes,
		Parent: t.ID, Depth: t.Depth + 1, Traceparent: trace[queue.HeaderTraceparent], Tracestate: trace[queue.HeaderTracestate],
	}
	size := len(p.Topic) + len(p.ID) + len(p.Payload)
	for name, value := range p.Attributes {
		size += len(name) + len(value)
	}
	if err := p.Validate(); err != nil {
		return "", invalid(err)
	}
	grant := t.Permissions.Capabilities.Publish
	switch {
	case !grant.Allows(p.Topic):
		return "", &service.Denial{What: fmt.Sprintf("topic %q is not granted", p.Topic), Add: fmt.Sprintf("publish: {topics: [%q]}", p.Topic)}
	case t.Depth >= manifest.MaxPublicationDepth:
		return "", fmt.Errorf("%w: the task has %d parents above it, and no task with %d or more may publish: is that a circle?", service.ErrLimit, t.Depth, manifest.MaxPublicationDepth)
	case c.published.count >= manifest.MaxPublications:
		return "", fmt.Errorf("%w: a task may publish %d times: publish several things as one", service.ErrLimit, manifest.MaxPublications)
	case c.published.bytes+size > manifest.MaxPublicationBytes:
		return "", fmt.Errorf("%w: a task may publish %s together: publish where the rest is", service.ErrLimit, units.FormatSize(manifest.MaxPublicationBytes))
	}
	c.published.count++
	c.published.bytes += size
	if !grant.AfterCall() {
		c.published.waiting = append(c.published.waiting, p)
		return p.ID, nil
	}
	err := c.publishNow(ctx, p)
	if err != nil && !errors.Is(err, service.ErrUnavailable) { // else it may be published
		c.published.count--
		c.published.bytes -= size
	}
	return p.ID, err
}

// publishNow publishes at once. If nobody knows whether that was done, it is done again: the publication keeps its ID.
func (c *Children) publishNow(ctx context.Context, p *queue.Publication) error {
	publish := func() (struct{}, error) { return struct{}{}, c.task.Host.Publish(ctx, p) }
	_, err := service.Await(ctx, publish)
	if queue.IsUnavailable(err) && ctx.Err() == nil {
		_, err = service.Await(ctx, publish)
	}
	switch {
	case errors.Is(err, queue.ErrExists): // in another topic
		return invalid(err)
	case errors.Is(err, queue.ErrQueueFull):
		return fmt.Errorf("%w: %w", service.ErrQuota, err)
	case errors.Is(err, queue.ErrDamaged):
		c.task.Host.Warn("a task cannot publish", "error", err)
		fallthrough
	case queue.IsUnavailable(err):
		return fmt.Errorf("%w: %w", service.ErrUnavailable, err)
	}
	return err
}
