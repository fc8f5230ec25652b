package manage

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// Dependency is a task that another one waits for, or waited for.
type Dependency struct {
	ID   string `json:"id"`
	End  string `json:"end,omitempty" enum:"complete,failed,gone,open" doc:"Missing while it goes on; gone: it does not exist any more; open: it could not be waited for."`
	Size int64  `json:"result_size,omitempty" doc:"Bytes of its result."`
}

// Dependencies reads the dependencies of a task, in the order in which they were named, without the first `from`: at most 1,000.
// It has none if there is no such task.
func (m *Manager) Dependencies(ctx context.Context, id string, from, limit int) ([]Dependency, error) {
	all, err := m.AllDependencies(ctx, id)
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

// AllDependencies reads all dependencies of a task at once, without the sizes of their results.
func (m *Manager) AllDependencies(ctx context.Context, id string) ([]Dependency, error) {
	if err := queue.ValidID(id); err != nil {
		return nil, err
	}
	hash, err := m.store.RDB.HGetAll(ctx, m.store.Keys.After(id)).Result()
	if err != nil {
		return nil, fmt.Errorf("read dependencies of task %s: %w", id, err)
	}
	all, places := make([]Dependency, 0, len(hash)), make(map[string]int, len(hash))
	for other, value := range hash {
		place, end, _ := strings.Cut(value, " ")
		places[other], _ = strconv.Atoi(place)
		all = append(all, Dependency{ID: other, End: end})
	}
	slices.SortFunc(all, func(a, b Dependency) int { return places[a.ID] - places[b.ID] })
	return all, nil
}
