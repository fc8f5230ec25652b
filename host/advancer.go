package host

import (
	"context"
	"time"

	"github.com/quern-project/quern/sdk/queue/listen"
)

// advancePause is the least time between two runs, however many tasks end: none tells a task twice, but several hosts try.
const advancePause = time.Millisecond

// advancer tells the tasks that wait for others what became of these, whenever a message says that one has ended, and at each
// poll interval in case a message was lost. Each host does it: the first one comes in time, and the others find nothing.
type advancer struct {
	duty
	access   *tenantAccess
	interval time.Duration
}

func (a *advancer) runOnce(ctx context.Context) (pause, wait time.Duration, err error) {
	for more := true; more && err == nil; {
		block, failed := listen.NewFleet(a.access.client).Advance(ctx)
		more, err = block.More, failed
	}
	return advancePause, around(a.interval), err
}
