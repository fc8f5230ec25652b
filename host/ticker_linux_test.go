package host

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
	"github.com/quern-project/quern/sdk/queue/queuetest"
)

func (n *node) schedule(s queue.Schedule) {
	n.t.Helper()
	if _, err := n.client.PutSchedule(n.ctx, s, false); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) scheduleState(id string) queue.ScheduleState {
	n.t.Helper()
	s, err := n.client.Schedule(n.ctx, id)
	if err != nil {
		n.t.Fatal(err)
	}
	return s.ScheduleState
}

// ticks are the seconds of the tasks that a schedule has in its queue, in order.
func (n *node) ticks(id, queueName string) (seconds []int64) {
	n.t.Helper()
	tasks, err := manage.New(n.client).Queue(queueName).List(n.ctx, manage.ListOptions{Limit: 1000})
	if err != nil {
		n.t.Fatal(err)
	}
	for _, task := range tasks {
		var second int64
		if _, err := fmt.Sscanf(task.ID, id+"@%d", &second); err == nil {
			seconds = append(seconds, second)
		}
	}
	slices.Sort(seconds)
	return seconds
}

// A fleet fires each tick once and leaves none out, while its hosts come and go, and whatever their clocks show.
func TestTicksOfAFleet(t *testing.T) {
	t.Parallel()
	server, _ := queuetest.StartAhead(t, time.Hour)
	common := settings{server: server, lease: time.Second, tenants: []string{queuetest.Tenant()}}
	a, b := start(t, common), start(t, common)
	a.schedule(queue.Schedule{ID: "s", Queue: "q", Cron: "* * * * * *", Missed: queue.MissedAll})
	fired := func(n int64) {
		a.t.Helper()
		a.eventually(fmt.Sprintf("%d ticks", n), func() bool { return a.scheduleState("s").Fired >= n })
	}
	fired(2)
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	fired(4)
	start(t, common)
	if err := b.stop(); err != nil {
		t.Fatal(err)
	}
	fired(6)
	if err := a.client.PauseSchedule(a.ctx, "s"); err != nil {
		t.Fatal(err)
	}
	ticks, state := a.ticks("s", "q"), a.scheduleState("s")
	if int64(len(ticks)) != state.Fired || ticks[len(ticks)-1]-ticks[0] != state.Fired-1 || state.MissedTicks != 0 {
		t.Errorf("ticks %v, %d fired, %d missed", ticks, state.Fired, state.MissedTicks)
	}
	first := ticks[0] - time.Now().Unix()
	if first < 3000 {
		t.Errorf("the first tick is %d seconds from here: by the clock of a host", first)
	}
}

