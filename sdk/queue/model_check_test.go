package queue_test

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// check compares Redis with the model.
func (m *model) check(r *rapid.T) {
	m.checkTopics(r)
	ctx, k := m.w.ctx, m.w.Store().Keys
	lists := make(map[string]*redis.StringSliceCmd)
	want := map[string][]string{k.Complete("q"): m.complete, k.Failed("q"): m.failed} // oldest first
	for _, priority := range priorities {
		want[m.pendingKey(priority)] = m.pending[priority]
	}
	var nodes []string
	for _, node := range m.nodes {
		want[k.Reserved("q", node.ID())] = node.reserved
		nodes = append(nodes, node.ID())
	}
	for _, node := range m.graves {
		want[k.Reserved("q", node.ID())] = nil
	}
	hashes := make(map[string]*redis.SliceCmd)
	var (
		scheduled, index, started, leases, listeners, expiry *redis.StringSliceCmd
		blocked, ended                                       *redis.StringSliceCmd
		totals                                               *redis.MapStringStringCmd
		serving                                              *redis.FloatCmd
		deleted                                              []*redis.IntCmd
	)
	_, err := m.w.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for key := range want {
			lists[key] = p.LRange(ctx, key, 0, -1)
		}
		scheduled, index = p.ZRange(ctx, k.Scheduled("q"), 0, -1), p.ZRange(ctx, k.Index("q"), 0, -1)
		leases, expiry = p.ZRange(ctx, k.Nodes(), 0, -1), p.ZRange(ctx, k.Expiry("q"), 0, -1)
		blocked, ended = p.ZRange(ctx, k.Blocked("q"), 0, -1), p.ZRange(ctx, k.Ended(), 0, -1)
		started, listeners = p.SMembers(ctx, k.Started("q")), p.SMembers(ctx, k.Listeners("q"))
		totals, serving = p.HGetAll(ctx, k.Stats("q")), p.ZScore(ctx, k.Queues(), "q")
		for id := range m.tasks {
			hashes[id] = p.HMGet(ctx, k.Task(id), "status", "run", "node", "attempts", "crashes", "rejects", "settled", "cancel", "after")
		}
		for _, id := range m.deleted {
			deleted = append(deleted, p.Exists(ctx, k.Task(id), k.Bytes(id), k.Log(id), k.Attempts(id), k.After(id)))
		}
		return nil
	})
	if err != nil {
		r.Fatal(err)
	}
	same := func(what string, got, want []string) {
		if !slices.Equal(got, want) {
			r.Fatalf("%s: %v, want %v", what, got, want)
		}
	}
	sorted := func(list []string) []string { return slices.Sorted(slices.Values(list)) }
	for key, oldest := range want {
		newest := slices.Clone(oldest) // at the head of Redis's lists
		slices.Reverse(newest)
		same(key, lists[key].Val(), newest)
	}
	same("scheduled", sorted(scheduled.Val()), slices.Sorted(maps.Keys(m.scheduled)))
	same("blocked", sorted(blocked.Val()), m.blocked())
	same("ended", sorted(ended.Val()), slices.Sorted(maps.Keys(m.ended)))
	same("index", sorted(index.Val()), slices.Sorted(maps.Keys(m.tasks)))
	same("leases", sorted(leases.Val()), sorted(nodes))
	same("listeners", sorted(listeners.Val()), sorted(nodes))
	if serving.Val() != float64(len(nodes)) {
		r.Fatalf("counted %v listeners, want %d", serving.Val(), len(nodes))
	}
	var running []string
	for id, task := range m.tasks {
		m.checkHash(r, id, task, hashes[id].Val())
		if task.status == queue.Started {
			running = append(running, fmt.Sprintf("%s %d %s", task.node.ID(), os.Getpid(), id))
		}
		expires := slices.Contains(expiry.Val(), id)
		if task.waiting() && expires != (task.expires > 0) || task.status.Finished() && expires {
			r.Fatalf("%s of %s, which is %s and expires at %d: %v", k.Expiry("q"), id, task.status, task.expires, expires)
		}
	}
	same("started", sorted(started.Val()), sorted(running))
	for i, exists := range deleted {
		if exists.Val() != 0 {
			r.Fatalf("something of %s is left", m.deleted[i])
		}
	}
	for name, want := range m.totals {
		if got := totals.Val()[name]; got != fmt.Sprint(want) {
			r.Fatalf("counted %s %s, want %d", got, name, want)
		}
	}
}

func (m *model) checkHash(r *rapid.T, id string, task *modelTask, hash []any) {
	node := ""
	if task.node != nil {
		node = task.node.ID()
	}
	want := []string{
		string(task.status), fmt.Sprint(task.run), node, fmt.Sprint(task.attempts), fmt.Sprint(task.crashes), fmt.Sprint(task.rejects),
		task.mark, fmt.Sprint(task.cancel), task.after(),
	}
	got := make([]string, len(hash))
	for i, value := range hash {
		got[i] = store.AsString(value)
		if i == 3 && got[i] == "" && task.status == queue.Complete && task.run > 0 {
			got[i] = "1"
		} else if i >= 3 && i <= 5 && got[i] == "" {
			got[i] = "0"
		}
	}
	if task.status == queue.Failed && got[6] == got[1] && strings.HasPrefix(want[6], got[2]+" "+got[1]+"@") { // short for the run that the hash names
		got[6] = want[6]
	}
	if got[1] == "00" { // 0, of a task with no further fields
		got[1] = "0"
	}
	got[7] = fmt.Sprint(hash[7] != nil)
	if !slices.Equal(got, want) {
		r.Fatalf("hash of %s: %q, want %q", id, got, want)
	}
}

func (m *model) pendingKey(priority int) string {
	if priority == queue.DefaultPriority {
		return m.w.Store().Keys.Pending("q")
	}
	return m.w.Store().Keys.Level(fmt.Sprintf("%03d", priority), "q")
}
