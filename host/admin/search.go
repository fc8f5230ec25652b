package admin

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/manage"
)

const (
	// searchTasks and searchTime bound one search. At either bound the search returns the tasks found so far.
	searchTasks = 20_000
	searchTime  = 2 * time.Second
	// searchBlock is how many tasks a search reads at a time.
	searchBlock = 500
)

// Place is where a search continues: in the queue Queue, in the block of tasks that begins at index Offset, with the
// task that follows the one with the ID After.
type Place struct {
	Queue  string `json:"q"`
	Offset int    `json:"o"`
	After  string `json:"a,omitempty"`
}

// Cursor returns the place as text, which ParsePlace reads.
func (p Place) Cursor() string {
	text, _ := json.Marshal(p) // encoding a Place never fails
	return base64.RawURLEncoding.EncodeToString(text)
}

// ParsePlace parses the text that Cursor returns. An empty cursor is the beginning.
func ParsePlace(cursor string) (p Place, err error) {
	if cursor == "" {
		return p, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil || p.Offset < 0 {
		return p, fmt.Errorf("%w: cursor %q: use the next of the page before, or leave it out", queue.ErrInvalid, cursor)
	}
	return p, nil
}

// Search visits the tasks that a filter selects, beginning at the Place from: queue by queue, and in each queue the
// newest task first. It passes over tasks for which skip returns true; skip can be nil. Search ends when visit returns
// false, and then stopped is true. It also ends at the bounds searchTasks and searchTime. next is where the next call
// continues; it is nil if Search has seen everything.
func (t *Direct) Search(ctx context.Context, f *Filter, from Place, skip func(id string) bool,
	visit func(*queue.Task) bool,
) (next *Place, stopped bool, err error) {
	queues := []string{f.Queue}
	if f.Queue == "" {
		known, err := t.Queues(ctx)
		if err != nil {
			return nil, false, err
		}
		queues = slices.Sorted(maps.Keys(known))
	}
	until := time.Now().Add(searchTime)
	read := 0
	spent := func() bool { return read >= searchTasks || time.Now().After(until) }
	for _, name := range queues {
		if name < from.Queue {
			continue
		}
		at := Place{Queue: name}
		if name == from.Queue {
			at = from
		}
		for more := true; more; {
			page, err := t.Manager.Queue(name).Page(ctx, manage.ListOptions{
				Status: queue.Status(f.Status), Key: f.Key, Offset: at.Offset, Limit: searchBlock, Bytes: pageBytes, Skip: skip,
			})
			if err != nil && f.Queue == "" && !queue.IsUnavailable(err) && ctx.Err() == nil {
				break // a damaged queue must not hide tasks of other queues
			}
			if err != nil {
				return nil, false, err
			}
			tasks := page.Tasks
			if i := slices.IndexFunc(tasks, func(task *queue.Task) bool { return task.ID == at.After }); i >= 0 {
				tasks = tasks[i+1:]
			}
			// Without status and key the newest tasks come first: if one is older than f.Since, so are those after it.
			older := false
			for _, task := range tasks {
				if older = f.Since > 0 && f.Status == "" && f.Key == "" && Seconds(task.Created) < f.Since; older {
					break
				}
				if at.After = task.ID; f.Selects(task) && !visit(task) {
					return &at, true, nil
				}
			}
			at = Place{Queue: name, Offset: page.Next}
			read, more = read+max(page.Read, 1), !page.End && !older
			if spent() && more {
				return &at, false, nil
			}
		}
		if spent() {
			// Continue after this queue. No queue's name contains NUL, so this name sorts before the next queue's.
			return &Place{Queue: name + "\x00"}, false, nil
		}
	}
	return nil, false, nil
}
