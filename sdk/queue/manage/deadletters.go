package manage

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// DeadLetters counts the dead letters that wait in the queue, pending or scheduled. It also counts the queue's failed
// tasks that have a dead letter which nobody has handled. It looks at up to 10,000 tasks of each status: at the newest
// ones, and of the scheduled ones at those due next.
func (q *Queue) DeadLetters(ctx context.Context) (waiting, failed int64, err error) {
	count := func(status queue.Status, has, without string) (n int64, err error) {
		ids, err := q.ids(ctx, ListOptions{Status: status, Limit: 10_000})
		if err != nil {
			return 0, err
		}
		hashes, err := store.Pipelined(ctx, q.tenant.store, ids, func(p redis.Pipeliner, id string) *redis.SliceCmd {
			return p.HMGet(ctx, q.tenant.store.Keys.Task(id), has, without)
		})
		for _, hash := range hashes {
			if h := hash.Val(); len(h) == 2 && h[0] != nil && h[1] == nil {
				n++
			}
		}
		return n, err
	}
	if err := queue.ValidQueue(q.Name()); err != nil {
		return 0, 0, err
	}
	for _, status := range []queue.Status{queue.Pending, queue.Scheduled} {
		n, err := count(status, "live_id", "result")
		if waiting += n; err != nil {
			return waiting, 0, store.Wrap(fmt.Sprintf("count dead letters of %q", q.Name()), err)
		}
	}
	failed, err = count(queue.Failed, "dead_id", "handled")
	return waiting, failed, store.Wrap(fmt.Sprintf("count dead letters of %q", q.Name()), err)
}
