package manage

import (
	"context"
	"fmt"
	"slices"

	"github.com/quern-project/quern/sdk/queue"
)

// Schedules lists the tenant's schedules, sorted by ID, with their parameters, which can take much memory. SchedulePage
// and queue.Client.ScheduleHeads return a bounded amount.
func (m *Manager) Schedules(ctx context.Context) (all []*queue.Schedule, err error) {
	for more, after := true, ""; more && err == nil; {
		var page []*queue.Schedule
		page, after, err = m.SchedulePage(ctx, after, queue.MaxSchedules)
		all, more = append(all, page...), after != ""
	}
	return all, err
}

// SchedulePage lists up to limit schedules (at least 1) whose IDs are greater than afterID, sorted by ID. It lists
// fewer if they are large. next is the afterID of the next page, or "" if this page is the last.
func (m *Manager) SchedulePage(ctx context.Context, afterID string,
	limit int,
) (page []*queue.Schedule, next string, err error) {
	ids, err := m.store.ScheduleIDs(ctx, queue.MaxSchedules)
	if err != nil {
		return nil, "", err
	}
	from, found := slices.BinarySearch(ids, afterID)
	if found {
		from++
	}
	ids = ids[from:]
	page, read, err := m.client.ReadSchedules(ctx, ids[:min(max(1, limit), len(ids))])
	if err == nil && read < len(ids) {
		next = ids[read-1]
	}
	return page, next, err
}

// RunSchedule enqueues a task of the schedule now, in addition to its ticks, and returns the task's ID. The schedule's
// Overlap ignores this task.
func (m *Manager) RunSchedule(ctx context.Context, id string) (string, error) {
	s, err := m.client.Schedule(ctx, id)
	if err != nil {
		return "", err
	}
	if s.Sealed != nil {
		return "", fmt.Errorf("schedule %s: its parameters: %w", id, s.Sealed)
	}
	spec := s.Spec(s.ID + "@run-" + queue.NewID()[:13])
	return m.client.Queue(s.Queue).Enqueue(ctx, spec.Parameters, spec.Options)
}
