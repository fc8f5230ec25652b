package queue

import (
	"context"
	"crypto/sha1" //nolint:gosec // as Redis's own sha1hex, not a protection
	"encoding/hex"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/redis/go-redis/v9"
)

// maxPage is the most tasks that one page brings.
const maxPage = 1000

// ListOptions choose a page of a queue's tasks.
type ListOptions struct {
	// Status lists tasks of this state only (default: all that went through a Quern client or host).
	Status Status
	// Key lists only tasks of this key, newest first whatever their status, and Labels only those that
	// have all of these. At most 100,000 tasks are looked at: of the key, in the order of their IDs, or
	// else of the list.
	Key    string
	Labels map[string]string
	// Offset is how many tasks to pass over, counted from the newest (scheduled: from the next due).
	// The lists move while tasks come and go, so a page may repeat or miss some.
	Offset int
	// Limit is the most tasks to bring (default 100, at most 1,000).
	Limit int
}

// List brings a page of tasks, newest first (scheduled: next due first), without their parameters
// and results. A task that vanishes meanwhile is left out.
func (q *Queue) List(ctx context.Context, options ListOptions) ([]*Task, error) {
	if err := ValidQueue(q.name); err != nil {
		return nil, err
	}
	if options.Limit == 0 {
		options.Limit = 100
	}
	if options.Limit < 0 || options.Limit > maxPage || options.Offset < 0 {
		return nil, fmt.Errorf("%w: page of %d tasks from %d: use a limit of 1 to %d and an offset from 0",
			ErrInvalid, options.Limit, options.Offset, maxPage)
	}
	tasks, err := q.list(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("list tasks of %q: %w", q.name, err)
	}
	return tasks, nil
}

func (q *Queue) list(ctx context.Context, o ListOptions) ([]*Task, error) {
	if o.Key != "" {
		sum := sha1.Sum([]byte(validText(o.Key))) //nolint:gosec // the index is Redis's own sha1hex, not a protection
		return q.keyed(ctx, "K"+hex.EncodeToString(sum[:]), o)
	}
	if len(o.Labels) == 0 {
		ids, err := q.ids(ctx, o)
		if err != nil {
			return nil, err
		}
		return q.client.summaries(ctx, q.name, o.Status, ids)
	}
	var found []*Task
	page := ListOptions{Status: o.Status, Limit: maxPage}
	for ; page.Offset < searched && len(found) < o.Offset+o.Limit; page.Offset += maxPage {
		ids, err := q.ids(ctx, page)
		if err != nil {
			return nil, err
		}
		some, err := q.filter(ctx, o, ids)
		if err != nil {
			return nil, err
		}
		found = append(found, some...)
		if len(ids) < maxPage {
			break
		}
	}
	return pageOf(found, o), nil
}

// filter reads those of the tasks that have the options' status and labels.
func (q *Queue) filter(ctx context.Context, o ListOptions, ids []string) ([]*Task, error) {
	tasks, err := q.client.summaries(ctx, q.name, o.Status, ids)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(tasks, func(t *Task) bool {
		for name, value := range o.Labels {
			if is, ok := t.Labels[name]; !ok || is != value {
				return true
			}
		}
		return false
	}), nil
}

func pageOf(tasks []*Task, o ListOptions) []*Task {
	from := min(o.Offset, len(tasks))
	return tasks[from:min(from+o.Limit, len(tasks))]
}

// keyed reads a page of the tasks that the queue's index has for a word, newest first. The index is in
// the order of the IDs: all of it is read, as far as 100,000.
func (q *Queue) keyed(ctx context.Context, word string, o ListOptions) ([]*Task, error) {
	var found []*Task
	from := "[" + word + " "
	for looked := 0; looked < searched; looked += maxPage {
		members, err := q.client.rdb.ZRangeByLex(ctx, q.client.keys.keyed(q.name), &redis.ZRangeBy{
			Min: from, Max: "(" + word + "!", Count: maxPage,
		}).Result()
		if err != nil {
			return nil, err
		}
		ids := make([]string, len(members))
		for i, member := range members {
			ids[i] = strings.TrimPrefix(member, word+" ")
		}
		some, err := q.filter(ctx, o, ids)
		if err != nil {
			return nil, err
		}
		found = append(found, some...)
		slices.SortStableFunc(found, func(a, b *Task) int { return b.Created.Compare(a.Created) })
		found = found[:min(len(found), min(o.Offset, searched)+o.Limit)]
		if len(members) < maxPage {
			break
		}
		from = "(" + members[len(members)-1]
	}
	return pageOf(found, o), nil
}

// Equivalent lists the tasks that were enqueued as unique by their parameters and have these, or by
// this key, whatever became of them: the newest 1,000, of at most 100,000 in the order of their IDs.
func (q *Queue) Equivalent(ctx context.Context, unique Unique, parameters []byte) ([]*Task, error) {
	if err := ValidQueue(q.name); err != nil {
		return nil, err
	}
	tasks, err := q.keyed(ctx, "U"+unique.hash(q.name, parameters), ListOptions{Limit: maxPage})
	if err != nil {
		return nil, fmt.Errorf("list equivalent tasks of %q: %w", q.name, err)
	}
	return tasks, nil
}

