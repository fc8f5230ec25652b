package host

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/quern-project/quern/host/schedule"
	"github.com/quern-project/quern/host/upkeep"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

// pollPause is the least time between two polls, however many tasks fall due.
const pollPause = 20 * time.Millisecond

// leastPolled is how many queues a poll looks at, at least.
const leastPolled = 1000

// poller looks at all queues of a tenant, also those that this host does not serve: regularly, for tasks that Pub/Sub
// did not announce, and when a task is due or expires. It wakes the queues with work, and hands those with tasks to
// move to the mover. If a tenant has more queues than it may have, each poll looks at the served queues, at the queues
// where it found tasks, and at some of the others in turn.
type poller struct {
	*periodic.Duty
	access    *tenantAccess
	scheduler *schedule.Scheduler
	upkeep    *upkeep.Upkeep
	lookout   *lookout
	interval  time.Duration
	most      int64 // how many queues a poll looks at beside the served ones and busy; also bounds busy

	from int64           // the cursor at which the next poll goes on
	busy map[string]bool // queues with tasks that this host does not serve
}

// RunOnce implements periodic.Worker.
func (p *poller) RunOnce(ctx context.Context) (pause, wait time.Duration, err error) {
	return pollPause, periodic.Jitter(p.interval), p.poll(ctx)
}

func (p *poller) poll(ctx context.Context) error {
	queues, next, err := listen.NewFleet(p.access.client).QueuePage(ctx, p.from, p.most)
	if err != nil {
		return err
	}
	served := p.access.listener.Listening()
	for _, others := range []map[string]bool{served, p.busy} {
		for name := range others {
			queues[name] = 0
		}
	}
	names := slices.Sorted(maps.Keys(queues))
	p.access.queues.set(queues, p.from+next > 0)
	p.from = next
	wakes := p.scheduler.Wakes() // the poll's answer is older than any later event
	poll, err := listen.NewFleet(p.access.client).Backlogs(ctx, names)
	if err != nil {
		return err
	}
	if !poll.LeaseEnd.IsZero() {
		p.upkeep.Recovery.LeaseEnds(poll.LeaseEnd.Sub(poll.Clock))
	}
	for _, look := range poll.Queues {
		at := p.access.queue(look.Queue)
		what := upkeep.Moves{
			Due: p.isOver(look.NextETA, poll.Clock), Expired: p.isOver(look.NextExpiry, poll.Clock),
			Recheck: !look.Looked.IsZero() && poll.Clock.Sub(look.Looked) >= listen.RecheckAge,
		}
		if delete(p.busy, look.Queue); !served[look.Queue] && look.Waits() && int64(len(p.busy)) < p.most {
			p.busy[look.Queue] = true
		}
		if look.Pending > 0 {
			if p.scheduler.Polled(at) && p.interval > lookInterval {
				p.lookout.begin()
			}
			maxAge, _ := p.access.catalog.expiry(look.Queue)
			what.Expired = what.Expired || maxAge > 0
		} else {
			p.scheduler.PolledEmpty(at, wakes)
		}
		p.upkeep.Mover.Add(look.Queue, what)
	}
	return nil
}

// isOver reports whether a moment is over by Redis's clock, which shows clock. If the moment is still to come, isOver
// asks for a poll at that time.
func (p *poller) isOver(moment, clock time.Time) bool {
	if moment.After(clock) {
		p.AskIn(moment.Sub(clock))
		return false
	}
	return !moment.IsZero()
}
