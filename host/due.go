package host

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// lookPause is the least time between two looks, however many tasks fall due.
const lookPause = 20 * time.Millisecond

// due is the slow look at all queues of a tenant behind Pub/Sub, whoever serves them. It wakes the queues that have
// work, and tells the mover of those with tasks that are due or have expired.
type due struct {
	session *session
	mover   *mover

	mu sync.Mutex
	// next is when the earliest known task is due or expires, by this host's clock; zero if none is known.
	next time.Time
	// poke has a token when next was brought forward; never closed.
	poke chan struct{}
}

func newDue(s *session) *due {
	d := &due{session: s, poke: make(chan struct{}, 1)}
	d.mover = newMover(s, d.at)
	return d
}

// Run polls until ctx ends: regularly, and whenever a task is due. Meanwhile the mover moves.
func (d *due) Run(ctx context.Context) {
	var moving sync.WaitGroup
	moving.Go(func() { d.mover.Run(ctx) })
	defer moving.Wait()
	var pause backoff
	regular, soonest := time.Now(), time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			if err := d.runOnce(ctx); err == nil {
				pause.succeeded()
				regular = time.Now().Add(d.interval())
				soonest = time.Now().Add(lookPause)
			} else {
				regular = time.Now().Add(pause.failed(time.Now()))
				soonest = regular
			}
		case <-d.poke:
		}
		timer.Reset(d.wait(regular, soonest))
	}
}

// runOnce looks once.
func (d *due) runOnce(ctx context.Context) error {
	err := d.look(ctx)
	switch {
	case err == nil:
		d.session.succeeded(opPoll, "")
	case ctx.Err() == nil:
		d.session.failed(opPoll, "", err)
	}
	return err
}

// look polls all queues, wakes those that have work, and tells of those with tasks to move.
func (d *due) look(ctx context.Context) error {
	s := d.session
	queues, err := s.client.Queues(ctx)
	if err != nil {
		return err
	}
	for name := range s.listening() {
		queues[name] = 0
	}
	s.know(queues)
	wakes := s.scheduler.awoken()
	d.mu.Lock()
	d.next = time.Time{} // what is brought forward from now on may be later than the answer
	d.mu.Unlock()
	poll, err := s.client.Fleet().Backlogs(ctx, slices.Sorted(maps.Keys(queues)))
	if err != nil {
		return err
	}
	if !poll.LeaseEnd.IsZero() {
		s.recovery.leaseEnds(poll.LeaseEnd, poll.Clock)
	}
	for _, look := range poll.Queues {
		at := place{s.tenant, look.Queue}
		if look.Pending > 0 {
			s.scheduler.wake(at)
		} else {
			s.scheduler.empty(at, wakes)
		}
		d.mover.add(look.Queue, moves{
			due:     d.isOver(look.NextETA, poll.Clock),
			expired: d.isOver(look.NextExpiry, poll.Clock) || look.Pending > 0 && s.host.ages(s.tenant, look.Queue),
		})
	}
	return nil
}

// isOver tells whether a moment has come when Redis's clock shows clock; if it is still to come, the
// next look will not be later.
func (d *due) isOver(moment, clock time.Time) bool {
	if moment.After(clock) {
		d.at(moment, clock)
		return false
	}
	return !moment.IsZero()
}

// at says that a task is due, or expires, at a moment, when Redis's clock shows clock.
func (d *due) at(eta, clock time.Time) { d.earliest(time.Now().Add(eta.Sub(clock))) }

// earliest brings the next look forward.
func (d *due) earliest(at time.Time) {
	d.mu.Lock()
	sooner := d.next.IsZero() || at.Before(d.next)
	if sooner {
		d.next = at
	}
	d.mu.Unlock()
	if sooner {
		poke(d.poke)
	}
}

// wait is how long until the next look: until the regular one, or until a task is due before, but
// not sooner than soonest.
func (d *due) wait(regular, soonest time.Time) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := regular
	if !d.next.IsZero() && d.next.Before(at) {
		at = d.next
	}
	if at.Before(soonest) {
		at = soonest
	}
	return max(0, time.Until(at))
}

// interval is the regular one ± 20 %, so that a fleet does not look in step.
func (d *due) interval() time.Duration {
	poll := d.session.host.config.Poll
	return poll*4/5 + rand.N(poll*2/5+1)
}
