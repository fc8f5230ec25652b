package admin

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/quern-project/quern/sdk/queue/manage"

	"github.com/quern-project/quern/sdk/queue"
)

const (
	// searchTasks and searchTime bound one search. Past either, it returns what it has found.
	searchTasks = 20_000
	searchTime  = 2 * time.Second
	// searchBlock is how many tasks a search reads at a time.
	searchBlock = 500
)

// Place is where a search goes on: behind the task After, in the block of a queue that begins at an offset.
type Place struct {
	Queue  string `json:"q"`
	Offset int    `json:"o"`
	After  string `json:"a,omitempty"`
}

// Cursor is the place as a text, which ParsePlace reads.
func (p Place) Cursor() string {
	text, _ := json.Marshal(p) // always can be
	return base64.RawURLEncoding.EncodeToString(text)
}

// ParsePlace reads a cursor; "" is the beginning.
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

// Search visits the tasks of a filter from a Place on, queue by queue, each queue newest first, until visit returns false or the
// budget is used up: stopped tells which. It passes over those that skip tells, if it is not nil. It returns where to go on; nil if it
// has seen everything.
func (t *Direct) Search(ctx context.Context, f *Filter, from Place, skip func(id string) bool, visit func(*queue.Task) bool) (next *Place, stopped bool, err error) {
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
			page, err := manage.New(t.Client).Queue(name).Page(ctx, manage.ListOptions{
				Status: queue.Status(f.Status), Key: f.Key, Offset: at.Offset, Limit: searchBlock, Bytes: pageBytes, Skip: skip,
			})
			if err != nil && f.Queue == "" && !queue.IsUnavailable(err) && ctx.Err() == nil {
				break // a damaged queue hides no task of others
			}
			if err != nil {
				return nil, false, err
			}
			tasks := page.Tasks
			if i := slices.IndexFunc(tasks, func(task *queue.Task) bool { return task.ID == at.After }); i >= 0 {
				tasks = tasks[i+1:]
			}
			older := false // than the filter: so is all that follows, for without a status and a key the newest come first
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
			// Behind this queue: no name of a queue has a NUL.
			return &Place{Queue: name + "\x00"}, false, nil
		}
	}
	return nil, false, nil
}
