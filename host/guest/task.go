package guest

import (
	"context"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/sdk/queue"
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
	// AdmitQueue returns an error that wraps service.ErrLimit if the tenant may not have a queue of that name.
	AdmitQueue(name string) error
	// Enqueue enqueues a child at once, and answers its ID, or that of the task that it would repeat.
	Enqueue(ctx context.Context, child queue.Child) (id string, err error)
	// Dependencies are all that the task waited for, and Result is the result of a task, of that many bytes at most.
	Dependencies(ctx context.Context) ([]queue.Dependency, error)
	Result(ctx context.Context, id string, most int64) ([]byte, error)
	// Publish publishes at once.
	Publish(ctx context.Context, publication *queue.Publication) error
	// Warn tells those who run the host about the task; fields are pairs of a name and a value.
	Warn(message string, fields ...any)
}
