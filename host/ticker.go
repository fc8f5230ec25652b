package host

import (
	"context"
	"fmt"
	"time"

	"github.com/quern-project/quern/sdk/queue/listen"

	"github.com/quern-project/quern/plugins/cron"
	"github.com/quern-project/quern/sdk/queue"
)

const (
	// tickTerm is how long a host may have the duty to fire ticks before another one may.
	tickTerm = 5 * time.Second
	// dueSchedules is how many schedules are read at a time.
	dueSchedules = 100
	// unreadablePause is after how long hosts look again at a schedule that one of them cannot read.
	unreadablePause = time.Minute
	// punctual is how late the last tick may be fired that a schedule with missed: skip has not missed: the time of a failover.
	punctual = time.Minute
	// walkTicks is how many due ticks are counted one by one.
	walkTicks = 100_000
)

// ticker enqueues the tasks of schedules. Each host knows when the next tick is due, and one of them fires it; if two do, the
// script lets one succeed. What it decides by is in Redis, and so is the clock: neither a start nor a host's clock counts.
type ticker struct {
	duty
	access   *tenantAccess
	metrics  ticksObserver
	interval time.Duration
}

// ticksObserver counts what became of ticks.
type ticksObserver interface {
	ScheduleTicks(tenant, result string, n int)
	ScheduleLate(tenant string, late time.Duration)
}

// runOnce fires what is due, if this host gets the duty, and waits for the next tick.
func (t *ticker) runOnce(ctx context.Context) (pause, wait time.Duration, err error) {
	due, err := listen.NewFleet(t.access.client).DueSchedules(ctx, dueSchedules)
	if err != nil || len(due.Schedules) == 0 {
		return pollPause, t.until(due), err
	}
	got, err := t.access.onDuty(ctx, "ticks", tickTerm, func() (more bool, err error) {
		for _, s := range due.Schedules {
			if err = t.look(ctx, s, due.Clock); err != nil {
				return false, err
			}
		}
		due, err = listen.NewFleet(t.access.client).DueSchedules(ctx, dueSchedules)
		return len(due.Schedules) > 0, err
	})
	if err == nil && !got {
		wait = dutyAgain()
		return wait, wait, nil
	}
	return pollPause, t.until(due), err
}

// until is how long to wait for the next tick. A message on the control channel tells of a schedule that is new or changed; it
// may be lost.
func (t *ticker) until(due listen.Due) time.Duration {
	switch wait := around(t.interval); {
	case len(due.Schedules) > 0:
		return 0
	case due.Next.IsZero():
		return wait
	default:
		return min(wait, max(0, due.Next.Sub(due.Clock)))
	}
}

// look fires the ticks of one schedule that are due when Redis's clock shows now. The error says that Redis is away.
func (t *ticker) look(ctx context.Context, s *queue.Schedule, now time.Time) error {
	if !s.Absent.IsZero() { // its ticks wait for the plugin
		return t.postpone(ctx, s)
	}
	err := t.fire(ctx, s, now)
	switch {
	case err == nil:
		t.health.succeeded(opTick, s.Queue)
		return nil
	case ctx.Err() != nil || queue.IsUnavailable(err):
		return err
	}
	t.health.failed(opTick, s.Queue, err) // the others are fired all the same
	return t.postpone(ctx, s)
}

func (t *ticker) postpone(ctx context.Context, s *queue.Schedule) error {
	if err := listen.NewFleet(t.access.client).PostponeTick(ctx, s, unreadablePause); queue.IsUnavailable(err) {
		return err
	}
	return nil
}

func (t *ticker) fire(ctx context.Context, s *queue.Schedule, now time.Time) error {
	rule, err := cron.Parse(s.Cron, s.Timezone)
	if err != nil {
		return fmt.Errorf("schedule %s: %w", s.ID, err)
	}
	tenant, fleet := t.access.client.Tenant(), listen.NewFleet(t.access.client)
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
			t.metrics.ScheduleLate(tenant, now.Sub(tick))
			t.access.logger.Debug("fired a schedule", "schedule", s.ID, "task_id", listen.TickID(s.ID, tick), "late", now.Sub(tick))
		case listen.TickSkipped:
			t.access.logger.Debug("passed over a tick: the task of the one before has not finished", "schedule", s.ID, "tick", tick.UTC(), "task_id", s.LastID)
		case listen.TickFull:
			t.access.logger.Warn("a tick waits, because its queue is full", "schedule", s.ID, "queue", s.Queue)
			return nil
		default: // it waits for the task before, or another host was first
			return nil
		}
		t.metrics.ScheduleTicks(tenant, string(end), 1)
		t.count(s, passed)
	}
	return nil
}

// count counts ticks that were passed over.
func (t *ticker) count(s *queue.Schedule, passed listen.PassedTicks) {
	tenant := t.access.client.Tenant()
	t.metrics.ScheduleTicks(tenant, "skipped", passed.Skipped)
	t.metrics.ScheduleTicks(tenant, "missed", passed.Missed)
	if passed.Missed > 0 {
		t.access.logger.Warn("passed over ticks that came while no host was there", "schedule", s.ID, "ticks", passed.Missed)
	}
}

// plan is what a schedule has to do.
type plan struct {
	fire   []time.Time        // ticks to fire now, in order
	passed listen.PassedTicks // before these; at least so many, if there are very many
	next   time.Time          // the first tick that is to come
}

// planTicks tells what to do with the ticks of a schedule that are due now, by Redis's clock: the last one is fired, and those
// before it are passed over. One that waits is never too old.
func planTicks(rule *cron.Rule, s *queue.Schedule, now time.Time) plan {
	most := 1
	if s.Missed == queue.MissedAll {
		most = max(1, s.MaxMissed)
	}
	var p plan
	var seen time.Time // until then a host was there, and let a tick wait
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
			const day = 24 * time.Hour
			if later := rule.Skip(tick, now.Add(-day)); later.After(tick) {
				tick = later
			}
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
		p.fire = []time.Time{s.Waits} // it was not missed: a host was there
	}
	for _, tick := range p.fire {
		if !tick.After(seen) {
			p.passed.Skipped--
		}
	}
	p.passed.Missed = due - len(p.fire) - p.passed.Skipped
	return p
}

// NextTicks are the next ticks of a schedule, in its time zone; none if it is paused, or its plugin absent. The error says why its expression, or its
// time zone, cannot be read.
func NextTicks(s *queue.Schedule, count int) (ticks []time.Time, err error) {
	rule, err := cron.Parse(s.Cron, s.Timezone)
	if err != nil || !s.Paused.IsZero() || !s.Absent.IsZero() {
		return nil, err
	}
	zone, err := cron.Zone(s.Timezone)
	if err != nil {
		return nil, err
	}
	tick := s.Next
	if tick.IsZero() {
		tick = rule.Next(s.Since)
	}
	for ; len(ticks) < count && !tick.IsZero(); tick = rule.Next(tick) {
		ticks = append(ticks, tick.In(zone))
	}
	return ticks, nil
}