// A fleet that slept for three hours does with the ticks of that time what each schedule asks for.
func TestFleetThatSlept(t *testing.T) {
	t.Parallel()
	server, clock := queuetest.StartAhead(t, 0)
	common := settings{server: server, lease: time.Second, tenants: []string{queuetest.Tenant()}}
	n := start(t, common)
	schedules := map[string]struct {
		schedule              queue.Schedule
		fired, missed, failed int64
	}{
		"skip":   {queue.Schedule{Missed: queue.MissedSkip}, 0, 25, 0},
		"one":    {queue.Schedule{}, 1, 24, 0},
		"all":    {queue.Schedule{Missed: queue.MissedAll, MaxMissed: 3}, 3, 22, 0},
		"every":  {queue.Schedule{Missed: queue.MissedAll}, 25, 0, 0},
		"window": {queue.Schedule{Missed: queue.MissedAll, Window: 15 * time.Minute}, 2, 23, 0},
		"late":   {queue.Schedule{Window: time.Minute}, 0, 25, 0},
		"apart":  {queue.Schedule{Missed: queue.MissedAll, Overlap: queue.OverlapSkip}, 1, 0, 24},
		"queue":  {queue.Schedule{Missed: queue.MissedAll, Overlap: queue.OverlapQueue}, 1, 0, 0}, // nobody ends its first task
	}
	for id, c := range schedules {
		c.schedule.ID, c.schedule.Queue, c.schedule.Cron = id, id, "@every 7m"
		n.schedule(c.schedule)
	}
	for id := range schedules {
		n.eventually("planned "+id, func() bool { return !n.scheduleState(id).Next.IsZero() })
	}
	if err := n.stop(); err != nil {
		t.Fatal(err)
	}
	clock.Set(t, 3*time.Hour)
	n = start(t, common)
	for id, c := range schedules {
		n.eventually(id+" is done", func() bool {
			s := n.scheduleState(id)
			return s.Fired+s.MissedTicks+s.Skipped >= c.fired+c.missed+c.failed
		})
		s := n.scheduleState(id)
		ticks := n.ticks(id, id)
		if s.Fired != c.fired || s.MissedTicks != c.missed || s.Skipped != c.failed || int64(len(ticks)) != c.fired {
			t.Errorf("%s: %d fired, %d missed, %d skipped, %d tasks", id, s.Fired, s.MissedTicks, s.Skipped, len(ticks))
		}
		since := s.Since.Truncate(time.Second).Unix()
		if c.fired > 0 && id != "queue" && id != "apart" && ticks[len(ticks)-1] != since+25*7*60 {
			t.Errorf("%s: the last tick is %d s after the beginning", id, ticks[len(ticks)-1]-since)
		}
		if id != "queue" && s.Next.Unix() != since+26*7*60 {
			t.Errorf("%s: the next tick is %s", id, s.Next)
		}
	}
	if missed := n.metric("quern_schedule_ticks_total", "result", "missed"); missed != 25+24+22+23+25 {
		t.Errorf("%v ticks are counted as missed", missed)
	}
}

// A schedule that is made, changed or resumed is followed at once, and not with the next poll.
func TestScheduleIsFollowedAtOnce(t *testing.T) {
	t.Parallel()
	n := start(t, settings{Config: Config{Poll: never}})
	n.eventually("joined", func() bool { return n.log.has("joined") })
	control := n.tenant + "_control"
	n.eventually("subscribed", func() bool { return n.rdb.PubSubNumSub(n.ctx, control).Val()[control] == 1 })
	n.schedule(queue.Schedule{ID: "s", Queue: "q", Cron: "@daily"})
	n.eventually("planned", func() bool { return !n.scheduleState("s").Next.IsZero() })
	n.schedule(queue.Schedule{ID: "s", Queue: "q", Cron: "* * * * * *"})
	n.eventually("fired", func() bool { return n.scheduleState("s").Fired > 0 })
	if err := n.client.PauseSchedule(n.ctx, "s"); err != nil {
		t.Fatal(err)
	}
	before := n.scheduleState("s").Fired
	if err := n.client.ResumeSchedule(n.ctx, "s"); err != nil {
		t.Fatal(err)
	}
	n.eventually("fired again", func() bool { return n.scheduleState("s").Fired > before })
}

// A schedule that a host cannot read, or whose queue is damaged, keeps no other from being fired.
func TestScheduleThatCannotBeFired(t *testing.T) {
	t.Parallel()
	n := start(t, settings{})
	if err := n.rdb.Set(n.ctx, n.tenant+"_pending_tasks_damaged", "x", 0).Err(); err != nil {
		t.Fatal(err)
	}
	n.schedule(queue.Schedule{ID: "a", Queue: "qa", Cron: "of a later version"})
	n.schedule(queue.Schedule{ID: "b", Queue: "damaged", Cron: "* * * * * *"})
	n.schedule(queue.Schedule{ID: "c", Queue: "qc", Cron: "* * * * * *"})
	n.eventually("fired", func() bool { return n.scheduleState("c").Fired > 1 })
	n.eventually("told", func() bool {
		return n.log.has("op=tick", "queue=qa", "of a later version") && n.log.has("op=tick", "queue=damaged", "WRONGTYPE")
	})
}
