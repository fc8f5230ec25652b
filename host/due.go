package host

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

const (
	// dutyTerm is how long a host may take to move what is due before another one may.
	dutyTerm = 5 * time.Second
	// dutyRetry is when a host looks again that did not get the duty.
	dutyRetry = 200 * time.Millisecond
)

// due is the slow look at all queues of a tenant behind Pub/Sub. It wakes the queues that have work,
// and moves the scheduled tasks that are due, of every queue, whoever serves it.
type due struct {
	session *session

	mu sync.Mutex
	// next is when the earliest known task is due, by this host's clock; zero if none is known.
	next time.Time
	// ahead is by how much Redis's clock is ahead of this host's.
	ahead time.Duration
	// poke has a token when next was brought forward; never closed.
	poke chan struct{}
}

func newDue(s *session) *due { return &due{session: s, poke: make(chan struct{}, 1)} }

// Run polls until ctx ends: regularly, and whenever a task is due.
func (d *due) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			timer.Reset(d.runOnce(ctx))
		case <-d.poke:
			timer.Reset(d.wait(d.interval()))
		}
	}
}

// runOnce looks once and returns how long to wait until the next time.
func (d *due) runOnce(ctx context.Context) time.Duration {
	s := d.session
	queues, err := s.client.Queues(ctx)
	if err == nil {
		s.mu.Lock()
		for name := range s.registered {
			queues[name] = 0
		}
		s.mu.Unlock()
		err = d.look(ctx, queues)
	}
	switch {
	case ctx.Err() != nil:
		return d.session.poll
	case err != nil:
		s.failed("poll", err)
	default:
		s.succeeded()
	}
	return d.wait(d.interval())
}

// look polls the queues, wakes those that have work, and moves what is due.
func (d *due) look(ctx context.Context, queues map[string]int64) error {
	names := make([]string, 0, len(queues))
	for name := range queues {
		names = append(names, name)
	}
	slices.Sort(names)
	poll, err := d.session.client.Poll(ctx, names)
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.ahead = time.Until(poll.Clock)
	d.next = time.Time{}
	d.mu.Unlock()

	var ripe []string
	for _, look := range poll.Queues {
		at := place{d.session.tenant, look.Queue}
		if look.Pending > 0 {
			d.session.scheduler.wake(at)
		} else {
			d.session.scheduler.empty(at)
		}
		switch {
		case look.NextETA.IsZero():
		case look.NextETA.After(poll.Clock):
			d.at(look.NextETA, poll.Clock)
		default:
			ripe = append(ripe, look.Queue)
		}
	}
	if len(ripe) == 0 {
		return nil
	}
	return d.move(ctx, ripe)
}

// move enqueues what is due in the queues, if this host gets the duty; else it looks again soon,
// because who has it may have looked before the last one was due.
func (d *due) move(ctx context.Context, queues []string) error {
	again := time.Now().Add(dutyRetry/2 + rand.N(dutyRetry))
	got, err := d.session.node.TakeDuty(ctx, "due", dutyTerm)
	if err != nil || !got {
		d.earliest(again)
		return err
	}
	for _, name := range queues {
		moved, err := d.session.client.Queue(name).EnqueueDue(ctx)
		if err != nil {
			d.earliest(again)
			return err
		}
		if moved > 0 {
			d.session.logger.Debug("scheduled tasks are due", "queue", name, "tasks", moved)
		}
	}
	d.earliest(time.Now()) // the next eta of these queues is not known: look at once
	return d.session.node.YieldDuty(ctx, "due")
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
		select {
		case d.poke <- struct{}{}:
		default:
		}
	}
}

// wait is how long until the next look: the regular interval, or less if a task is due before.
func (d *due) wait(interval time.Duration) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.next.IsZero() {
		return interval
	}
	return max(0, min(interval, time.Until(d.next)))
}

// interval is the regular one ± 20 %, so that a fleet does not look in step.
func (d *due) interval() time.Duration {
	poll := d.session.poll
	return poll*4/5 + rand.N(poll*2/5+1)
}

// redisNow is Redis's clock as far as this host knows it.
func (d *due) redisNow() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Now().Add(d.ahead)
}
