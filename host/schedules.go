package host

import (
	"time"

	"github.com/quern-project/quern/plugins/cron"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/sdk/queue"
)

// ScheduleOf converts a schedule of a manifest, or of a file of schedules.
func ScheduleOf(s manifest.Schedule) queue.Schedule {
	return queue.Schedule{
		ID: s.Name, Queue: s.Queue, Cron: s.Cron, Timezone: s.Timezone, Parameters: s.Parameters,
		Options: queue.Options{Priority: s.Priority, Timeout: s.Timeout, Retry: queue.Retry{MaxAttempts: s.MaxAttempts, MaxAge: s.MaxAge}},
		Missed:  queue.Missed(s.Missed), MaxMissed: s.MaxMissed, Window: s.Window, Overlap: queue.Overlap(s.Overlap),
	}
}

// NextTicks lists the next ticks of a schedule, in its time zone; none if it is paused, or its plugin absent. The error
// says why its expression, or its time zone, cannot be read.
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
