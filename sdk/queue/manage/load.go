package manage

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// Load is the work that waits or runs in a queue. Autoscalers derive the number of hosts from it.
type Load struct {
	// Waiting is the number of pending tasks.
	Waiting int64
	// Due is the number of scheduled tasks whose time has come, and of schedules whose tick has: hosts make both pending,
	// so they only grow while no host runs. At most 1,000 of each are seen.
	Due int64
	// Running is the number of reserved and started tasks. It includes those of a host that died, which another host must
	// take over.
	Running int64
}

// seenDue bounds how many due tasks, and due ticks, are read.
const seenDue = 1000

// Load counts the work of the queue. While hosts move tasks, it may count one of them twice, but leaves none out.
func (q *Queue) Load(ctx context.Context) (load Load, err error) {
	if err := queue.ValidQueue(q.Name()); err != nil {
		return load, err
	}
	if load.Due, err = q.due(ctx); err != nil { // first, because a due task becomes a pending one
		return Load{}, store.Wrap(fmt.Sprintf("count due tasks of %q", q.Name()), err)
	}
	stats, err := q.Stats(ctx)
	load.Waiting, load.Running = stats.Depth[queue.Pending], stats.Depth[queue.Reserved]+stats.Depth[queue.Started]
	return load, err
}

// due counts the queue's tasks and schedules that are due.
func (q *Queue) due(ctx context.Context) (int64, error) {
	s := q.tenant.store
	now, err := s.Now(ctx)
	if err != nil {
		return 0, err
	}
	until := &redis.ZRangeBy{Min: "-inf", Max: strconv.FormatFloat(float64(now.UnixMicro())/1e6, 'f', 6, 64), Count: seenDue}
	p := s.RDB.Pipeline()
	tasks, ticks := p.ZRangeByScore(ctx, s.Keys.Scheduled(q.Name()), until), p.ZRangeByScore(ctx, s.Keys.Ticks(), until)
	if _, err := p.Exec(ctx); err != nil {
		return 0, err
	}
	due := int64(len(tasks.Val()))
	schedules, err := store.Pipelined(ctx, s, ticks.Val(), func(p redis.Pipeliner, id string) *redis.SliceCmd {
		return p.HMGet(ctx, s.Keys.Schedule(id), "queue", "paused")
	})
	for _, schedule := range schedules {
		if h := schedule.Val(); len(h) == 2 && h[0] == q.Name() && h[1] == nil {
			due++
		}
	}
	return due, err
}
