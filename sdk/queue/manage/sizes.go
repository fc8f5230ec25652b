package manage

import (
	"context"
	"fmt"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// PayloadSizes tells how many bytes the parameters and the result have that Task would read, 0 for none.
func (m *Manager) PayloadSizes(ctx context.Context, id string) (parameters, result int64, err error) {
	if err := queue.ValidID(id); err != nil {
		return 0, 0, err
	}
	sizes, err := m.store.SizesOf(ctx, []string{id}, "parameters", "result")
	if err != nil || sizes[0] > 0 {
		return sizes[0], sizes[1], err
	}
	live, err := m.store.RDB.HGet(ctx, m.store.Keys.Task(id), "live_id").Result() // a dead letter has those of the failed task
	if store.PassReplies(err) != nil {
		return 0, 0, fmt.Errorf("read sizes of task %s: %w", id, err)
	}
	if live == "" {
		return 0, sizes[1], nil
	}
	ofLive, err := m.store.SizesOf(ctx, []string{live}, "parameters")
	return ofLive[0], sizes[1], err
}

// ResultSize is how many bytes the result of a task has; 0 if there is none.
func (m *Manager) ResultSize(ctx context.Context, id string) (int64, error) {
	if err := queue.ValidID(id); err != nil {
		return 0, err
	}
	sizes, err := m.store.SizesOf(ctx, []string{id}, "result")
	return sizes[0], err
}

// PublicationSize is how many bytes the payload of a publication has: ErrNoPublication if it is not kept (any more).
func (m *Manager) PublicationSize(ctx context.Context, id string) (int64, error) {
	if err := queue.ValidPublication(id); err != nil {
		return 0, err
	}
	size, kept, err := m.store.PublicationSize(ctx, id)
	if err == nil && !kept {
		err = fmt.Errorf("publication %s: %w", id, queue.ErrNoPublication)
	}
	return size, err
}
