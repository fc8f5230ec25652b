package manage

import (
	"context"

	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// Dependencies reads a page of a task's dependencies, in the order in which they were named. It skips the first `from`
// of them and returns up to limit, at most 1,000. The page is empty if there is no such task.
func (m *Manager) Dependencies(ctx context.Context, id string, from, limit int) ([]listen.Dependency, error) {
	all, err := listen.NewFleet(m.client).AllDependencies(ctx, id)
	from, limit = min(max(from, 0), len(all)), min(max(limit, 0), store.PageTasks)
	page := all[from:min(from+limit, len(all))]
	if err != nil {
		return page, err
	}
	ids := make([]string, len(page))
	for i := range page {
		ids[i] = page[i].ID
	}
	sizes, err := m.store.SizesOf(ctx, ids, "result")
	for i, size := range sizes {
		page[i].Size = size
	}
	return page, err
}
