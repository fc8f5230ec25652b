package host

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/quern-project/quern/sdk/queue"
)

// recovery takes the tasks of listeners whose lease is over and gives them back to their queues.
type recovery struct {
	session *session

	mu sync.Mutex
	// next is when a lease ends that was seen, by this host's clock; zero if none was seen.
	next time.Time
	// poke has a token when next was brought forward; never closed.
	poke chan struct{}

	clock clockWatch
	far   farLeases
}

// clockWatch compares Redis's clock with this host's, which never jumps while the host runs.
type clockWatch struct{ redis, host time.Time }

// jumped tells whether Redis's clock, which shows redis now, has been set by more than the bound since
// the last look. If it has, live listeners seem dead until they have renewed.
func (c *clockWatch) jumped(redis, host time.Time, bound time.Duration) bool {
	last := *c
	c.redis, c.host = redis, host
	return !last.host.IsZero() && (redis.Sub(last.redis)-host.Sub(last.host)).Abs() > bound
}

// farLeases are leases of before Redis's clock was set back, by when this host has seen them first.
type farLeases map[queue.OverlongLease]time.Time

// over takes what is far now and picks those that have stood still for their length while this host could renew its own
// lease, which it can since a moment. wait is how long the first of the others has to go; 0 if there is none.
func (f *farLeases) over(far []queue.OverlongLease, since, now time.Time) (over []queue.OverlongLease, wait time.Duration) {
	seen := make(farLeases, len(far))
	for _, lease := range far {
		first, known := (*f)[lease]
		if !known {
			first = now
		}
		if first.Before(since) {
			first = since
		}
		seen[lease] = first
		left := lease.Length - now.Sub(first)
		if left <= 0 {
			over = append(over, lease)
		} else if wait == 0 || left < wait {
			wait = left
		}
	}
	*f = seen
	return over, wait
}

func newRecovery(s *session) *recovery { return &recovery{session: s, poke: make(chan struct{}, 1)} }

// lookSlack is how long after the end of a lease the look for dead listeners comes: the clocks of Redis
// and of this host run apart a little.
const lookSlack = 20 * time.Millisecond

// reclaimTerm is how long a host may reclaim before another one may as well, which does no harm. It is short, for who has
// the duty may die over it.
const reclaimTerm = time.Second

// unleasedTerm is after how long the fleet looks again for listeners that have no lease.
const unleasedTerm = time.Minute

// begin notes how far Redis's clock is from this host's when the session joins, to know a jump from then on.
func (r *recovery) begin(ctx context.Context) error {
	clock, err := r.session.client.Clock(ctx)
	if err == nil {
		r.clock = clockWatch{clock, time.Now()}
	}
	return err
}

// leaseEnds says when the first lease of the tenant ends, while Redis's clock shows clock.
func (r *recovery) leaseEnds(end, clock time.Time) { r.lookIn(max(0, end.Sub(clock)) + lookSlack) }

// lookIn brings the next look forward.
func (r *recovery) lookIn(wait time.Duration) {
	at := time.Now().Add(wait)
	r.mu.Lock()
	sooner := r.next.IsZero() || at.Before(r.next)
	if sooner {
		r.next = at
	}
	r.mu.Unlock()
	if sooner {
		poke(r.poke)
	}
}

// Run looks for dead listeners until ctx ends: as soon as the session's renewals are steady, when a lease ends, and once
// a lease length.
func (r *recovery) Run(ctx context.Context) {
	var pause backoff
	regular := time.Now()
	timer := time.NewTimer(time.Until(r.after(regular)))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.poke:
		case <-timer.C:
			now := time.Now()
			if !r.session.steady.holds(now) {
				break
			}
			err := r.runOnce(ctx)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				r.session.failed(opReclaim, "", err)
				regular = now.Add(pause.failed(now))
			default:
				r.session.succeeded(opReclaim, "")
				pause.succeeded()
				regular = now.Add(r.interval())
			}
		}
		timer.Reset(time.Until(r.after(regular)))
	}
}

// interval is a lease ± 20 %.
func (r *recovery) interval() time.Duration {
	lease := r.session.lease
	return lease*4/5 + rand.N(lease*2/5+1)
}

