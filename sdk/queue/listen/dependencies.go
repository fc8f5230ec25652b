package listen

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/quern-project/quern/sdk/queue"
)

// Dependency is a task that another task waits for, or waited for.
type Dependency struct {
	ID   string `json:"id"`
	End  string `json:"end,omitempty" enum:"complete,failed,gone,open" doc:"Missing while it goes on; gone: it does not exist any more; open: it could not be waited for."`
	Size int64  `json:"result_size,omitempty" doc:"Bytes of its result."`
}

// AllDependencies reads all dependencies of a task, in the order in which they were named. It does not set Size.
func (f *Fleet) AllDependencies(ctx context.Context, id string) ([]Dependency, error) {
	if err := queue.ValidID(id); err != nil {
		return nil, err
	}
	hash, err := f.client.Store().RDB.HGetAll(ctx, f.client.Store().Keys.After(id)).Result()
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

// ResultSize returns the size in bytes of a task's result, or 0 if the task has no result.
func (f *Fleet) ResultSize(ctx context.Context, id string) (int64, error) {
	if err := queue.ValidID(id); err != nil {
		return 0, err
	}
	sizes, err := f.ResultSizes(ctx, []string{id})
	return sizes[0], err
}

// ResultSizes returns the sizes in bytes of the results of tasks, in the order of ids: 0 for a task without a result.
func (f *Fleet) ResultSizes(ctx context.Context, ids []string) ([]int64, error) {
	return f.client.Store().SizesOf(ctx, ids, "result")
}
