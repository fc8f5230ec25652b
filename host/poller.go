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

// pollPause is the minimum time between two polls, however many tasks fall due.
const pollPause = 20 * time.Millisecond

// minPolled is the minimum number of queues that a poll reads, even if Config.MaxQueues is lower.
const minPolled = 1000

// poller reads the backlogs of all queues of a tenant, including those that this host does not serve. It does so
// regularly, for tasks that Pub/Sub did not announce, and whenever a task falls due or expires. It wakes queues with
// pending tasks, and hands queues with due, expired or blocked tasks to the mover. If a tenant has more queues than one
// poll reads, each poll reads the served queues, the queues where an earlier poll found tasks, and some of the other
// queues in turn.
type poller struct {
	*periodic.Duty
	access    *tenantAccess
	scheduler *schedule.Scheduler
	upkeep    *upkeep.Upkeep
	lookout   *lookout
	interval  time.Duration
	// most is the maximum number of queues that a poll reads in addition to the served ones and those in busy. It is also
	// the maximum size of busy.
	most int64

	from int64           // the cursor from which the next poll reads queues
	busy map[string]bool // queues in which a poll found tasks, but which this host does not serve
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
	wakes := p.scheduler.Wakes() // later events are newer than the poll's answer
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

// isOver reports whether moment has passed; clock is the time of Redis's clock now. If moment is still to come, isOver
// asks for a poll at that time. The zero moment never passes.
func (p *poller) isOver(moment, clock time.Time) bool {
	if moment.After(clock) {
		p.AskIn(moment.Sub(clock))
		return false
	}
	return !moment.IsZero()
}
