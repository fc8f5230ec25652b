package host

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/quern-project/quern/host/schedule"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

const (
	// lookInterval is how often the lookout looks, ± 20 %. An unannounced task waits half as long on average.
	lookInterval = 900 * time.Millisecond
	// lookFor is how long the lookout goes on after the last unannounced task.
	lookFor = time.Hour
)

// lookout watches the idle queues of a tenant after a poll has found unannounced tasks. When one of these queues has
// changed, it asks for a poll. A look costs much less than a poll, so looks can be more frequent. If all producers
// announce their tasks, the lookout does nothing.
type lookout struct {
	periodic.Duty
	access    *tenantAccess
	scheduler *schedule.Scheduler
	poll      func()
	until     atomic.Int64 // when the lookout stops looking, in Unix nanoseconds
}

// begin makes the lookout look for an hour from now on.
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
