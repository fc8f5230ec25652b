package manage

import (
	"context"
	"crypto/sha1" //nolint:gosec // as Redis's own sha1hex, not a protection
	"encoding/hex"
	"fmt"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// LanePlace returns how many tasks have a place among those with the concurrency key of a task, because they run, can
// run next or are to be tried again. If the task waits in line, ahead is how many wait before it.
func (q *Queue) LanePlace(ctx context.Context, task *queue.Task) (taken, ahead int64, err error) {
	sum := sha1.Sum([]byte(task.ConcurrencyKey)) //nolint:gosec // as above
	lane := hex.EncodeToString(sum[:])
	rdb, k := q.tenant.store.RDB, q.tenant.store.Keys
	number := ""
	if task.InLine {
		if number, err = rdb.HGet(ctx, k.Task(task.ID), "line").Result(); err != nil && !store.IsNil(err) {
			return 0, 0, fmt.Errorf("read place of task %s: %w", task.ID, err)
		}
	}
	if taken, err = rdb.ZLexCount(ctx, k.Lanes(task.Queue), "["+lane+" ", "("+lane+"!").Result(); err == nil && number != "" {
		ahead, err = rdb.ZLexCount(ctx, k.Line(task.Queue), "["+lane+" ", "["+lane+" "+number).Result()
	}
	if err != nil {
		return 0, 0, fmt.Errorf("read place of task %s: %w", task.ID, err)
	}
	return taken, ahead, nil
}
