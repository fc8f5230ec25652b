package queue

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
)

// SchedulePage lists schedules by ID, those behind the ID after: up to limit of them (at least 1), and fewer if these are large. next is
// where the next page begins, "" if there is none.
func (c *Client) SchedulePage(ctx context.Context, after string, limit int) (page []*Schedule, next string, err error) {
	ids, err := c.scheduleIDs(ctx)
	if err != nil {
		return nil, "", err
	}
	from, found := slices.BinarySearch(ids, after)
	if found {
		from++
	}
	ids = ids[from:]
	some, err := c.scheduleBlock(ctx, ids[:min(max(1, limit), len(ids))])
	if err != nil {
		return nil, "", err
	}
	if len(some) < len(ids) {
		next = some[len(some)-1]
	}
	page, err = c.readSchedules(ctx, some)
	return page, next, err
}

// ScheduleHeads lists the tenant's schedules, by ID, without their Parameters and Options.
func (c *Client) ScheduleHeads(ctx context.Context) ([]*Schedule, error) {
	ids, err := c.scheduleIDs(ctx)
	if err != nil {
		return nil, err
	}
	fields := []string{
		"owner", "queue", "cron", "timezone", "missed", "max_missed", "window", "overlap", "paused", "created", "updated", "since", "next",
		"last", "last_id", "fired", "skipped", "missed_ticks", "absent", "waits", "revision",
	}
	cmds, err := pipelined(ctx, &c.store, ids, func(p redis.Pipeliner, id string) *redis.SliceCmd {
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
