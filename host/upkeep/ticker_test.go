package upkeep

import (
	"slices"
	"testing"
	"time"

	"github.com/quern-project/quern/plugins/cron"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

func TestPlanTicks(t *testing.T) {
	t.Parallel()
	begin := time.Unix(1_700_000_000, 0)
	for name, c := range map[string]struct {
		schedule queue.Schedule
		after    time.Duration
		fire     []time.Duration
		passed   listen.PassedTicks
		next     time.Duration
	}{
		"not due":        {queue.Schedule{Cron: "@every 10s"}, 9 * time.Second, nil, listen.PassedTicks{}, 10 * time.Second},
		"the first":      {queue.Schedule{Cron: "@every 10s"}, 10 * time.Second, []time.Duration{10 * time.Second}, listen.PassedTicks{}, 20 * time.Second},
		"skip, in time":  {queue.Schedule{Cron: "@every 10s", Missed: queue.MissedSkip}, 59 * time.Second, []time.Duration{50 * time.Second}, listen.PassedTicks{Missed: 4}, time.Minute},
		"skip, too late": {queue.Schedule{Cron: "@every 5m", Missed: queue.MissedSkip}, 362 * time.Second, nil, listen.PassedTicks{Missed: 1}, 10 * time.Minute},
		"after a year":   {queue.Schedule{Cron: "@every 1s"}, 365 * 24 * time.Hour, []time.Duration{365 * 24 * time.Hour}, listen.PassedTicks{Missed: walkTicks + 86_398}, 365*24*time.Hour + time.Second},
		// From a Tuesday to a Sunday: the last day has no tick.
		"after a hundred Mondays":     {queue.Schedule{Cron: "* * * * * MON", Timezone: "UTC"}, 705 * 24 * time.Hour, []time.Duration{(705*86_400 - 512_001) * time.Second}, listen.PassedTicks{Missed: walkTicks + 86_398}, (705*86_400 + 6_400) * time.Second},
		"an hour at noon":             {queue.Schedule{Cron: "0 12 * * *", Timezone: "Europe/Berlin"}, 24 * time.Hour, []time.Duration{46_000 * time.Second}, listen.PassedTicks{}, 132_400 * time.Second},
		"a later tick":                {queue.Schedule{Cron: "@every 10s", ScheduleState: queue.ScheduleState{Next: begin.Add(55 * time.Second)}}, time.Minute, []time.Duration{55 * time.Second}, listen.PassedTicks{}, 65 * time.Second},
		"skip, it waited":             {queue.Schedule{Cron: "@every 5m", Missed: queue.MissedSkip, ScheduleState: queue.ScheduleState{Waits: begin.Add(5 * time.Minute)}}, 662 * time.Second, []time.Duration{5 * time.Minute}, listen.PassedTicks{Missed: 1}, 15 * time.Minute},
		"window, waited":              {queue.Schedule{Cron: "@every 5m", Window: time.Minute, ScheduleState: queue.ScheduleState{Waits: begin.Add(5 * time.Minute)}}, 400 * time.Second, []time.Duration{5 * time.Minute}, listen.PassedTicks{}, 10 * time.Minute},
		"waited, overlaps":            {queue.Schedule{Cron: "@every 10s", ScheduleState: queue.ScheduleState{Waits: begin.Add(20 * time.Second)}}, 30 * time.Second, []time.Duration{30 * time.Second}, listen.PassedTicks{Skipped: 2}, 40 * time.Second},
		"waited, then none was there": {queue.Schedule{Cron: "@every 30s", ScheduleState: queue.ScheduleState{Waits: begin.Add(30 * time.Second)}}, 5 * time.Minute, []time.Duration{5 * time.Minute}, listen.PassedTicks{Skipped: 3, Missed: 6}, 330 * time.Second},
		"all, but too old":            {queue.Schedule{Cron: "@every 10s", Missed: queue.MissedAll, MaxMissed: 5, Window: 15 * time.Second}, time.Minute, []time.Duration{50 * time.Second, time.Minute}, listen.PassedTicks{Missed: 4}, 70 * time.Second},
	} {
		s := c.schedule
		s.Since = begin
		rule, err := cron.Parse(s.Cron, s.Timezone)
		if err != nil {
			t.Fatal(err)
		}
		p := planTicks(rule, &s, begin.Add(c.after))
		var fire []time.Duration
		for _, tick := range p.fire {
			fire = append(fire, tick.Sub(begin))
		}
		if !slices.Equal(fire, c.fire) || p.passed != c.passed || p.next.Sub(begin) != c.next {
			t.Errorf("%s: fires %v, passed over %+v, next %s", name, fire, p.passed, p.next.Sub(begin))
		}
	}
}
