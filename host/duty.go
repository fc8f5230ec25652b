package host

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// untilAsked is the wait of a duty that works only when asked.
	untilAsked = 1000 * time.Hour
	// dutyRetry is when a host tries again that did not get a duty of the fleet, up to half of it sooner or later.
	dutyRetry = 200 * time.Millisecond
	// yieldTimeout bounds giving back such a duty.
	yieldTimeout = time.Second
)

// errIdle is returned by work that found nothing to do.
var errIdle = errors.New("nothing to do")

// work is one run of a duty. The next run follows after wait, or sooner when asked, but not before pause is over. After an
// error it follows when pause is over, and a growing backoff; errIdle is no error.
type work func(ctx context.Context) (pause, wait time.Duration, err error)

// duty is recurring work of a session, never twice at a time. It has a goroutine only while it works: a host may have
// thousands of duties that wait, and a slow one delays no other.
type duty struct {
	health  *health
	op      string  // each run is reported to health as a call of op; "": the work reports its calls itself
	backoff backoff // only the run under way uses it

	mu       sync.Mutex  // guards the fields below
	timer    *time.Timer // nil before start
	next     time.Time   // when to work; zero: not planned
	earliest time.Time   // the end of the pause
	working  bool
	stopped  bool
	runs     sync.WaitGroup
}

// start begins after first. stop waits for the run under way: ctx must have ended.
func (d *duty) start(ctx context.Context, first time.Duration, run work) (stop func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.plan(time.Now().Add(first)) // unless somebody has asked for an earlier moment
	d.timer = time.AfterFunc(time.Until(d.next), func() { d.fire(ctx, run) })
	return func() {
		d.mu.Lock()
		d.stopped = true
		d.timer.Stop()
		d.mu.Unlock()
		d.runs.Wait()
	}
}

// ask makes the duty work as soon as it may.
func (d *duty) ask() { d.askBy(time.Now()) }

// askBy makes the duty work at a moment, unless it works before.
func (d *duty) askBy(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.plan(at)
}

// plan sets the timer. The caller holds mu.
func (d *duty) plan(at time.Time) {
	if !d.next.IsZero() && !at.Before(d.next) {
		return
	}
	d.next = at
	if d.timer != nil && !d.working && !d.stopped {
		d.timer.Reset(time.Until(d.begins()))
	}
}

// begins is when the work begins. The caller holds mu.
func (d *duty) begins() time.Time {
	if d.next.Before(d.earliest) {
		return d.earliest
	}
	return d.next
}

func (d *duty) fire(ctx context.Context, run work) {
	d.mu.Lock()
	if d.working || d.stopped || ctx.Err() != nil || time.Now().Before(d.begins()) {
		d.mu.Unlock() // the timer was reset while it fired
		return
	}
	d.working, d.next = true, time.Time{} // the run may not see what is asked for from now on
	d.runs.Add(1)
	d.mu.Unlock()
	defer d.runs.Done()
	pause, wait, err := run(ctx)
	now, report := time.Now(), d.op != ""
	switch {
	case errors.Is(err, errIdle):
	case err != nil:
		pause = max(pause, d.backoff.failed(now))
		wait = pause
		if report && ctx.Err() == nil {
			d.health.failed(d.op, "", err)
		}
	default:
		d.backoff.succeeded()
		if report {
			d.health.succeeded(d.op, "")
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.earliest = now.Add(pause)
	d.plan(now.Add(wait)) // unless somebody has asked for an earlier moment
	d.working = false
	if !d.stopped {
		d.timer.Reset(time.Until(d.begins()))
	}
}

// onDuty takes one step after the other, as long as there is more to do and for half of the term at most, if this host gets the
// duty of that name in the fleet. It then leaves it to others.
func (a *tenantAccess) onDuty(ctx context.Context, name string, term time.Duration, step func() (more bool, err error)) (got bool, err error) {
	if got, err = a.node.TakeDuty(ctx, name, term); err != nil || !got {
		return false, err
	}
	for over, more := time.Now().Add(term/2), true; more && err == nil && time.Now().Before(over); {
		more, err = step()
	}
	// Also when ctx has ended: else nobody has it until its term is over.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), yieldTimeout)
	defer cancel()
	return true, errors.Join(err, a.node.YieldDuty(ctx, name))
}

// dutyAgain is how long to wait for a duty that another host has.
func dutyAgain() time.Duration { return dutyRetry/2 + rand.N(dutyRetry) }
