package upkeep

import (
	"context"
	"time"

	"github.com/quern-project/quern/sdk/queue/periodic"
)

// advancePause is the least time between two runs, however many tasks end: several hosts try, though each end is
// reported only once.
const advancePause = time.Millisecond

// Advancer reports ended tasks to the tasks that wait for them, whenever a message announces an end, and at each
// interval in case a message was lost. Each host does it: the first one does the work in time, and the others find
// nothing.
type Advancer struct {
	periodic.Duty
	*Config
}

// RunOnce implements periodic.Worker.
func (a *Advancer) RunOnce(ctx context.Context) (pause, wait time.Duration, err error) {
	for more := true; more && err == nil; {
		block, failed := a.Fleet.Advance(ctx)
		more, err = block.More, failed
	}
	return advancePause, periodic.Jitter(a.Interval), err
}