func (q *Queue) ids(ctx context.Context, o ListOptions) ([]string, error) {
	k, rdb := q.client.keys, q.client.rdb
	from, to := int64(o.Offset), int64(o.Offset+o.Limit-1)
	switch o.Status {
	case "":
		return rdb.ZRevRange(ctx, k.index(q.name), from, to).Result()
	case Scheduled:
		return rdb.ZRange(ctx, k.scheduled(q.name), from, to).Result()
	case Pending:
		return q.pendingIDs(ctx, from, to)
	case Complete:
		return rdb.LRange(ctx, k.complete(q.name), from, to).Result()
	case Failed:
		return rdb.LRange(ctx, k.failed(q.name), from, to).Result()
	case Reserved, Started:
		ids, err := q.held(ctx, o.Status)
		if err != nil || o.Offset >= len(ids) {
			return nil, err
		}
		return ids[o.Offset:min(len(ids), o.Offset+o.Limit)], nil
	}
	return nil, fmt.Errorf("%w: status %q: use one of scheduled, pending, reserved, started, complete, failed", ErrInvalid, o.Status)
}

// pendingIDs pages through the lists of all priorities, as if they were one: the lowest priority, and
// in it the newest, comes first.
func (q *Queue) pendingIDs(ctx context.Context, from, to int64) ([]string, error) {
	k, rdb := q.client.keys, q.client.rdb
	levels, err := rdb.SMembers(ctx, k.priorities(q.name)).Result()
	if err != nil {
		return nil, err
	}
	levels = append(levels, defaultLevel)
	sort.Strings(levels)
	var ids []string
	for _, level := range levels {
		list := k.pending(q.name)
		if level != defaultLevel {
			list = k.level(level, q.name)
		}
		part, err := rdb.LRange(ctx, list, from, to).Result()
		if err != nil {
			return nil, err
		}
		ids = append(ids, part...)
		length, err := rdb.LLen(ctx, list).Result()
		if err != nil {
			return nil, err
		}
		if to -= length; to < 0 {
			break
		}
		from = max(0, from-length)
	}
	return ids, nil
}

// defaultLevel is DefaultPriority as the set of priorities would name it.
const defaultLevel = "050"

// held lists what listeners hold: started, or reserved and not started.
func (q *Queue) held(ctx context.Context, status Status) ([]string, error) {
	running, err := q.client.rdb.SMembers(ctx, q.client.keys.started(q.name)).Result()
	if err != nil {
		return nil, err
	}
	started := make(map[string]bool, len(running))
	for _, entry := range running {
		// "L PID ID"; none of the three holds a space.
		if parts := strings.SplitN(entry, " ", 3); len(parts) == 3 {
			started[parts[2]] = true
		}
	}
	var ids []string
	if status == Started {
		for id := range started {
			ids = append(ids, id)
		}
		sort.Strings(ids) // a set has no order; pages need one
		return ids, nil
	}
	lists, err := q.client.reservedLists(ctx, q.name)
	if err != nil {
		return nil, err
	}
	for _, list := range lists {
		for _, id := range list {
			if !started[id] {
				ids = append(ids, id)
			}
		}
	}
	return ids, nil
}

// reservedLists reads the reserved lists of all listeners that the queue or the tenant knows, in
// the order of their IDs.
func (c *Client) reservedLists(ctx context.Context, queue string) ([][]string, error) {
	known, err := c.rdb.SMembers(ctx, c.keys.listeners(queue)).Result()
	if err != nil {
		return nil, err
	}
	nodes, err := c.rdb.ZRange(ctx, c.keys.nodes(), 0, -1).Result()
	if err != nil {
		return nil, err
	}
	unique := make(map[string]bool)
	for _, listener := range append(known, nodes...) {
		unique[listener] = true
	}
	listeners := make([]string, 0, len(unique))
	for listener := range unique {
		listeners = append(listeners, listener)
	}
	sort.Strings(listeners)

	cmds := make([]*redis.StringSliceCmd, len(listeners))
	_, err = c.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, listener := range listeners {
			cmds[i] = p.LRange(ctx, c.keys.reserved(queue, listener), 0, -1)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	lists := make([][]string, len(cmds))
	for i, cmd := range cmds {
		lists[i] = cmd.Val()
	}
	return lists, nil
}

// summaryFields are what a list shows of a task: all but its parameters, result and log.
var summaryFields = []string{
	"queue", "status", "error", "reason", "last_error", "node", "pid", "run", "attempts", "max_attempts",
	"crashes", "reschedules", "rejects", "retry", "max_age", "timeout", "deadline", "expires", "retried_at", "cancel",
	"dead_id", "dead_error", "handled", "priority", "created", "updated", "eta", "reserved_at", "started_at", "finished_at", "plugin",
	"digest", "progress", "message", "key", "labels", "parent", "depth", "traceparent", "live_id",
}

// summaries reads the tasks of a queue's list, leaving out what is gone or has left that status.
func (c *Client) summaries(ctx context.Context, queue string, status Status, ids []string) ([]*Task, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	cmds := make([]*redis.SliceCmd, len(ids))
	_, err := c.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range ids {
			cmds[i] = p.HMGet(ctx, c.keys.task(id), summaryFields...)
		}
		return nil
	})
	if err = passReplies(err); err != nil { // one that is no hash hides no other
		return nil, fmt.Errorf("read tasks of %q: %w", queue, err)
	}
	tasks := make([]*Task, 0, len(ids))
	for i, cmd := range cmds {
		hash := make(map[string]string, len(summaryFields))
		for j, value := range cmd.Val() {
			if text, ok := value.(string); ok {
				hash[summaryFields[j]] = text
			}
		}
		if len(hash) == 0 {
			continue
		}
		task := newTask(ids[i], hash)
		if task.Queue == "" {
			task.Queue = queue
		}
		if task.Status == "" {
			task.Status = status // by the list that holds it: written by hand
		}
		if status == "" || task.Status == status {
			tasks = append(tasks, task)
		}
	}
	return tasks, nil
}
