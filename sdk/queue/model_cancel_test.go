package queue_test

import (
	"maps"
	"slices"

	"pgregory.net/rapid"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// flow lists the tasks that wait for one, directly or not, and itself; if whole is set, all that are connected.
func (m *model) flow(id string, whole bool) []string {
	seen := map[string]bool{id: true}
	for list := []string{id}; len(list) > 0; list = list[1:] {
		near := slices.DeleteFunc(slices.Clone(m.waiting[list[0]]), func(below string) bool { // it may be another task of that ID by now
			return m.tasks[below] == nil || !slices.Contains(m.tasks[below].deps, list[0])
		})
		if task := m.tasks[list[0]]; whole && task != nil {
			near = append(near, task.deps...)
		}
		for _, other := range near {
			if !seen[other] {
				seen[other], list = true, append(list, other)
			}
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// cancelFlow cancels what waits, and has the hosts stop what runs. In which order is left to it, but that what is blocked comes first.
func (m *model) cancelFlow(r *rapid.T) {
	id, _ := m.some(r, func(*modelTask) bool { return true })
	whole := rapid.Bool().Draw(r, "whole")
	blocked, cancelled, running, finished := 0, make(map[string]bool), []string(nil), 0
	for _, id := range m.flow(id, whole) {
		switch task := m.tasks[id]; {
		case task == nil:
		case task.waiting():
			if cancelled[id] = true; slices.Contains(m.blocked(), id) {
				blocked++
			}
		case task.held():
			running, task.cancel = append(running, id), true
		default:
			finished++
		}
	}
	done, err := manage.New(rapid.SampledFrom(m.clients).Draw(r, "client")).CancelFlow(m.w.ctx, id, whole)
	if slices.Sort(done.Running); err != nil || done.Cancelled != len(cancelled) || done.Finished != finished || !slices.Equal(done.Running, running) {
		r.Fatalf("%+v, %v, want %v, and %d finished and %v running", done, err, cancelled, finished, running)
	}
	if len(cancelled) == 0 {
		return
	}
	order, err := m.w.rdb.LRange(m.w.ctx, m.w.Store().Keys.Failed("q"), 0, int64(len(cancelled)-1)).Result()
	if slices.Reverse(order); err != nil || len(order) != len(cancelled) {
		r.Fatalf("%v, %v, want %v", order, err, cancelled)
	}
	waits := m.blocked()
	for i, id := range order {
		if !cancelled[id] || slices.Contains(waits, id) != (i < blocked) {
			r.Fatalf("cancelled %v, want %v and first %d of those that are blocked", order, cancelled, blocked)
		}
		m.fail(id, queue.ReasonCancelled)
	}
}
