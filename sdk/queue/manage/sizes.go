package manage

import (
	"context"
	"fmt"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// PayloadSizes returns the sizes in bytes of the parameters and the result that queue.Client.Task would read. A size is
// 0 if the task has none.
func (m *Manager) PayloadSizes(ctx context.Context, id string) (parameters, result int64, err error) {
	if err := queue.ValidID(id); err != nil {
		return 0, 0, err
	}
	sizes, err := m.store.SizesOf(ctx, []string{id}, "parameters", "result")
	if err != nil || sizes[0] > 0 {
		return sizes[0], sizes[1], err
	}
	// A dead letter has the parameters of the failed task.
	live, err := m.store.RDB.HGet(ctx, m.store.Keys.Task(id), "live_id").Result()
	if store.PassReplies(err) != nil {
		return 0, 0, fmt.Errorf("read sizes of task %s: %w", id, err)
	}
	if live == "" {
		return 0, sizes[1], nil
	}
	ofLive, err := m.store.SizesOf(ctx, []string{live}, "parameters")
	return ofLive[0], sizes[1], err
}
