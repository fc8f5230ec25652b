package host

import (
	"context"
	"errors"
	"time"

	"github.com/quern-project/quern/sdk/queue/listen"

	"github.com/quern-project/quern/sdk/queue"
)

// recovery takes the tasks of listeners whose lease has expired and gives them back to their queues.
type recovery struct {
	duty
	access     *tenantAccess
	steadiness *steadiness
	maxCrashes int
	clock      clockWatch
	overlong   overlongLeases
}

// clockWatch compares Redis's clock with this host's, which never jumps while the host runs.
type clockWatch struct{ redis, host time.Time }

// jumped tells whether Redis's clock, which shows redis now, was set by more than the bound since the last look. If it was,
// live listeners seem dead until they have renewed.
func (c *clockWatch) jumped(redis, host time.Time, bound time.Duration) bool {
	last := *c
	c.redis, c.host = redis, host
	return !last.host.IsZero() && (redis.Sub(last.redis)-host.Sub(last.host)).Abs() > bound
}

// overlongLeases are leases from before Redis's clock was set back, by when this host has seen them first.
type overlongLeases map[listen.OverlongLease]time.Time

// over picks the overlong leases that have stood still for their length while this host could renew its own lease, which it can
// since the moment since. wait is how long the first of the others has to go; 0 if there is none.
func (f *overlongLeases) over(leases []listen.OverlongLease, since, now time.Time) (over []listen.OverlongLease, wait time.Duration) {
	seen := make(overlongLeases, len(leases))
	for _, lease := range leases {
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

const (
	// expirySlack is how long after the end of a lease recovery looks for dead listeners: the clocks of Redis and of this host
	// run apart a little.
	expirySlack = 20 * time.Millisecond
	// reclaimTerm is how long a host may reclaim before another one may as well, which does no harm. It is short: the host with
	// the duty may die.
	reclaimTerm = time.Second
	// unleasedTerm is after how long the fleet looks again for listeners that have no lease.
	unleasedTerm = time.Minute
)

// begin notes how far Redis's clock is from this host's when the session joins, to know a jump from then on.
func (r *recovery) begin(ctx context.Context) error {
	clock, err := r.access.client.Clock(ctx)
	if err == nil {
		r.clock = clockWatch{clock, time.Now()}
	}
	return err
}

// leaseEnds has dead listeners looked for when a lease ends.
func (r *recovery) leaseEnds(left time.Duration) { r.askBy(time.Now().Add(max(0, left) + expirySlack)) }

// runOnce looks for dead listeners: as soon as the session's renewals are steady, when a lease ends, and once a lease length.
func (r *recovery) runOnce(ctx context.Context) (pause, wait time.Duration, err error) {
	if now := time.Now(); !r.steadiness.steady(now) {
		from, known := r.steadiness.from()
		if !known || !from.After(now) {
			from = now.Add(r.steadiness.lease / 3) // the next renewal
		}
		wait = from.Sub(now)
		return wait, wait, errIdle
	}
	return 0, around(r.steadiness.lease), r.look(ctx)
}

// look looks once and reclaims from dead listeners, if this host gets the duty.
func (r *recovery) look(ctx context.Context) error {
	clock, err := r.access.client.Clock(ctx)
	if err != nil {
		return err
	}
	if r.clock.jumped(clock, time.Now(), r.steadiness.lease/3) {
		r.access.logger.Warn("the clock of redis was set: looking for dead listeners when all have renewed")
		r.steadiness.broken()
		return nil
	}
	return errors.Join(r.condemn(ctx), r.runDead(ctx), r.runUnleased(ctx))
}

// runDead reclaims from the listeners whose lease has expired, if this host gets the duty.
func (r *recovery) runDead(ctx context.Context) error {
	dead, _, next, err := listen.NewFleet(r.access.client).Leases(ctx)
	if next > 0 {
		r.leaseEnds(next)
	}
	if err != nil || len(dead) == 0 {
		return err
	}
	got, err := r.access.onDuty(ctx, "reclaim", reclaimTerm, func() (more bool, err error) { return false, r.reclaimAll(ctx, dead) })
	if !got {
		r.askBy(time.Now().Add(dutyAgain())) // the host with the duty may die
	}
	return err
}

// runUnleased reclaims from listeners of queues that have no lease. Finding them takes a look at every queue: the duty is not
// given back, so that one host of the fleet looks in unleasedTerm.
func (r *recovery) runUnleased(ctx context.Context) error {
	got, err := r.access.node.TakeDuty(ctx, "unleased", unleasedTerm)
	if err != nil || !got {
		return err
	}
	unleased, err := listen.NewFleet(r.access.client).Unleased(ctx)
	return errors.Join(err, r.reclaimAll(ctx, unleased))
}

// reclaimAll reclaims from dead listeners. A damaged queue of one does not keep the tasks of the others.
func (r *recovery) reclaimAll(ctx context.Context, dead []string) (err error) {
	for _, listener := range dead {
		if listener == r.access.node.ID() {
			continue // the lease keeper finds out
		}
		one := r.reclaim(ctx, listener)
		err = errors.Join(err, one)
		if ctx.Err() != nil || queue.IsUnavailable(one) {
			break
		}
	}
	return err
}

// condemn ends the leases from before Redis's clock was set back that nobody renews.
func (r *recovery) condemn(ctx context.Context) error {
	since, known := r.steadiness.from()
	if !known {
		return nil
	}
	leases, err := listen.NewFleet(r.access.client).OverlongLeases(ctx)
	if err != nil {
		return err
	}
	over, wait := r.overlong.over(leases, since.Add(-r.steadiness.lease), time.Now())
	if wait > 0 {
		r.leaseEnds(wait)
	}
	for _, lease := range over {
		ended, err := listen.NewFleet(r.access.client).EndLease(ctx, lease)
		if err != nil {
			return err
		}
		if ended {
			r.access.logger.Warn("a listener did not renew its lease since the clock of redis was set back: taking it for dead", "dead", lease.Listener)
		}
	}
	return nil
}

func (r *recovery) reclaim(ctx context.Context, listener string) error {
	if !r.steadiness.steady(time.Now()) {
		return nil
	}
	got, err := listen.NewFleet(r.access.client).Reclaim(ctx, listener, r.maxCrashes)
	tenant, m := r.access.client.Tenant(), r.health.metrics
	m.TasksReclaimed(tenant, "released", got.Returned)
	m.TasksReclaimed(tenant, "rescheduled", got.Scheduled)
	m.TasksReclaimed(tenant, "failed", got.Failed)
	r.health.noDeadLetter(opReclaim, "", got.DeadError)
	if got.Sum() > 0 || err == nil {
		r.access.logger.Warn("reclaimed from a dead listener", "dead", listener, "returned", got.Returned,
			"rescheduled", got.Scheduled, "failed", got.Failed, "dropped", got.Dropped)
	}
	if errors.Is(err, queue.ErrStatus) { // it lives after all
		return nil
	}
	return err
}
