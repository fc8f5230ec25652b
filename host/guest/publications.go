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

// publications has what one task publishes.
type publications struct {
	count, bytes int
	waiting      []*queue.Publication
}

// Publications returns the publications that are made when the task completes.
func (c *Children) Publications() []*queue.Publication {
	if c == nil {
		return nil
	}
	return c.published.waiting
}

// Publish implements service.Publisher.
func (c *Children) Publish(ctx context.Context, asked service.Publication) (string, error) {
	t := c.task
	trace := queue.InheritTrace(t.Headers, asked.Trace)
	p := &queue.Publication{
		ID: cmp.Or(asked.ID, queue.NewID()), Topic: asked.Topic, Payload: asked.Body, Attributes: asked.Attributes,
		Parent: t.ID, Depth: t.Depth + 1, Traceparent: trace[queue.HeaderTraceparent],
		Tracestate: trace[queue.HeaderTracestate],
	}
	size := len(p.Topic) + len(p.ID) + len(p.Payload)
	for name, value := range p.Attributes {
		size += len(name) + len(value)
	}
	if err := p.Validate(); err != nil {
		return "", invalid(err)
	}
	if err := t.Permissions.DenyTopic(p.Topic); err != nil {
		return "", err
	}
	grant := t.Permissions.Capabilities.Publish
	switch {
	case t.Depth >= manifest.MaxPublicationDepth:
		return "", fmt.Errorf("%w: the task has %d parents above it, and no task with %d or more may publish: is that a circle?", service.ErrLimit, t.Depth, manifest.MaxPublicationDepth)
	case c.published.count >= manifest.MaxPublications:
		return "", fmt.Errorf("%w: a task may publish %d times: publish several things as one", service.ErrLimit,
			manifest.MaxPublications)
	case c.published.bytes+size > manifest.MaxPublicationBytes:
		return "", fmt.Errorf("%w: a task may publish %s together: publish a reference to the rest", service.ErrLimit,
			units.FormatSize(manifest.MaxPublicationBytes))
	}
	c.published.count++
	c.published.bytes += size
	if !grant.AfterCall() {
		c.published.waiting = append(c.published.waiting, p)
		return p.ID, nil
	}
	_, err := atOnce(ctx, t.Host, "a task cannot publish",
		func() (struct{}, error) { return struct{}{}, t.Host.Publish(ctx, p) })
	if err != nil && !errors.Is(err, service.ErrUnavailable) { // if unavailable, it may be published
		c.published.count--
		c.published.bytes -= size
	}
	return p.ID, err
}
