package manage

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// maxFlow is the maximum number of tasks of a flow that CancelFlow can cancel.
const maxFlow = 100_000

// FlowCancelled is the result of CancelFlow.
type FlowCancelled struct {
	Cancelled int      // number of tasks that waited, and have failed now
	Running   []string // IDs of running tasks, which their hosts are stopping
	Finished  int      // number of tasks that had ended before
	Python    []string // IDs of tasks that Python listeners hold: nobody can stop them
}

// CancelFlow cancels a task and all tasks that wait for it, directly or not. If whole is true, it cancels all tasks
// that are connected with the task by dependencies. Blocked tasks are cancelled first, so that none of them starts
// meanwhile. The call can be interrupted and repeated. The error is queue.ErrNoTask if there is no such task, and
// queue.ErrInvalid if the flow has more than 100,000 tasks.
func (m *Manager) CancelFlow(ctx context.Context, id string, whole bool) (done FlowCancelled, err error) {
	if _, err := m.client.Summary(ctx, id); err != nil {
		return done, err
	}
	for again := true; again; { // until a pass changes nothing: new tasks may have joined the flow meanwhile
		ids, err := m.flow(ctx, id, whole)
		if err != nil {
			return done, err
		}
		tasks, finished, err := m.unfinished(ctx, ids)
		again = false
		if err != nil {
			return done, err
		}
		before := done.Cancelled
		done.Finished = finished - done.Cancelled
		done.Running, done.Python = nil, nil
		for page := range slices.Chunk(tasks, store.PageTasks) {
			changed, err := m.cancelPage(ctx, page, &done)
			if err != nil {
				return done, fmt.Errorf("cancel the flow of task %s: %w", id, err)
			}
			again = again || changed
		}
		again = again || done.Cancelled > before
	}
	return done, nil
}

// flowTask is a task that is to be cancelled.
type flowTask struct {
	id, queue, state string
	order            int // 0: blocked, 1: scheduled or pending, 2: held by a listener; cancelled in this order
}

// unfinished reads the tasks with these IDs. In left it returns the tasks that have not ended, in the order in which
// they are to be cancelled. finished is the number of tasks that have ended.
func (m *Manager) unfinished(ctx context.Context, ids []string) (left []flowTask, finished int, err error) {
	cmds, err := store.Pipelined(ctx, m.store, ids, func(p redis.Pipeliner, id string) *redis.SliceCmd {
		return p.HMGet(ctx, m.store.Keys.Task(id), "status", "queue", "after", "created", "run", "updated")
	})
	for i, cmd := range cmds {
		hash := cmd.Val()
		if len(hash) != 6 || hash[0] == nil && hash[1] == nil {
			continue // the task is gone
		}
		status := queue.Status(store.AsString(hash[0]))
		task := flowTask{
			id: ids[i], queue: store.AsString(hash[1]), order: 2, state: store.StateOf(store.AsString(hash[3]),
				store.AsString(hash[4]), store.AsString(hash[0]), store.AsString(hash[5])),
		}
		switch {
		case status.Finished():
			finished++
			continue
		case status == queue.Scheduled || status == queue.Pending:
			if task.order = 1; status == queue.Scheduled {
				if after := store.AsString(hash[2]); after != "" && !strings.HasPrefix(after, "released ") {
					task.order = 0
				}
			}
		}
		left = append(left, task)
	}
	slices.SortStableFunc(left, func(a, b flowTask) int { return a.order - b.order })
	return left, finished, store.Wrap("read the tasks of a flow", err)
}

// cancelPage cancels tasks in one round trip and adds the results to done. It leaves alone every task that has changed
// since it was read, and returns true if there was one.
func (m *Manager) cancelPage(ctx context.Context, tasks []flowTask, done *FlowCancelled) (changed bool, err error) {
	calls := make([]store.Call, len(tasks))
	for i, t := range tasks {
		calls[i] = store.NewCall("cancel", m.store.Keys.Task(t.id), m.store.Clock, t.queue, t.id, t.state)
	}
	for i, reply := range m.store.EvalAll(ctx, calls) {
		if err := reply.Err(); err != nil {
			return changed, err
		}
		switch reply.Val() {
		case "ok":
			done.Cancelled++
		case "asked":
			done.Running = append(done.Running, tasks[i].id)
		case "python":
			done.Python = append(done.Python, tasks[i].id)
		default: // the task has ended, or another task has its ID now
			changed = true
		}
	}
	return changed, nil
}

// flow lists the IDs of a task and of all tasks that wait for it, directly or not. If whole is true, it lists all tasks
// that are connected with the task by dependencies.
func (m *Manager) flow(ctx context.Context, id string, whole bool) ([]string, error) {
	seen, all := map[string]bool{id: true}, []string{id}
	add := func(id string) {
		if !seen[id] {
			seen[id], all = true, append(all, id)
		}
	}
	type place struct {
		id   string
		from int64 // the index in the list of children and dependents at which to go on
	}
	type near struct {
		below *redis.StringSliceCmd // children and dependents
		above *redis.StringSliceCmd // dependencies; nil if they are not needed
	}
	type edge struct{ id, after string } // id may wait for after
	for read, rest := 0, []place(nil); read < len(all) || len(rest) > 0; {
		if len(all) > maxFlow {
			return nil, fmt.Errorf("%w: the flow of task %s has more than %d tasks: cancel its parts", queue.ErrInvalid, id,
				maxFlow)
		}
		page := rest // first the rests of long lists, then tasks whose lists were not read yet
		for rest = nil; len(page) < 100 && read < len(all); read++ {
			page = append(page, place{id: all[read]})
		}
		cmds, err := store.Pipelined(ctx, m.store, page, func(p redis.Pipeliner, at place) (n near) {
			n.below = p.LRange(ctx, m.store.Keys.Children(at.id), at.from, at.from+store.PageTasks-1)
			if whole && at.from == 0 {
				n.above = p.HKeys(ctx, m.store.Keys.After(at.id))
			}
			return n
		})
		if err != nil {
			return nil, store.Wrap("read the flow of task "+id, err)
		}
		var edges []edge
		for i, cmd := range cmds {
			for _, below := range cmd.below.Val() {
				edges = append(edges, edge{below, page[i].id})
			}
			if len(cmd.below.Val()) == store.PageTasks {
				rest = append(rest, place{page[i].id, page[i].from + store.PageTasks})
			}
			if cmd.above != nil {
				for _, above := range cmd.above.Val() {
					add(above)
				}
			}
		}
		waits, err := store.Pipelined(ctx, m.store, edges, func(p redis.Pipeliner, e edge) *redis.BoolCmd {
			return p.HExists(ctx, m.store.Keys.After(e.id), e.after)
		})
		if err != nil {
			return nil, store.Wrap("read the flow of task "+id, err)
		}
		for i, wait := range waits { // a child that does not wait is no part of the flow
			if wait.Val() {
				add(edges[i].id)
			}
		}
	}
	return all, nil
}
