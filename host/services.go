package host

import (
	"context"

	"github.com/quern-project/quern/host/guest"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue"
)

// servicesOf makes the services of a task. A command has none.
func (r *runner) servicesOf(t *task) (services service.Services) {
	if t.version.Info().Kind == runtime.Command {
		return service.Services{}
	}
	services, t.children = r.services.For(guest.Task{
		ID: t.ID, Tenant: t.served.tenant, Plugin: t.version.Name, Headers: t.Headers, Depth: t.Depth,
		Asked: &t.version.Manifest.Capabilities, Permissions: t.permissions(), Host: t,
	})
	return t.span.Services(services)
}

// SaveCheckpoint implements guest.Host, as do the methods below.
func (t *task) SaveCheckpoint(ctx context.Context, value []byte) error {
	return t.tenant.node.Checkpoint(ctx, t.served.queue, t.Claim(), value)
}

func (t *task) AdmitQueue(name string) error { return t.tenant.queues.claim(name) }

func (t *task) Enqueue(ctx context.Context, child queue.Child) (string, error) {
	memory, err := t.tenant.borrow(ctx, int64(child.Size()))
	if err != nil {
		return "", err
	}
	defer memory.Give()
	receipts, err := t.tenant.client.Queue(child.Queue).EnqueueMany(ctx, []queue.Spec{child.Spec})
	if err != nil {
		return "", err
	}
	return receipts[0].ID, nil
}

func (t *task) Publish(ctx context.Context, p *queue.Publication) error {
	memory, err := t.tenant.borrow(ctx, copies*int64(len(p.Payload)))
	if err != nil {
		return err
	}
	defer memory.Give()
	_, err = t.tenant.client.Publish(ctx, p.Topic, p.Payload, queue.PublishOptions{
		ID: p.ID, Attributes: p.Attributes, Parent: p.Parent, Depth: p.Depth, Traceparent: p.Traceparent, Tracestate: p.Tracestate,
	})
	return err
}

func (t *task) Dependencies(ctx context.Context) ([]queue.Dependency, error) {
	return t.tenant.client.AllDependencies(ctx, t.ID)
}

// Result keeps what it borrows until the next one, or the end of the task: the guest may read the result again and again.
func (t *task) Result(ctx context.Context, id string, most int64) ([]byte, error) {
	size, err := t.tenant.client.ResultSize(ctx, id)
	t.result.Give()
	if err == nil && size <= most {
		t.result, err = t.tenant.borrow(ctx, 2*size) // as text and as bytes
	}
	if err != nil {
		return nil, err
	}
	return t.tenant.client.Result(ctx, id, most)
}

func (t *task) Warn(message string, fields ...any) {
	t.tenant.logger.Warn(message, t.logged(fields...)...)
}
