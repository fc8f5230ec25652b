package queue

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// ScheduleHeads lists the tenant's schedules, by ID, without their Parameters and Options.
func (c *Client) ScheduleHeads(ctx context.Context) ([]*Schedule, error) {
	ids, err := c.store.scheduleIDs(ctx, MaxSchedules)
	if err != nil {
		return nil, err
	}
	fields := []string{
		"owner", "queue", "cron", "timezone", "missed", "max_missed", "window", "overlap", "paused", "created", "updated", "since", "next",
		"last", "last_id", "fired", "skipped", "missed_ticks", "absent", "waits", "revision",
	}
	cmds, err := pipelined(ctx, c.store, ids, func(p redis.Pipeliner, id string) *redis.SliceCmd {
		return p.HMGet(ctx, c.store.keys.schedule(id), fields...)
	})
	var heads []*Schedule
	for i, cmd := range cmds {
		if hash := hashOf(fields, cmd.Val()); len(hash) > 0 {
			heads = append(heads, newSchedule(ids[i], hash))
		}
	}
	return heads, wrap("read schedules", err)
}
