package periodic

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// UntilAsked is the wait of a duty that works only when asked.
const UntilAsked = 1000 * time.Hour

// ErrIdle is returned by a run that found nothing to do.
var ErrIdle = errors.New("nothing to do")

// Reports records which calls to Redis succeed. queue is "" for a call that is about no single queue.
type Reports interface {
	Failed(op, queue string, err error)
	Succeeded(op, queue string)
	// FailedQuietly records a failure that only delays work.
	FailedQuietly(op string, err error)
}

// Work is the function that a Duty repeats. Worker.RunOnce describes its results.
type Work func(context.Context) (pause, wait time.Duration, err error)

// Worker does the work of a Duty, which it embeds.
type Worker interface {
	// RunOnce works once. The next run follows after wait, or sooner when asked, but never before pause is over. After an
	// error, the next run follows when pause and the Duty's growing Pause are both over. ErrIdle counts neither as an
	// error nor as a success.
	RunOnce(ctx context.Context) (pause, wait time.Duration, err error)
	// Repeat is the method of the embedded Duty.
	Repeat(ctx context.Context, run Work) (stop func())
}

// Duty is recurring work that never runs twice at a time. It has a goroutine only while it works: a host can have
// thousands of duties that wait, and a slow one does not delay the others.
type Duty struct {
	Reports Reports
	// Op is the name under which each run is reported; "" if the work reports its calls itself.
	Op string
	// First is the time from Start to the first run.
	First time.Duration

	failures Pause // used only by the run under way, so no mutex guards it

	mu       sync.Mutex  // guards the fields below
	timer    *time.Timer // nil before Start
	next     time.Time   // when to work next; zero if not planned
	earliest time.Time   // when the pause of the last run ends
	working  bool
	stopped  bool
	runs     sync.WaitGroup
}

// Start starts duties. stop waits for the runs under way; call it only after ctx has ended.
func Start(ctx context.Context, workers ...Worker) (stop func()) {
	stops := make([]func(), len(workers))
	for i, w := range workers {
		stops[i] = w.Repeat(ctx, w.RunOnce)
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// Repeat calls run again and again until ctx ends. stop waits for the call under way. Start calls Repeat.
func (d *Duty) Repeat(ctx context.Context, run Work) (stop func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = false               // stopped is true if the duty was started and stopped before
	d.plan(time.Now().Add(d.First)) // AskIn may have planned an earlier run
	d.timer = time.AfterFunc(time.Until(d.next), func() { d.fire(ctx, run) })
	return func() {
		d.mu.Lock()
		d.stopped = true
		d.timer.Stop()
		d.mu.Unlock()
		d.runs.Wait()
	}
}

// Ask makes the duty work as soon as its pause allows.
func (d *Duty) Ask() { d.AskIn(0) }

// AskIn makes the duty work after wait, unless it is planned to work sooner.
func (d *Duty) AskIn(wait time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.plan(time.Now().Add(wait))
}

// plan plans the next run for the time at, unless an earlier run is planned. The caller holds mu.
func (d *Duty) plan(at time.Time) {
	if !d.next.IsZero() && !at.Before(d.next) {
		return
	}
	d.next = at
	if d.timer != nil && !d.working && !d.stopped {
		d.timer.Reset(time.Until(d.begins()))
	}
}

// begins returns when the planned run can begin. The caller holds mu.
func (d *Duty) begins() time.Time {
	if d.next.Before(d.earliest) {
		return d.earliest
	}
	return d.next
}

func (d *Duty) fire(ctx context.Context, run Work) {
	d.mu.Lock()
	if d.working || d.stopped || ctx.Err() != nil || time.Now().Before(d.begins()) {
		d.mu.Unlock() // the timer was reset while it fired
		return
	}
	d.working, d.next = true, time.Time{} // requests from now on cause another run, because this one may miss them
	d.runs.Add(1)
	d.mu.Unlock()
	defer d.runs.Done()
	pause, wait, err := run(ctx)
	now, report := time.Now(), d.Op != ""
	switch {
	case errors.Is(err, ErrIdle):
	case err != nil:
		pause = max(pause, d.failures.Failed(now))
		wait = pause
		if report && ctx.Err() == nil {
			d.Reports.Failed(d.Op, "", err)
		}
	default:
		d.failures.Succeeded()
		if report {
			d.Reports.Succeeded(d.Op, "")
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.earliest = now.Add(pause)
	d.plan(now.Add(wait)) // AskIn may have planned an earlier run
	d.working = false
	if !d.stopped {
		d.timer.Reset(time.Until(d.begins()))
	}
}

// Jitter returns d ± 20 %, so that the hosts of a fleet do not work in step.
func Jitter(d time.Duration) time.Duration { return d*4/5 + rand.N(d*2/5+1) }
