package host

import (
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