// after is when to look next. While the session's own renewals are not steady there is nothing to look
// for.
func (r *recovery) after(regular time.Time) time.Time {
	r.mu.Lock()
	next := r.next
	r.mu.Unlock()
	if next.IsZero() || regular.Before(next) {
		next = regular
	}
	now := time.Now()
	from, known := r.session.steady.from()
	if !known || !from.After(now) && !r.session.steady.holds(now) {
		from = now.Add(r.session.lease / 3) // the next renewal
	}
	if next.Before(from) {
		next = from
	}
	return next
}

// runOnce looks once and reclaims from whoever is dead, if this host gets the duty.
func (r *recovery) runOnce(ctx context.Context) error {
	s := r.session
	r.mu.Lock()
	r.next = time.Time{} // what is brought forward from now on may be later than the answer
	r.mu.Unlock()
	clock, err := s.client.Clock(ctx)
	if err != nil {
		return err
	}
	if r.clock.jumped(clock, time.Now(), s.lease/3) {
		s.logger.Warn("the clock of redis was set: looking for dead listeners when all have renewed")
		s.steady.broken()
		return nil
	}
	return errors.Join(r.condemn(ctx), r.runDead(ctx), r.runUnleased(ctx))
}

// runDead reclaims from the listeners whose lease is over, if this host gets the duty.
func (r *recovery) runDead(ctx context.Context) error {
	s := r.session
	dead, next, err := s.client.Fleet().Dead(ctx)
	if next > 0 {
		r.lookIn(next + lookSlack)
	}
	if err != nil || len(dead) == 0 {
		return err
	}
	got, err := s.node.TakeDuty(ctx, "reclaim", reclaimTerm)
	if err != nil || !got {
		r.lookIn(dutyRetry/2 + rand.N(dutyRetry)) // who has it may die over it
		return err
	}
	return errors.Join(r.reclaimAll(ctx, dead), s.yieldDuty(ctx, "reclaim"))
}

// runUnleased reclaims from the listeners that a queue has and that have no lease. To find them takes a look at every
// queue: so the duty is not given back, and one host of the fleet looks in unleasedTerm.
func (r *recovery) runUnleased(ctx context.Context) error {
	s := r.session
	got, err := s.node.TakeDuty(ctx, "unleased", unleasedTerm)
	if err != nil || !got {
		return err
	}
	unleased, err := s.client.Fleet().Unleased(ctx)
	if err != nil {
		return err
	}
	return r.reclaimAll(ctx, unleased)
}

// reclaimAll reclaims from dead listeners. A damaged queue of one does not keep the tasks of the others.
func (r *recovery) reclaimAll(ctx context.Context, dead []string) (err error) {
	for _, listener := range dead {
		if listener == r.session.node.ID() {
			continue // the heartbeat tells
		}
		one := r.reclaim(ctx, listener)
		err = errors.Join(err, one)
		if ctx.Err() != nil || queue.IsUnavailable(one) {
			break
		}
	}
	return err
}

// condemn ends the leases of before Redis's clock was set back that nobody renews.
func (r *recovery) condemn(ctx context.Context) error {
	s := r.session
	since, known := s.steady.from()
	if !known {
		return nil
	}
	far, err := s.client.Fleet().OverlongLeases(ctx)
	if err != nil {
		return err
	}
	over, wait := r.far.over(far, since.Add(-s.lease), time.Now())
	if wait > 0 {
		r.lookIn(wait + lookSlack)
	}
	for _, lease := range over {
		ended, err := s.client.Fleet().EndLease(ctx, lease)
		if err != nil {
			return err
		}
		if ended {
			s.logger.Warn("a listener did not renew its lease since the clock of redis was set back: taking it for dead", "dead", lease.Listener)
		}
	}
	return nil
}

func (r *recovery) reclaim(ctx context.Context, listener string) error {
	s := r.session
	if !s.steady.holds(time.Now()) {
		return nil
	}
	got, err := s.client.Fleet().Reclaim(ctx, listener, s.host.config.MaxCrashes)
	s.metrics.reclaimed(s.tenant, got)
	s.unburied(opReclaim, "", got.DeadError)
	if got.Sum() > 0 || err == nil {
		s.logger.Warn("reclaimed from a listener that is dead", "dead", listener, "returned", got.Returned,
			"rescheduled", got.Scheduled, "failed", got.Failed, "dropped", got.Dropped)
	}
	if errors.Is(err, queue.ErrStatus) { // it lives after all
		return nil
	}
	return err
}
