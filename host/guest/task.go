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

// Task describes one run of a task.
type Task struct {
	ID, Tenant, Plugin string
	// Created distinguishes the task from others that had the same ID.
	Created string
	// Headers are the task's headers; children inherit traceparent and tracestate.
	Headers map[string]string
	// Depth is how many ancestors the task has.
	Depth int
	// Asked is what the manifest asks for, and Permissions what the host allows of it.
	Asked       *manifest.Capabilities
	Permissions *manifest.Permissions
	Host        Host
}

// Host is the host that runs the task. Its methods return errors of sdk/queue, except for AdmitQueue.
type Host interface {
	// SaveCheckpoint stores the task's checkpoint durably.
	SaveCheckpoint(ctx context.Context, value []byte) error
	// AdmitQueue returns nil if the task is allowed to enqueue to the queue of that name. Otherwise the error wraps
	// service.ErrLimit if the tenant cannot have another queue, or service.ErrUnavailable if this cannot be determined
	// now.
	AdmitQueue(ctx context.Context, name string) error
	// Enqueue enqueues a child at once. It returns the child's ID, or the ID of the existing task that the child
	// would repeat.
	Enqueue(ctx context.Context, child listen.Child) (id string, err error)
	// Dependencies returns all tasks that the task waited for. Result returns the result of a task, or an error if the
	// result has more than most bytes.
	Dependencies(ctx context.Context) ([]listen.Dependency, error)
	Result(ctx context.Context, id string, most int64) ([]byte, error)
	// Borrow reserves memory for the answer of a database, until the next call for a result or an answer, or the end of
	// the task. The error wraps service.ErrUnavailable.
	Borrow(ctx context.Context, bytes int64) error
	// Failure returns why a task failed; nil if that is not known.
	Failure(ctx context.Context, id string) (*queue.Failure, error)
	// Publish makes a publication at once.
	Publish(ctx context.Context, publication *queue.Publication) error
	// Warn logs a message about the task for the host's operators; fields are pairs of a name and a value.
	Warn(message string, fields ...any)
}

// atOnce calls do, which writes to Redis. If it is not known whether the write was done, atOnce calls do again. That
// creates nothing twice, because the ID is the same both times. If data in Redis is damaged, atOnce warns with the
// message.
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

// explain wraps an error of package queue in one of package service. It returns other errors, and nil, as they are.
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
