package host

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/quern-project/quern/host/upkeep"
)

// markPause is the least time between two runs, however many messages come.
const markPause = 20 * time.Millisecond

// canceller looks for the marks of operators, on tasks to be cancelled and on a listener to be drained, whenever the
// control channel announces some, and every third of a lease in case a message was lost.
type canceller struct {
	upkeep.Duty
	access *tenantAccess
	tasks  *taskSet
	drain  func() // called when the listener is to be drained
}

// RunOnce implements upkeep.Worker.
func (c *canceller) RunOnce(ctx context.Context) (pause, wait time.Duration, err error) {
	marked, drain, err := c.access.node.Marks(ctx, slices.Collect(maps.Keys(c.tasks.all())))
	if drain {
		c.drain()
	}
	c.tasks.stop(marked, errCancelled)
	return markPause, c.access.node.Lease() / 3, err
}
