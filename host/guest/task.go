package guest

import (
	"context"
	"errors"
	"fmt"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// Task is one run of a task.
type Task struct {
	ID, Tenant, Plugin string
	// Headers are the task's; children inherit traceparent and tracestate.
	Headers map[string]string
	// Depth is how many ancestors the task has.
	Depth int
	// Asked is what the manifest grants, and Permissions what the host leaves of it.
	Asked       *manifest.Capabilities
	Permissions *manifest.Permissions
	Host        Host
}

// Host runs the task. Its errors are those of sdk/queue.
type Host interface {
	// SaveCheckpoint stores the task's checkpoint durably.
	SaveCheckpoint(ctx context.Context, value []byte) error
	// AdmitQueue returns an error that wraps service.ErrLimit if the tenant may not have a queue of that name, and
	// service.ErrUnavailable if that is not known for now.
	AdmitQueue(ctx context.Context, name string) error
	// Enqueue enqueues a child at once, and answers its ID, or that of the task that it would repeat.
	Enqueue(ctx context.Context, child listen.Child) (id string, err error)
	// Dependencies are all that the task waited for, and Result is the result of a task, of that many bytes at most.
	Dependencies(ctx context.Context) ([]listen.Dependency, error)
	Result(ctx context.Context, id string, most int64) ([]byte, error)
	// Publish publishes at once.
	Publish(ctx context.Context, publication *queue.Publication) error
	// Warn tells those who run the host about the task; fields are pairs of a name and a value.
	Warn(message string, fields ...any)
}

// atOnce does something in Redis, and again if nobody knows whether that was done: what comes into being keeps its ID. If that
// can never be done, it warns with the message.
func atOnce[T any](ctx context.Context, host Host, message string, do func() (T, error)) (T, error) {
	value, err := service.Await(ctx, do)
	if queue.IsUnavailable(err) && ctx.Err() == nil {
		value, err = service.Await(ctx, do)
	}
	if errors.Is(err, queue.ErrDamaged) {
		host.Warn(message, "error", err)
	}
	return value, explain(err)
}

// explain makes an error of package queue one of package service; others, and nil, stay.
func explain(err error) error {
	var as error
	switch {
	case errors.Is(err, queue.ErrQueueFull):
		as = service.ErrQuota
	case errors.Is(err, queue.ErrManyQueues):
		as = service.ErrLimit
	case errors.Is(err, queue.ErrDependency), errors.Is(err, queue.ErrExists):
		as = service.ErrInvalid
	case errors.Is(err, queue.ErrLost), errors.Is(err, queue.ErrNoTask), errors.Is(err, listen.ErrLeaseLost):
		as = service.ErrLost
	case errors.Is(err, queue.ErrDamaged), queue.IsUnavailable(err):
		as = service.ErrUnavailable
	default:
		return err
	}
	return fmt.Errorf("%w: %w", as, err)
}
