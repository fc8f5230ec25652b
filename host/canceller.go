package host

import (
	"context"
	"maps"
	"slices"
	"time"
)

// markPause is the least time between two looks for marks, however many messages come.
const markPause = 20 * time.Millisecond

// canceller looks for the marks of operators, on tasks to be cancelled and on a listener to be drained, whenever the control
// channel announces some, and every third of a lease in case a message was lost.
type canceller struct {
	duty
	access *tenantAccess
	tasks  *taskSet
	drain  func() // called when the listener is to be drained
}

func (c *canceller) runOnce(ctx context.Context) (pause, wait time.Duration, err error) {
	marked, drain, err := c.access.node.Marks(ctx, slices.Collect(maps.Keys(c.tasks.all())))
	if drain {
		c.drain()
	}
	c.tasks.stop(marked, errCancelled)
	return markPause, c.access.node.Lease() / 3, err
}
