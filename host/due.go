package host

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/quern-project/quern/sdk/queue"
)

const (
	// dutyTerm is how long a host may take to move what is due before another one may.
	dutyTerm = 5 * time.Second
	// dutyRetry is when a host looks again that did not get the duty.
	dutyRetry = 200 * time.Millisecond
	// lookPause is the least time between two looks, however many tasks fall due.
	lookPause = 20 * time.Millisecond
)

// due is the slow look at all queues of a tenant behind Pub/Sub. It wakes the queues that have work,
// moves the scheduled tasks that are due, and fails the waiting ones whose time is over, of every queue,
// whoever serves it.
type due struct {
	session *session

	mu sync.Mutex
	// next is when the earliest known task is due or expires, by this host's clock; zero if none is known.
	next time.Time
	// poke has a token when next was brought forward; never closed.
	poke chan struct{}
}

func newDue(s *session) *due { return &due{session: s, poke: make(chan struct{}, 1)} }

// Run polls until ctx ends: regularly, and whenever a task is due.
func (d *due) Run(ctx context.Context) {
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

// ripe are the queues of which tasks are to be moved: to the pending list, or to the failed one.
type ripe struct{ due, expired []string }

// runOnce looks once: it wakes the queues that have work, and moves what is due and what has expired.
func (d *due) runOnce(ctx context.Context) error {
	work, err := d.look(ctx)
	if err == nil {
		d.session.succeeded(opPoll, "")
		return d.do(ctx, work)
	}
	if ctx.Err() == nil {
		d.session.failed(opPoll, "", err)
	}
	return err
}

// look polls all queues, wakes those that have work, and lists those with tasks to move.
func (d *due) look(ctx context.Context) (work ripe, err error) {
	s := d.session
	queues, err := s.client.Queues(ctx)
	if err != nil {
		return ripe{}, err
	}
	for name := range s.listening() {
		queues[name] = 0
	}
	s.know(queues)
	wakes := s.scheduler.awoken()
	d.mu.Lock()
	d.next = time.Time{} // what is brought forward from now on may be later than the answer
	d.mu.Unlock()
	poll, err := s.client.Poll(ctx, slices.Sorted(maps.Keys(queues)))
	if err != nil {
		return ripe{}, err
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
		if d.isOver(look.NextETA, poll.Clock) {
			work.due = append(work.due, look.Queue)
		}
		if d.isOver(look.Expires, poll.Clock) || look.Pending > 0 && s.host.ages(s.tenant, look.Queue) {
			work.expired = append(work.expired, look.Queue)
		}
	}
	return work, nil
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

// do moves the tasks, if this host gets the duty; else it looks again soon, because who has it may
// have looked before the last one was due.
func (d *due) do(ctx context.Context, work ripe) error {
	if len(work.due) == 0 && len(work.expired) == 0 {
		d.session.succeeded(opDue, "")
		return nil
	}
	got, err := d.session.node.TakeDuty(ctx, "due", dutyTerm)
	switch {
	case err == nil && !got:
		d.earliest(time.Now().Add(dutyRetry/2 + rand.N(dutyRetry)))
		return nil
	case err == nil:
		err = d.each(ctx, work.due, func(name string) (int, error) { return d.session.client.Queue(name).EnqueueDue(ctx) })
		if len(work.due) > 0 {
			d.earliest(time.Now()) // when their next task is due is not known
		}
		if err == nil {
			err = d.each(ctx, work.expired, func(name string) (int, error) {
				maxAge, dead := d.session.host.expiry(d.session.tenant, name)
				return d.session.client.Queue(name).Expire(ctx, maxAge, dead)
			})
		}
		err = errors.Join(err, d.session.node.YieldDuty(ctx, "due"))
	}
	switch {
	case err == nil:
		d.session.succeeded(opDue, "")
	case ctx.Err() == nil:
		d.session.failed(opDue, "", err)
	}
	return err
}

// each goes through the queues. One that Redis refuses is tried again at the next regular look.
func (d *due) each(ctx context.Context, queues []string, move func(name string) (int, error)) error {
	for _, name := range queues {
		moved, err := move(name)
		switch {
		case err == nil && moved > 0:
			d.session.succeeded(opDue, name)
			d.earliest(time.Now()) // there may be more by now
		case err == nil:
			d.session.succeeded(opDue, name)
		case ctx.Err() != nil || queue.IsUnavailable(err):
			return err
		default:
			d.session.failed(opDue, name, err)
		}
		if moved > 0 {
			d.session.logger.Debug("tasks are due, or have expired", "queue", name, "tasks", moved)
		}
	}
	return nil
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
