package manage

import (
	"cmp"
	"context"
	"crypto/sha1" //nolint:gosec // as Redis's own sha1hex, not a protection
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
)

// ListOptions choose a page of a queue's tasks.
type ListOptions struct {
	// Status lists only tasks of this status (default: all tasks that a Quern client enqueued or a host reserved).
	Status queue.Status
	// Key lists only tasks of this key, newest first in every status. If the key has more than about 100,000 tasks, List
	// only finds those whose IDs are first in the alphabet.
	Key string
	// Offset is how many tasks to skip at the beginning of the list: the newest, or for scheduled tasks the next due. The
	// lists change between calls, so a page can repeat or miss tasks.
	Offset int
	// Limit is the maximum number of tasks to list (default 100, at most 1,000).
	Limit int
	// Bytes ends the page with the task that brings the page to this many bytes (default: no bound).
	Bytes int
	// Skip, if it is not nil, reports whether to leave out a task of the page without reading it.
	Skip func(id string) bool
}

// List reads a page of tasks, newest first (scheduled: next due first), without their parameters and results. It leaves
// out tasks that were deleted meanwhile.
func (q *Queue) List(ctx context.Context, options ListOptions) ([]*queue.Task, error) {
	page, err := q.Page(ctx, options)
	return page.Tasks, err
}

// TaskPage is a page of tasks for callers that read page after page.
type TaskPage struct {
	Tasks []*queue.Task
	// Read is the number of index entries read, including entries of deleted tasks. With ListOptions.Key, these are all
	// entries of the key.
	Read int
	Next int  // the Offset of the next page
	End  bool // this is the last page
}

// Page is List for callers that read page after page: it also returns where the next page begins.
func (q *Queue) Page(ctx context.Context, o ListOptions) (page TaskPage, err error) {
	if err := queue.ValidQueue(q.Name()); err != nil {
		return page, err
	}
	o.Limit = cmp.Or(o.Limit, 100)
	if o.Limit < 0 || o.Limit > store.MaxPage || o.Offset < 0 {
		return page, fmt.Errorf("%w: page of %d tasks from %d: use a limit of 1 to %d and an offset from 0",
			queue.ErrInvalid, o.Limit, o.Offset, store.MaxPage)
	}
	var ids []string
	if o.Key != "" {
		var all []string
		all, page.Read, err = q.keyed(ctx, o)
		ids, page.End = pageOf(all, o), o.Offset >= len(all)-o.Limit
	} else {
		ids, err = q.ids(ctx, o)
		page.Read, page.End = len(ids), len(ids) < o.Limit
	}
	if err == nil {
		wanted, at := make([]string, 0, len(ids)), make([]int, 0, len(ids))
		for i, id := range ids {
			if o.Skip == nil || !o.Skip(id) {
				wanted, at = append(wanted, id), append(at, i)
			}
		}
		var passed int
		page.Tasks, passed, _, err = q.tenant.client.Summaries(ctx, q.Name(), o.Status, wanted, o.Bytes)
		if page.Next = o.Offset + o.Limit; passed < len(wanted) {
			passed = at[passed]
			page.Next, page.End = o.Offset+passed, false
			page.Read = max(0, page.Read-len(ids)+passed)
		}
	}
	return page, store.Wrap(fmt.Sprintf("list tasks of %q", q.Name()), err)
}

// foundIn is the maximum number of tasks that FindTasks searches.
const foundIn = 1_000_000

