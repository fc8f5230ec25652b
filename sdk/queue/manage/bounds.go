package manage

import (
	"context"
	"strings"

	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// Limits reads the maximum number of tasks that can wait in each of the tenant's queues, by the queue's name. It leaves
// out queues without a limit.
func (m *Manager) Limits(ctx context.Context) (map[string]int64, error) {
	read, err := m.store.RDB.HGetAll(ctx, m.store.Keys.Limits()).Result()
	limits := make(map[string]int64, len(read))
	for name, text := range read {
		// No name of a queue has a space.
		if limit, _ := store.ParseLimit(text); limit > 0 && name != store.MaxQueuesField && !strings.Contains(name, " ") {
			limits[name] = limit
		}
	}
	return limits, store.Wrap("read limits in "+m.store.Keys.Limits(), err)
}

// MaxQueues reads the maximum number of the tenant's queues; 0 means no maximum.
func (m *Manager) MaxQueues(ctx context.Context) (int, error) { return m.store.MaxQueues(ctx) }
