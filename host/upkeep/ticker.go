package upkeep

import (
	"context"
	"fmt"
	"time"

	"github.com/quern-project/quern/plugins/cron"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

const (
	// tickTerm is how long one host has the duty of firing ticks, unless it renews it.
	tickTerm = 5 * time.Second
	// tickPause is the minimum time between two runs, however many ticks fall due.
	tickPause = 20 * time.Millisecond
	// dueSchedules is the maximum number of schedules that are read at a time.
	dueSchedules = 100
	// unreadablePause is how long all hosts leave a schedule alone after a host could not fire it, or while its plugin is
	// absent.
	unreadablePause = time.Minute
	// punctual is how late a tick of a schedule with `missed: skip` can still be fired. It is long enough for a failover.
	punctual = time.Minute
	// walkTicks is how many due ticks of a schedule are counted one by one. If there are more, only those of the last day,
	// or of the last days with ticks, are still counted.
	walkTicks = 100_000
)

// Ticker enqueues the tasks of schedules. Each host knows when the next tick is due, and one of them fires it. If two
// hosts try, the script lets one succeed. A Ticker decides only by what is in Redis and by Redis's clock. The time at
// which a host started, and the host's own clock, do not matter.
type Ticker struct {
	periodic.Duty
	*Config
}

// RunOnce fires the due ticks, if this host gets the term, and waits for the next tick.
func (t *Ticker) RunOnce(ctx context.Context) (pause, wait time.Duration, err error) {
	due, err := t.Fleet.DueSchedules(ctx, dueSchedules)
	if err != nil || len(due.Schedules) == 0 {
		return tickPause, t.until(due), err
	}
	got, err := t.holdTerm(ctx, "ticks", tickTerm, func() (more bool, err error) {
		for _, s := range due.Schedules {
			if err = t.Look(ctx, s, due.Clock); err != nil {
				return false, err
			}
		}
		due, err = t.Fleet.DueSchedules(ctx, dueSchedules)
		return len(due.Schedules) > 0, err
	})
	if err == nil && !got {
		wait = untilRetry()
		return wait, wait, nil
	}
	return tickPause, t.until(due), err
}

// until returns how long to wait for the next tick: at most Interval ± 20 %. A message on the control channel announces
// new and changed schedules, but may be lost.
func (t *Ticker) until(due listen.Due) time.Duration {
	switch wait := periodic.Jitter(t.Interval); {
	case len(due.Schedules) > 0:
		return 0
	case due.Next.IsZero():
		return wait
	default:
		return min(wait, max(0, due.Next.Sub(due.Clock)))
	}
}

// Look fires the due ticks of one schedule; now is Redis's time. It returns an error only if Redis is away or ctx has
// ended.
func (t *Ticker) Look(ctx context.Context, s *queue.Schedule, now time.Time) error {
	if !s.Absent.IsZero() { // its ticks wait for the plugin
		return t.postpone(ctx, s)
	}
	err := t.fire(ctx, s, now)
	switch {
	case err == nil:
		t.Health.Succeeded(opTick, s.Queue)
		return nil
	case ctx.Err() != nil || queue.IsUnavailable(err):
		return err
	}
	t.Health.Failed(opTick, s.Queue, err) // other schedules are fired all the same
	return t.postpone(ctx, s)
}

func (t *Ticker) postpone(ctx context.Context, s *queue.Schedule) error {
	if err := t.Fleet.PostponeTick(ctx, s, unreadablePause); queue.IsUnavailable(err) {
		return err
	}
	return nil
}

func (t *Ticker) fire(ctx context.Context, s *queue.Schedule, now time.Time) error {
	rule, err := cron.Parse(s.Cron, s.Timezone)
	if err != nil {
		return fmt.Errorf("schedule %s: %w", s.ID, err)
	}
	tenant, fleet := t.Client.Tenant(), t.Fleet
	p := planTicks(rule, s, now)
	if len(p.fire) == 0 {
		end, err := fleet.Tick(ctx, s, time.Time{}, p.passed, p.next)
		if err == nil && end == listen.TickPlanned {
			t.count(s, p.passed)
		}
		return err
	}
	for i, tick := range p.fire {
		next, passed := p.next, listen.PassedTicks{}
		if i+1 < len(p.fire) {
			next = p.fire[i+1]
		}
		if i == 0 {
			passed = p.passed
		}
		end, err := fleet.Tick(ctx, s, tick, passed, next)
		if err != nil {
			return err
		}
		switch end {
		case listen.TickFired:
			t.Metrics.ScheduleLate(tenant, now.Sub(tick))
			t.Logger.Debug("fired a schedule", "schedule", s.ID, "task_id", listen.TickID(s.ID, tick), "late", now.Sub(tick))
		case listen.TickSkipped:
			t.Logger.Debug("skipped a tick: the task of the tick before has not finished", "schedule", s.ID, "tick", tick.UTC(),
				"task_id", s.LastID)
		case listen.TickFull:
			t.Logger.Warn("a tick waits, because its queue is full", "schedule", s.ID, "queue", s.Queue)
			return nil
		default: // the tick waits for the task of the tick before, or another host was first
			return nil
		}
		t.Metrics.ScheduleTicks(tenant, string(end), 1)
		t.count(s, passed)
	}
	return nil
}

// count counts and logs ticks that were passed over.
func (t *Ticker) count(s *queue.Schedule, passed listen.PassedTicks) {
	tenant := t.Client.Tenant()
	t.Metrics.ScheduleTicks(tenant, "skipped", passed.Skipped)
	t.Metrics.ScheduleTicks(tenant, "missed", passed.Missed)
	if passed.Missed > 0 {
		t.Logger.Warn("passed over ticks that came while no host was there", "schedule", s.ID, "ticks", passed.Missed)
	}
}

// tickPlan says what to do with the ticks of a schedule now.
type tickPlan struct {
	fire   []time.Time        // ticks to fire now, in order
	passed listen.PassedTicks // the ticks to pass over; a lower bound if there are very many
	next   time.Time          // the first tick after now
}

// skipTo returns the first tick of the last day before now in the series of tick. If that day has no tick, it returns
// one of the last days that have some.
func skipTo(rule *cron.Rule, tick, now time.Time) time.Time {
	for back := 24 * time.Hour; ; back *= 2 {
		if later := rule.Skip(tick, now.Add(-back)); !later.IsZero() && !later.After(now) {
			return later
		}
	}
}

// planTicks decides which of a schedule's due ticks to fire; now is Redis's time. It fires the last due tick or, with
// `missed: all`, the last MaxMissed ticks. Earlier ticks are passed over, and so are ticks that are too old. A tick
// that a host has let wait is never too old.
func planTicks(rule *cron.Rule, s *queue.Schedule, now time.Time) tickPlan {
	most := 1
	if s.Missed == queue.MissedAll {
		most = max(1, s.MaxMissed)
	}
	var p tickPlan
	var seen time.Time // ticks up to this time were not missed: a host was there and let a tick wait
	if !s.Waits.IsZero() {
		seen = s.Waits.Add(punctual)
	}
	due, tick := 0, s.Next
	if tick.IsZero() {
		tick = rule.Next(s.Since)
	}
	for ; !tick.IsZero() && !tick.After(now); tick = rule.Next(tick) {
		if !tick.After(seen) {
			p.passed.Skipped++
		}
		if due++; due == walkTicks {
			tick = skipTo(rule, tick, now)
		}
		p.fire = append(p.fire, tick)
		if len(p.fire) > most {
			p.fire = p.fire[1:]
		}
	}
	p.next = tick
	for len(p.fire) > 0 && s.Window > 0 && now.Sub(p.fire[0]) > s.Window {
		p.fire = p.fire[1:]
	}
	if len(p.fire) > 0 && s.Missed == queue.MissedSkip && now.Sub(p.fire[0]) > punctual {
		p.fire = nil
	}
	if due > 0 && len(p.fire) == 0 && !s.Waits.IsZero() && !s.Waits.After(now) {
		p.fire = []time.Time{s.Waits} // this tick was not missed: a host was there and let it wait
	}
	for _, tick := range p.fire {
		if !tick.After(seen) {
			p.passed.Skipped--
		}
	}
	p.passed.Missed = due - len(p.fire) - p.passed.Skipped
	return p
}
