package upkeep

import (
	"context"
	"errors"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

// Recovery takes the tasks of listeners whose lease has expired, and gives them back to their queues. It looks for such
// listeners as soon as the session's renewals are steady, when a lease ends, and once per lease length.
type Recovery struct {
	periodic.Duty
	*Config
	clock    clockWatch
	overlong overlongLeases
}

// clockWatch compares Redis's clock with this host's monotonic clock, which never jumps while the host runs.
type clockWatch struct{ redis, host time.Time }

// jumped reports whether Redis's clock was set, by more than bound, since the last call. redis and host are what the
// two clocks show now. After a jump, live listeners can seem dead until they have renewed their leases.
func (c *clockWatch) jumped(redis, host time.Time, bound time.Duration) bool {
	last := *c
	c.redis, c.host = redis, host
	return !last.host.IsZero() && (redis.Sub(last.redis)-host.Sub(last.host)).Abs() > bound
}

// overlongLeases has the leases from before Redis's clock was set back, each with the time at which this host first saw
// it.
type overlongLeases map[listen.OverlongLease]time.Time

// expired returns the leases that nobody has renewed for their whole length. That time begins when this host first saw
// the lease, but not before since, when the present row of this host's own renewals began. wait is the time until the
// next of the other leases expires; 0 if there is none.
func (f *overlongLeases) expired(leases []listen.OverlongLease,
	since, now time.Time,
) (expired []listen.OverlongLease, wait time.Duration) {
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
			expired = append(expired, lease)
		} else if wait == 0 || left < wait {
			wait = left
		}
	}
	*f = seen
	return expired, wait
}

const (
	// expirySlack is how long after the end of a lease recovery looks for dead listeners, because the clocks of Redis and
	// of this host drift apart a little.
	expirySlack = 20 * time.Millisecond
	// reclaimTerm is the term of the host that reclaims. It is short, because that host may die; two hosts that reclaim
	// at the same time do no harm.
	reclaimTerm = time.Second
	// unleasedTerm is how often the fleet looks for listeners that have no lease.
	unleasedTerm = time.Minute
)

// Begin records, when the session joins, the difference between the clocks of Redis and of this host, so that later
// jumps are noticed.
func (r *Recovery) Begin(ctx context.Context) error {
	clock, err := r.Client.Clock(ctx)
	if err == nil {
		r.clock = clockWatch{clock, time.Now()}
	}
	return err
}

// LeaseEnds plans a look for dead listeners, because a lease ends when left has passed.
func (r *Recovery) LeaseEnds(left time.Duration) { r.AskIn(max(0, left) + expirySlack) }

// RunOnce implements periodic.Worker.
func (r *Recovery) RunOnce(ctx context.Context) (pause, wait time.Duration, err error) {
	if now := time.Now(); !r.Steadiness.steady(now) {
		from, known := r.Steadiness.from()
		if !known || !from.After(now) {
			from = now.Add(r.Steadiness.lease / 3) // the next renewal
		}
		wait = from.Sub(now)
		return wait, wait, periodic.ErrIdle
	}
	return 0, periodic.Jitter(r.Steadiness.lease), r.look(ctx)
}

// look looks for dead listeners once, and reclaims from them if this host gets the term.
func (r *Recovery) look(ctx context.Context) error {
	clock, err := r.Client.Clock(ctx)
	if err != nil {
		return err
	}
	if r.clock.jumped(clock, time.Now(), r.Steadiness.lease/3) {
		r.Logger.Warn("the clock of redis was set: looking for dead listeners once all live ones have renewed their leases")
		r.Steadiness.reset()
		return nil
	}
	return errors.Join(r.condemn(ctx), r.runDead(ctx), r.runUnleased(ctx))
}

// runDead reclaims from the listeners whose lease has expired, if this host gets the term.
func (r *Recovery) runDead(ctx context.Context) error {
	dead, _, next, err := r.Fleet.Leases(ctx)
	if next > 0 {
		r.LeaseEnds(next)
	}
	if err != nil || len(dead) == 0 {
		return err
	}
	got, err := r.holdTerm(ctx, "reclaim", reclaimTerm,
		func() (more bool, err error) { return false, r.reclaimAll(ctx, dead) })
	if !got {
		r.AskIn(untilRetry()) // the host with the term may die
	}
	return err
}

// runUnleased reclaims from listeners that are registered for queues but have no lease. Finding them takes a look at
// every queue. Therefore the host keeps the term, so that the fleet looks only once in unleasedTerm.
func (r *Recovery) runUnleased(ctx context.Context) error {
	got, err := r.Node.TakeDuty(ctx, "unleased", unleasedTerm)
	if err != nil || !got {
		return err
	}
	unleased, err := r.Fleet.Unleased(ctx)
	return errors.Join(err, r.reclaimAll(ctx, unleased))
}

// reclaimAll reclaims from dead listeners. A damaged queue of one listener does not stop reclaiming from the others.
func (r *Recovery) reclaimAll(ctx context.Context, dead []string) (err error) {
	for _, listener := range dead {
		if listener == r.Node.ID() {
			continue // this host's own lease: its renewals will notice that it has expired
		}
		failed := r.reclaim(ctx, listener)
		err = errors.Join(err, failed)
		if ctx.Err() != nil || queue.IsUnavailable(failed) {
			break
		}
	}
	return err
}

// condemn ends the leases that began before Redis's clock was set back and that nobody renews.
func (r *Recovery) condemn(ctx context.Context) error {
	since, known := r.Steadiness.from()
	if !known {
		return nil
	}
	leases, err := r.Fleet.OverlongLeases(ctx)
	if err != nil {
		return err
	}
	expired, wait := r.overlong.expired(leases, since.Add(-r.Steadiness.lease), time.Now())
	if wait > 0 {
		r.LeaseEnds(wait)
	}
	for _, lease := range expired {
		ended, err := r.Fleet.EndLease(ctx, lease)
		if err != nil {
			return err
		}
		if ended {
			r.Logger.Warn("a listener did not renew its lease since the clock of redis was set back: taking it for dead",
				"dead", lease.Listener)
		}
	}
	return nil
}

func (r *Recovery) reclaim(ctx context.Context, listener string) error {
	if !r.Steadiness.steady(time.Now()) {
		return nil
	}
	got, err := r.Fleet.Reclaim(ctx, listener, r.MaxCrashes)
	tenant := r.Client.Tenant()
	r.Metrics.TasksReclaimed(tenant, "released", got.Returned)
	r.Metrics.TasksReclaimed(tenant, "rescheduled", got.Scheduled)
	r.Metrics.TasksReclaimed(tenant, "failed", got.Failed)
	r.Health.NoDeadLetter(opReclaim, "", got.DeadError)
	if got.Sum() > 0 && r.Reclaimed != nil {
		r.Reclaimed()
	}
	if got.Sum() > 0 || err == nil {
		r.Logger.Warn("reclaimed from a dead listener", "dead", listener, "returned", got.Returned,
			"rescheduled", got.Scheduled, "failed", got.Failed, "dropped", got.Dropped)
	}
	if errors.Is(err, queue.ErrStatus) { // the listener is alive after all
		return nil
	}
	return err
}