// FindTasks lists up to limit task IDs that begin with prefix. It searches the tasks that a Quern client enqueued or a
// host reserved. It gives up with queue.ErrInvalid after 1,000,000 tasks.
func (m *Manager) FindTasks(ctx context.Context, prefix string, limit int) (ids []string, err error) {
	if err := queue.ValidID(prefix); err != nil {
		return nil, err
	}
	queues, err := m.client.Queues(ctx)
	if err != nil {
		return nil, err
	}
	pattern := globSigns.Replace(prefix) + "*"
	const block = 1000
	seen := 0
	for name := range queues {
		for cursor := uint64(0); ; {
			found, next, err := m.store.RDB.ZScan(ctx, m.store.Keys.Index(name), cursor, pattern, block).Result()
			if redis.HasErrorPrefix(err, "WRONGTYPE") {
				break // a damaged queue does not hide the tasks of other queues
			}
			if err != nil {
				return nil, store.Wrap("find tasks", err)
			}
			for i := 0; i < len(found); i += 2 { // ID, score
				if !slices.Contains(ids, found[i]) {
					ids = append(ids, found[i])
				}
			}
			if len(ids) >= limit {
				slices.Sort(ids)
				return ids[:limit], nil
			}
			if cursor = next; cursor == 0 {
				break
			}
			if seen += block; seen > foundIn {
				return nil, fmt.Errorf("%w: no task has the ID %s, and the tenant has too many tasks to search for IDs that begin with it: give the whole ID", queue.ErrInvalid, prefix)
			}
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// globSigns escapes the special characters of Redis's glob patterns.
var globSigns = strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`)

func pageOf[T any](all []T, o ListOptions) []T {
	from := min(o.Offset, len(all))
	return all[from:min(from+o.Limit, len(all))]
}

// keyed lists the IDs of the tasks of a key, newest first. read is the number of index entries that it read. The index
// is sorted by ID, not by time, so keyed reads all of the key's entries, up to about 100,000.
func (q *Queue) keyed(ctx context.Context, o ListOptions) (ids []string, read int, err error) {
	c := q.tenant.client
	sum := sha1.Sum([]byte(store.ValidText(o.Key))) //nolint:gosec // the index is Redis's own sha1hex, not a protection
	word := "K" + hex.EncodeToString(sum[:])
	from := "[" + word + " "
	for more := true; more && len(ids) < store.Searched; {
		members, err := c.Store().RDB.ZRangeByLex(ctx, c.Store().Keys.Keyed(q.Name()),
			&redis.ZRangeBy{Min: from, Max: "(" + word + "!", Count: store.MaxPage}).Result()
		if err != nil {
			return nil, 0, err
		}
		for _, member := range members {
			ids, from = append(ids, strings.TrimPrefix(member, word+" ")), "("+member
		}
		more = len(members) == store.MaxPage
	}
	read = len(ids)
	hashes, err := store.Pipelined(ctx, c.Store(), ids, func(p redis.Pipeliner, id string) *redis.SliceCmd {
		return p.HMGet(ctx, c.Store().Keys.Task(id), "status", "created")
	})
	created := make(map[string]time.Time, read)
	for i, hash := range hashes {
		if h := hash.Val(); len(h) == 2 && h[0] != nil && (o.Status == "" || h[0] == string(o.Status)) {
			created[ids[i]] = store.ParseSeconds(store.AsString(h[1]))
		}
	}
	ids = slices.DeleteFunc(ids, func(id string) bool { _, is := created[id]; return !is })
	slices.SortStableFunc(ids, func(a, b string) int { return created[b].Compare(created[a]) })
	return ids, read, err
}

func (q *Queue) ids(ctx context.Context, o ListOptions) ([]string, error) {
	k, rdb := q.tenant.store.Keys, q.tenant.store.RDB
	from, to := int64(o.Offset), int64(o.Offset+o.Limit-1)
	switch o.Status {
	case "":
		return rdb.ZRevRange(ctx, k.Index(q.Name()), from, to).Result()
	case queue.Scheduled:
		return q.scheduledIDs(ctx, from, to)
	case queue.Pending:
		return q.pendingIDs(ctx, from, to)
	case queue.Complete:
		return rdb.LRange(ctx, k.Complete(q.Name()), from, to).Result()
	case queue.Failed:
		return rdb.LRange(ctx, k.Failed(q.Name()), from, to).Result()
	case queue.Reserved, queue.Started:
		ids, err := q.held(ctx, o.Status)
		return pageOf(ids, o), err
	}
	return nil, fmt.Errorf("%w: status %q: use one of scheduled, pending, reserved, started, complete, failed",
		queue.ErrInvalid, o.Status)
}

// scheduledIDs pages through the tasks that are due at a time, next due first, and then through the blocked tasks.
func (q *Queue) scheduledIDs(ctx context.Context, from, to int64) ([]string, error) {
	k, rdb := q.tenant.store.Keys, q.tenant.store.RDB
	ids, err := rdb.ZRange(ctx, k.Scheduled(q.Name()), from, to).Result()
	if missing := to - from + 1 - int64(len(ids)); err == nil && missing > 0 {
		var timed int64
		if timed, err = rdb.ZCard(ctx, k.Scheduled(q.Name())).Result(); err != nil {
			return nil, err
		}
		var blocked []string
		from = max(0, from-timed)
		blocked, err = rdb.ZRange(ctx, k.Blocked(q.Name()), from, from+missing-1).Result()
		ids = append(ids, blocked...)
	}
	return ids, err
}

// pendingIDs pages through the tasks of all priorities as if they were one list: lowest priority first, and newest task
// first within a priority. The tasks with a fairness key, the last turn first, come before the others of their
// priority, and those that wait in line before all.
func (q *Queue) pendingIDs(ctx context.Context, from, to int64) ([]string, error) {
	k, rdb := q.tenant.store.Keys, q.tenant.store.RDB
	levels, err := rdb.SMembers(ctx, k.Priorities(q.Name())).Result()
	if err != nil {
		return nil, err
	}
	levels = append(levels, defaultLevel)
	slices.SortFunc(levels, func(a, b string) int { // "f080", for fairness keys, before "080"
		return cmp.Or(strings.Compare(strings.TrimPrefix(a, fairMark), strings.TrimPrefix(b, fairMark)),
			strings.Compare(b, a))
	})
	parts := []pendingPart{{k.Line(q.Name()), true}}
	for _, level := range levels {
		switch p, fair := strings.CutPrefix(level, fairMark); {
		case fair:
			parts = append(parts, pendingPart{k.Fair(p, q.Name()), true})
		case level == defaultLevel:
			parts = append(parts, pendingPart{k.Pending(q.Name()), false})
		default:
			parts = append(parts, pendingPart{k.Level(level, q.Name()), false})
		}
	}
	var ids []string
	for _, part := range parts {
		some, length, err := part.page(ctx, rdb, from, to)
		if err != nil {
			return nil, err
		}
		ids = append(ids, some...)
		if to -= length; to < 0 {
			break
		}
		from = max(0, from-length)
	}
	return ids, nil
}

// fairMark begins the entries of the set of priorities that have tasks with a fairness key.
const fairMark = "f"

// pendingPart is one of the keys in which pending tasks wait: a list, or a sorted set.
type pendingPart struct {
	key    string
	sorted bool
}

// page reads the IDs at the positions from to to, and the number of all tasks in the part.
func (p pendingPart) page(ctx context.Context, rdb redis.UniversalClient, from, to int64) ([]string, int64, error) {
	if !p.sorted {
		ids, err := rdb.LRange(ctx, p.key, from, to).Result()
		if err != nil {
			return nil, 0, err
		}
		length, err := rdb.LLen(ctx, p.key).Result()
		return ids, length, err
	}
	ids, err := rdb.ZRevRange(ctx, p.key, from, to).Result()
	if err != nil {
		return nil, 0, err
	}
	for i, member := range ids { // in the line, the ID comes last in the member
		ids[i] = member[strings.LastIndexByte(member, ' ')+1:]
	}
	length, err := rdb.ZCard(ctx, p.key).Result()
	return ids, length, err
}

// defaultLevel is queue.DefaultPriority, written as in the set of priorities.
const defaultLevel = "050"

// held lists the tasks that listeners hold. For status Started it lists the started tasks, sorted by ID. Otherwise it
// lists the tasks that have not started, by listener.
func (q *Queue) held(ctx context.Context, status queue.Status) (ids []string, err error) {
	c := q.tenant.client
	running, err := c.Store().RDB.SMembers(ctx, c.Store().Keys.Started(q.Name())).Result()
	if err != nil {
		return nil, err
	}
	started := make(map[string]bool, len(running))
	for _, entry := range running {
		// "LISTENER PID ID"; none of the three contains a space.
		if parts := strings.SplitN(entry, " ", 3); len(parts) == 3 {
			started[parts[2]] = true
		}
	}
	if status == queue.Started {
		return slices.Sorted(maps.Keys(started)), nil // a set has no order; pages need one
	}
	known, err := c.Store().RDB.SMembers(ctx, c.Store().Keys.Listeners(q.Name())).Result()
	if err != nil {
		return nil, err
	}
	nodes, err := c.Store().RDB.ZRange(ctx, c.Store().Keys.Nodes(), 0, -1).Result()
	if err != nil {
		return nil, err
	}
	listeners := slices.Compact(slices.Sorted(slices.Values(slices.Concat(known, nodes))))
	lists, err := store.Pipelined(ctx, c.Store(), listeners,
		func(p redis.Pipeliner, listener string) *redis.StringSliceCmd {
			return p.LRange(ctx, c.Store().Keys.Reserved(q.Name(), listener), 0, -1)
		})
	for _, list := range lists {
		ids, err = append(ids, list.Val()...), errors.Join(err, list.Err())
	}
	return slices.DeleteFunc(ids, func(id string) bool { return started[id] }), err
}
