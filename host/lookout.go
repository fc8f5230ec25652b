package host

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/periodic"

	"github.com/quern-project/quern/host/schedule"
)

const (
	// lookInterval is how often the lookout looks, ± 20 %: so an unannounced task waits for about half of it.
	lookInterval = 900 * time.Millisecond
	// lookFor is for how long it looks after the last task that nobody announced.
	lookFor = time.Hour
)

// lookout looks at the idle queues of a tenant in which tasks were found that nobody announced, and asks for a poll
// when one of them has changed. It costs much less than a poll, so that it can come more often. Tenants whose producers
// announce have none.
type lookout struct {
	periodic.Duty
	access    *tenantAccess
	scheduler *schedule.Scheduler
	poll      func()
	until     atomic.Int64 // in Unix nanoseconds
}

// begin has the lookout look for an hour, from now on.
func (l *lookout) begin() {
	l.until.Store(time.Now().Add(lookFor).UnixNano())
	l.AskIn(lookInterval)
}

// RunOnce implements periodic.Worker.
func (l *lookout) RunOnce(ctx context.Context) (pause, wait time.Duration, err error) {
	if time.Now().UnixNano() > l.until.Load() {
		return 0, periodic.UntilAsked, nil
	}
	empty, stalled := l.scheduler.Idle(l.access.client.Tenant())
	changed, err := listen.NewFleet(l.access.client).Changed(ctx, empty, stalled)
	switch {
	case err != nil && ctx.Err() == nil:
		l.Reports.FailedQuietly(opPoll, err) // the next poll reports it
	case changed:
		l.poll()
	}
	return 0, periodic.Jitter(lookInterval), err
}
