package upkeep

import (
	"context"
	"time"

	"github.com/quern-project/quern/sdk/queue/periodic"
)

// advancePause is the minimum time between two runs, however many tasks end. Each end is reported only once, but
// several hosts try.
const advancePause = time.Millisecond

// Advancer reports ended tasks to the tasks that wait for them. It does so whenever a message announces an end, and at
// each interval, in case a message was lost. Each host does it: the first host that tries does the work, and the others
// find nothing to do.
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
