package manage

import (
	"context"
	"slices"

	"github.com/quern-project/quern/sdk/queue"
)

// Schedules lists the tenant's schedules, by ID, with all parameters: see SchedulePage and queue.Client.ScheduleHeads for callers that serve others.
func (m *Manager) Schedules(ctx context.Context) (all []*queue.Schedule, err error) {
	for more, after := true, ""; more && err == nil; {
		var page []*queue.Schedule
		page, after, err = m.SchedulePage(ctx, after, queue.MaxSchedules)
		all, more = append(all, page...), after != ""
	}
	return all, err
}

// SchedulePage lists schedules by ID, those behind the ID after: up to limit of them (at least 1), and fewer if these are large. next is
// where the next page begins, "" if there is none.
func (m *Manager) SchedulePage(ctx context.Context, after string, limit int) (page []*queue.Schedule, next string, err error) {
	ids, err := m.store.ScheduleIDs(ctx, queue.MaxSchedules)
	if err != nil {
		return nil, "", err
	}
	from, found := slices.BinarySearch(ids, after)
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

// RunSchedule enqueues a task of the schedule now, beside its ticks, and returns its ID. The overlap of ticks does not count it.
func (m *Manager) RunSchedule(ctx context.Context, id string) (string, error) {
	s, err := m.client.Schedule(ctx, id)
	if err != nil {
		return "", err
	}
	spec := s.Spec(s.ID + "@run-" + queue.NewID()[:13])
	return m.client.Queue(s.Queue).Enqueue(ctx, spec.Parameters, spec.Options)
}
