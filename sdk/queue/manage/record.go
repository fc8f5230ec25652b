package manage

import (
	"context"
	"errors"
	"fmt"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// ErrNoRecord means that no record is kept of a run of a task.
var ErrNoRecord = errors.New("no record")

// Record reads the record of a run of a task. The error is ErrNoRecord if there is none.
func (m *Manager) Record(ctx context.Context, id string) ([]byte, error) {
	if err := queue.ValidID(id); err != nil {
		return nil, err
	}
	s := m.client.Store()
	what := "read the record of task " + id
	size, err := s.RDB.HStrLen(ctx, s.Keys.Bytes(id), "record").Result()
	if err == nil && size == 0 {
		err = fmt.Errorf("task %s: %w", id, ErrNoRecord)
	}
	if err != nil {
		return nil, store.Wrap(what, err)
	}
	rdb, end := s.PayloadReader(size)
	defer end()
	value, err := rdb.HGet(ctx, s.Keys.Bytes(id), "record").Bytes()
	if err == nil {
		value, err = s.Seal.Open(value)
	}
	return value, store.Wrap(what, err)
}
