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
// and moves the scheduled tasks that are due, of every queue, whoever serves it.
type due struct {
	session *session

	mu sync.Mutex
	// next is when the earliest known task is due, by this host's clock; zero if none is known.
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

// runOnce looks once: it wakes the queues that have work, and moves what is due.
func (d *due) runOnce(ctx context.Context) error {
	ripe, err := d.look(ctx)
	if err == nil {
		d.session.succeeded(opPoll, "")
		return d.move(ctx, ripe)
	}
	if ctx.Err() == nil {
		d.session.failed(opPoll, "", err)
	}
	return err
}

// look polls all queues, wakes those that have work, and lists those with tasks that are due.
func (d *due) look(ctx context.Context) (ripe []string, err error) {
	s := d.session
	queues, err := s.client.Queues(ctx)
	if err != nil {
		return nil, err
	}
	for name := range s.listening() {
		queues[name] = 0
	}
	wakes := s.scheduler.awoken()
	d.mu.Lock()
	d.next = time.Time{} // what is brought forward from now on may be later than the answer
	d.mu.Unlock()
	poll, err := s.client.Poll(ctx, slices.Sorted(maps.Keys(queues)))
	if err != nil {
		return nil, err
	}
	for _, look := range poll.Queues {
		at := place{s.tenant, look.Queue}
		if look.Pending > 0 {
			s.scheduler.wake(at)
		} else {
			s.scheduler.empty(at, wakes)
		}
		switch {
		case look.NextETA.IsZero():
		case look.NextETA.After(poll.Clock):
			d.at(look.NextETA, poll.Clock)
		default:
			ripe = append(ripe, look.Queue)
		}
	}
	return ripe, nil
}

// move enqueues what is due in the queues, if this host gets the duty; else it looks again soon,
// because who has it may have looked before the last one was due.
func (d *due) move(ctx context.Context, queues []string) error {
	if len(queues) == 0 {
		d.session.succeeded(opDue, "")
		return nil
	}
	got, err := d.session.node.TakeDuty(ctx, "due", dutyTerm)
	switch {
	case err == nil && !got:
		d.earliest(time.Now().Add(dutyRetry/2 + rand.N(dutyRetry)))
		return nil
	case err == nil:
		err = d.moveEach(ctx, queues)
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

// moveEach goes through the queues. One that Redis refuses is tried again at the next regular look.
func (d *due) moveEach(ctx context.Context, queues []string) error {
	for _, name := range queues {
		moved, err := d.session.client.Queue(name).EnqueueDue(ctx)
		switch {
		case err == nil:
			d.session.succeeded(opDue, name)
			d.earliest(time.Now()) // its next eta is not known: look at once
		case ctx.Err() != nil || queue.IsUnavailable(err):
			return err
		default:
			d.session.failed(opDue, name, err)
		}
		if moved > 0 {
			d.session.logger.Debug("scheduled tasks are due", "queue", name, "tasks", moved)
		}
	}
	return nil
}

// at says that a task is due at eta, when Redis's clock shows clock.
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
	poll := d.session.poll
	return poll*4/5 + rand.N(poll*2/5+1)
}
