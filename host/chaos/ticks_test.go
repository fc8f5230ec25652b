package chaos

import (
	"fmt"
	"slices"
	"time"

	"github.com/quern-project/quern/sdk/queue"
)

// ticking is a schedule with a tick each second, and its queue, which nobody serves.
const ticking = "ticking"

func (f *fleet) schedule() {
	f.t.Helper()
	s := queue.Schedule{ID: ticking, Queue: ticking, Cron: "* * * * * *", Missed: queue.MissedAll, MaxMissed: queue.MaxMissed}
	if _, err := f.client.PutSchedule(f.ctx, s, false); err != nil {
		f.t.Fatal(err)
	}
}

// auditTicks: whatever died, there is one task for each second in the queue of the schedule, and none twice. Then it removes all
// of it.
func (f *fleet) auditTicks(took time.Duration) {
	f.t.Helper()
	f.eventually("ticks are fired again", func() bool {
		s, err := f.client.Schedule(f.ctx, ticking)
		now, failed := f.client.Clock(f.ctx)
		return err == nil && failed == nil && s.Fired > 0 && now.Sub(s.Last) < 2*time.Second
	})
	if err := f.client.PauseSchedule(f.ctx, ticking); err != nil {
		f.t.Fatal(err)
	}
	s, err := f.client.Schedule(f.ctx, ticking)
	if err != nil {
		f.t.Fatal(err)
	}
	var seconds []int64
	for _, id := range f.rdb.LRange(f.ctx, key("pending_tasks", ticking), 0, -1).Val() {
		var second int64
		if _, err := fmt.Sscanf(id, ticking+"@%d", &second); err == nil {
			seconds = append(seconds, second)
		}
	}
	slices.Sort(seconds)
	count := int64(len(seconds))
	if count < max(1, int64(took.Seconds())-1) || count != s.Fired || seconds[count-1]-seconds[0] != count-1 || s.MissedTicks != 0 {
		f.t.Errorf("in %s there were %d ticks, %d fired, %d missed: %v", took, count, s.Fired, s.MissedTicks, seconds)
	}
	f.t.Logf("ticks     %d, one each second", count)
	keys, err := f.rdb.Keys(f.ctx, key("*"+ticking+"*")).Result()
	if err == nil {
		err = f.rdb.Del(f.ctx, append(keys, key("ticks"))...).Err()
	}
	if err == nil {
		err = f.rdb.ZRem(f.ctx, key("queues"), ticking).Err()
	}
	if err != nil {
		f.t.Fatal(err)
	}
}
