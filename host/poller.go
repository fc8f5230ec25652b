package host

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// pollPause is the least time between two polls, however many tasks fall due.
const pollPause = 20 * time.Millisecond

// leastPolled is how many queues a poll looks at, at least.
const leastPolled = 1000

// poller looks at all queues of a tenant, also those that this host does not serve: regularly, for what Pub/Sub did not
// announce, and when a task is due or expires. It wakes the queues with work, and gives the mover those with tasks to move. Of a tenant
// with more queues than it may have, each poll looks at those that the host serves, those where it found tasks, and some others in turn.
type poller struct {
	duty
	access    *tenantAccess
	scheduler *scheduler
	mover     *mover
	lookout   *lookout
	interval  time.Duration
	listening func() map[string]bool
	expiry    func(queue string) (maxAge time.Duration, dead string)
	leaseEnds func(left time.Duration) // called with what is left of the lease that ends first
	most      int64                    // how many queues it looks at beside those it serves, and as many where it found tasks

	from int64           // where the next poll goes on
	busy map[string]bool // queues with tasks that are not served here
}

func (p *poller) runOnce(ctx context.Context) (pause, wait time.Duration, err error) {
	return pollPause, around(p.interval), p.poll(ctx)
}

// around is a duration ± 20 %, so that the hosts of a fleet do not work in step.
func around(d time.Duration) time.Duration { return d*4/5 + rand.N(d*2/5+1) }

func (p *poller) poll(ctx context.Context) error {
	queues, next, err := manage.New(p.access.client).QueuePage(ctx, p.from, p.most)
	if err != nil {
		return err
	}
	served := p.listening()
	for _, others := range []map[string]bool{served, p.busy} {
		for name := range others {
			queues[name] = 0
		}
	}
	names := slices.Sorted(maps.Keys(queues))
	p.access.queues.set(queues, p.from+next > 0)
	p.from = next
	wakes := p.scheduler.wakes.Load() // an answer to what is asked now knows of no later one
	poll, err := listen.NewFleet(p.access.client).Backlogs(ctx, names)
	if err != nil {
		return err
	}
	if !poll.LeaseEnd.IsZero() {
		p.leaseEnds(poll.LeaseEnd.Sub(poll.Clock))
	}
	for _, look := range poll.Queues {
		at, what := p.access.place(look.Queue), moves{due: p.isOver(look.NextETA, poll.Clock), expired: p.isOver(look.NextExpiry, poll.Clock)}
		if delete(p.busy, look.Queue); !served[look.Queue] && look.Waits() && int64(len(p.busy)) < p.most {
			p.busy[look.Queue] = true
		}
		what.unseen = !look.Looked.IsZero() && poll.Clock.Sub(look.Looked) >= listen.RecheckAge
		if look.Pending > 0 {
			if p.scheduler.found(at) && p.interval > lookInterval {
				p.lookout.begin()
			}
			maxAge, _ := p.expiry(look.Queue)
			what.expired = what.expired || maxAge > 0
		} else {
			p.scheduler.empty(at, wakes)
		}
		p.mover.add(look.Queue, what)
	}
	return nil
}

// isOver tells whether a moment has come when Redis's clock shows clock. If it has not, the next poll comes with it.
func (p *poller) isOver(moment, clock time.Time) bool {
	if moment.After(clock) {
		p.pollAt(moment, clock)
		return false
	}
	return !moment.IsZero()
}

// pollAt polls when a task is due, or expires, while Redis's clock shows clock.
func (p *poller) pollAt(moment, clock time.Time) { p.askBy(time.Now().Add(moment.Sub(clock))) }
