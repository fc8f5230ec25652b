package mover

import (
	"context"
	"hash/maphash"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// relist puts tasks that are in no list, although their hashes say so, back into it. Nobody may take tasks meanwhile.
func (m Mover) relist(ctx context.Context) error {
	listed := make(map[uint64]bool)
	seed := maphash.MakeSeed()
	in := func(list, id string) uint64 { return maphash.String(seed, list+" "+id) }
	var lines []string // queues in which tasks wait for others with their concurrency key
	if err := m.eachBlock(ctx, func(keys []string) error {
		for _, key := range keys {
			name := strings.TrimPrefix(key, m.store.Keys.Key(""))
			if line, ok := strings.CutPrefix(name, "line_"); ok {
				lines = append(lines, line)
			}
			if pending, ok := strings.CutPrefix(name, "pending_"); ok {
				_, name, _ = strings.Cut(pending, "_") // behind the priority
				name = "pending_tasks_" + name
			} else if !hasPrefix(name, "reserved_tasks_", "complete_tasks_", "failed_tasks_") {
				continue
			}
			for from := int64(0); ; from += partValues {
				ids, err := m.store.RDB.LRange(ctx, key, from, from+partValues-1).Result()
				if err != nil && !damaged(err) {
					return store.Wrap("read list "+key, err)
				}
				for _, id := range ids {
					listed[in(name, id)] = true
				}
				if len(ids) < partValues {
					break
				}
			}
		}
		return nil
	}); err != nil {
		return err
	}
	if err := m.eachBlock(ctx, func(keys []string) error {
		keys = slices.DeleteFunc(keys, func(key string) bool { return !strings.HasPrefix(key, m.store.Keys.Task("")) })
		tasks, err := store.Pipelined(ctx, m.store, keys, func(p redis.Pipeliner, key string) *redis.SliceCmd {
			return p.HMGet(ctx, key, "status", "queue", "node")
		})
		if err != nil {
			return err
		}
		of := make(map[string][]any) // the arguments, by queue
		for i, task := range tasks {
			if damaged(task.Err()) {
				continue
			} else if task.Err() != nil {
				return store.Wrap("read tasks", task.Err())
			}
			status, name := queue.Status(store.AsString(task.Val()[0])), store.AsString(task.Val()[1])
			list := string(status) + "_tasks_" + name
			if status == queue.Started || status == queue.Reserved {
				list = "reserved_tasks_" + name + "_" + store.AsString(task.Val()[2])
			}
			id := strings.TrimPrefix(keys[i], m.store.Keys.Task(""))
			at, flag := in(list, id), ""
			if listed[at] {
				flag = "1"
			}
			listed[at] = true // SCAN may name a key again
			if name != "" {
				of[name] = append(of[name], id, flag)
			}
		}
		var calls []store.Call
		for name, args := range of {
			for block := range slices.Chunk(args, 2*store.RelistTasks) {
				calls = append(calls, store.NewCall("relist", m.store.Keys.Index(name),
					append([]any{m.store.Clock, name}, block...)...))
			}
		}
		for _, reply := range m.store.EvalAll(ctx, calls) {
			if err := reply.Err(); err != nil && !damaged(err) {
				return store.Wrap("put tasks back", err)
			}
		}
		return nil
	}); err != nil {
		return err
	}
	for _, name := range lines {
		if err := m.store.CheckLanes(ctx, name); err != nil && !damaged(err) {
			return err
		}
	}
	return nil
}

// damaged reports whether a key has the wrong type, as it had before the export: doctor tells of it.
func damaged(err error) bool { return redis.HasErrorPrefix(err, "WRONGTYPE") }

func hasPrefix(text string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(text, prefix) })
}

// eachBlock calls do with all keys of the tenant, a block at a time. A key that lasts may come twice.
func (m Mover) eachBlock(ctx context.Context, do func(keys []string) error) error {
	for cursor := uint64(0); ; {
		keys, next, err := m.scan(ctx, cursor)
		if err == nil {
			err = do(keys)
		}
		if cursor = next; err != nil || cursor == 0 {
			return err
		}
	}
}
