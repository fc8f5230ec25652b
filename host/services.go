package host

import (
	"context"
	"fmt"
	"sync"

	"github.com/quern-project/quern/host/account"
	"github.com/quern-project/quern/host/guest"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// servicesOf makes the services of a task. A task whose plugin is a command has none.
func (r *runner) servicesOf(t *task) (services service.Services) {
	if t.version.Info().Kind == runtime.Command {
		return service.Services{}
	}
	services, t.children, t.databases = r.services.For(guest.Task{
		ID: t.ID, Tenant: t.Queue.Tenant, Plugin: t.version.Name, Created: t.created(), Headers: t.Headers, Depth: t.Depth,
		Asked: &t.version.Manifest.Capabilities, Permissions: t.version.Permissions, Host: t,
	})
	return t.span.Services(services)
}

// SaveCheckpoint implements guest.Host, as do the methods below.
func (t *task) SaveCheckpoint(ctx context.Context, value []byte) error {
	return t.tenant.listener.Checkpoint(ctx, t.Queue.Name, t.Claim(), value)
}

func (t *task) AdmitQueue(ctx context.Context, name string) error {
	return t.tenant.queues.claim(ctx, t.tenant.client, name)
}

func (t *task) Enqueue(ctx context.Context, child listen.Child) (string, error) {
	memory, err := t.tenant.borrow(ctx, t.tenant.calls, int64(child.Size()))
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
	memory, err := t.tenant.borrow(ctx, t.tenant.calls, copies*int64(len(p.Payload)))
	if err != nil {
		return err
	}
	defer memory.Give()
	_, err = t.tenant.client.Publish(ctx, p.Topic, p.Payload, queue.PublishOptions{
		ID: p.ID, Attributes: p.Attributes, Parent: p.Parent, Depth: p.Depth, Traceparent: p.Traceparent,
		Tracestate: p.Tracestate,
	})
	return err
}

func (t *task) Dependencies(ctx context.Context) ([]listen.Dependency, error) {
	return listen.NewFleet(t.tenant.client).AllDependencies(ctx, t.ID)
}

const (
	// copies is how many copies of a publication's payload are in memory at the same time: one as read from Redis, one
	// for filters, and one on its way back to Redis.
	copies = 3
	// minCalls is the minimum size of the budget for calls, in bytes: enough for the largest publication of a handler.
	minCalls = copies * manifest.MaxPublicationBytes
)

// resultCopies is how many copies of a result are in memory while it is read: the text of the reply and its bytes.
// Reading a result of at most smallResult bytes takes nothing from the budget for results, so it never waits for the
// memory of a large one.
const (
	resultCopies = 2
	smallResult  = 64 << 10
)

// Result keeps the memory that it has borrowed until its next call, or the end of the task, because the guest can read
// the result again and again.
func (t *task) Result(ctx context.Context, id string, most int64) ([]byte, error) {
	size, err := listen.NewFleet(t.tenant.client).ResultSize(ctx, id)
	if err != nil {
		return nil, err
	}
	size = min(size, most) // if the result has grown since, it is refused
	t.result.replace(nil)
	if size > smallResult {
		memory, err := t.tenant.borrow(ctx, t.tenant.results, resultCopies*size)
		if err != nil {
			return nil, err
		}
		if !t.result.replace(memory) {
			return nil, fmt.Errorf("%w: the task has ended", service.ErrUnavailable)
		}
	}
	result, err := t.tenant.client.Result(ctx, id, size)
	t.result.shrink(int64(len(result)))
	return result, err
}

// Borrow keeps the memory as Result does: the guest reads one of both.
func (t *task) Borrow(ctx context.Context, bytes int64) error {
	t.result.replace(nil)
	memory, err := t.tenant.borrow(ctx, t.tenant.results, bytes)
	if err == nil && !t.result.replace(memory) {
		err = fmt.Errorf("%w: the task has ended", service.ErrUnavailable)
	}
	return err
}

// Failure implements guest.Host.
func (t *task) Failure(ctx context.Context, id string) (*queue.Failure, error) {
	other, err := t.tenant.client.Summary(ctx, id)
	if err != nil || other.Status != queue.Failed {
		return nil, err
	}
	failure := other.Failure()
	return &failure, nil
}

// loan is the memory that a task has borrowed. A call that outlives its task can borrow nothing more.
type loan struct {
	mu    sync.Mutex // guards the fields below
	share *account.Share
	ended bool
}

// replace gives back the share that the loan has, and keeps the new one. If the task has ended, it gives the new share
// back as well, and returns false.
func (l *loan) replace(share *account.Share) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.share.Give()
	if l.share = share; l.ended {
		share.Give()
	}
	return !l.ended
}

func (l *loan) shrink(bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.share.Shrink(bytes)
}

func (l *loan) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.share.Give()
	l.ended = true
}

func (t *task) Warn(message string, fields ...any) {
	t.tenant.logger.Warn(message, t.logged(fields...)...)
}
