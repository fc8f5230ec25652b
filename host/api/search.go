package api

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/quern-project/quern/sdk/queue"
)

const (
	// searchTasks and searchTime are the budget of one search: then it answers with what it has found.
	searchTasks = 20_000
	searchTime  = 2 * time.Second
	// searchBlock is how many tasks a search reads at a time.
	searchBlock = 500
	// mostLabelBytes is what a task may have of labels.
	mostLabelBytes = 16 << 10
)

// Filter selects tasks; what it leaves out does not matter.
type Filter struct {
	Queue       string            `query:"queue" json:"queue,omitempty" maxLength:"128" doc:"Of this queue."`
	Status      string            `query:"status" json:"status,omitempty" enum:"scheduled,pending,reserved,started,complete,failed"`
	Reason      string            `query:"reason" json:"reason,omitempty" maxLength:"32" doc:"Failed for this reason, such as error, timeout or crashed."`
	Key         string            `query:"key" json:"key,omitempty" maxLength:"16384" doc:"With this key. It is found by an index."`
	Label       []string          `query:"label,explode" json:"label,omitempty" maxItems:"16" doc:"With all of these labels, NAME=VALUE."`
	Error       string            `query:"error" json:"error,omitempty" maxLength:"1000" doc:"With this text in the message of their error, large or small letters alike."`
	Plugin      string            `query:"plugin" json:"plugin,omitempty" maxLength:"200" doc:"That this plugin ran."`
	Node        string            `query:"node" json:"node,omitempty" maxLength:"400" doc:"That this listener holds or held, or one whose ID begins so."`
	Since       float64           `query:"since" json:"since,omitempty" minimum:"0" doc:"Created at this second or later."`
	Until       float64           `query:"until" json:"until,omitempty" minimum:"0" doc:"Created before this second."`
	EndedSince  float64           `query:"ended_since" json:"ended_since,omitempty" minimum:"0" doc:"Finished at this second or later."`
	EndedUntil  float64           `query:"ended_until" json:"ended_until,omitempty" minimum:"0" doc:"Finished before this second."`
	DeadLetters bool              `query:"dead_letters" json:"dead_letters,omitempty" doc:"Only dead letters."`
	labels      map[string]string // of Label
}

// Check refuses labels of another form, and what is no queue's name. It must precede Selects.
func (f *Filter) Check() (err error) {
	if size := len(strings.Join(f.Label, "")); size > mostLabelBytes {
		return failed(http.StatusBadRequest, "labels of %d bytes: no task has more than %d", size, mostLabelBytes)
	}
	if f.labels, err = pairs("label", f.Label); err == nil && f.Queue != "" {
		err = queue.ValidQueue(f.Queue)
	}
	return err
}

// pairs reads the values of a parameter that are NAME=VALUE, each name once.
func pairs(parameter string, list []string) (map[string]string, error) {
	values := make(map[string]string, len(list))
	for _, pair := range list {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, failed(http.StatusBadRequest, "%s %q: use NAME=VALUE", parameter, pair)
		}
		if _, twice := values[name]; twice {
			return nil, failed(http.StatusBadRequest, "two %ss %q: give one of them", parameter, name)
		}
		values[name] = value
	}
	return values, nil
}

// check is Check with a refusal to search for texts that this principal may not read.
func (f *Filter) check(who *Principal) error {
	if f.Error != "" && !who.reads() {
		return failed(http.StatusForbidden, "%s may not see the errors of handlers, and so not search them (payloads: false)", who.Name)
	}
	return f.Check()
}

func (f *Filter) empty() bool {
	return f.Queue == "" && f.Status == "" && f.Key == "" && !f.Narrows()
}

// Narrows tells whether Selects may refuse a task.
func (f *Filter) Narrows() bool {
	return f.Reason != "" || len(f.Label) > 0 || f.Error != "" || f.Plugin != "" || f.Node != "" ||
		f.Since > 0 || f.Until > 0 || f.EndedSince > 0 || f.EndedUntil > 0 || f.DeadLetters
}

// passes reports whether a task passes the whole filter.
func (f *Filter) passes(t *queue.Task) bool {
	return (f.Queue == "" || t.Queue == f.Queue) && (f.Status == "" || string(t.Status) == f.Status) && (f.Key == "" || t.Key == f.Key) && f.Selects(t)
}

// Selects is passes for a task of a list that is made for the filter's queue, status and key.
func (f *Filter) Selects(t *queue.Task) bool {
	for name, value := range f.labels {
		if is, ok := t.Labels[name]; !ok || is != value {
			return false
		}
	}
	if f.EndedSince > 0 || f.EndedUntil > 0 {
		ended := stamp(t.FinishedAt)
		if !t.Status.Finished() || ended < f.EndedSince || f.EndedUntil > 0 && ended >= f.EndedUntil {
			return false
		}
	}
	created := stamp(t.Created)
	return (f.Reason == "" || t.Status == queue.Failed && string(t.Failure().Reason) == f.Reason) &&
		(f.Plugin == "" || t.Plugin == f.Plugin) && strings.HasPrefix(t.Node, f.Node) &&
		created >= f.Since && (f.Until == 0 || created < f.Until) && (!f.DeadLetters || t.LiveID != "") &&
		(f.Error == "" || f.tells(t.Error) || f.tells(t.LastError))
}

// tells finds the text in the message of an error, as a task's hash has it.
func (f *Filter) tells(stored string) bool {
	failure := (&queue.Task{Error: stored}).Failure()
	return strings.Contains(strings.ToLower(failure.Message), strings.ToLower(f.Error))
}

// place is where a search goes on: behind the task After, in the block of a queue that begins at an offset.
type place struct {
	Queue  string `json:"q"`
	Offset int    `json:"o"`
	After  string `json:"a,omitempty"`
}

func (p place) cursor() string {
	text, _ := json.Marshal(p) // always can be
	return base64.RawURLEncoding.EncodeToString(text)
}

func parsePlace(cursor string) (p place, err error) {
	if cursor == "" {
		return p, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil || p.Offset < 0 {
		return p, failed(http.StatusBadRequest, "cursor %q: use the next of the page before, or leave it out", cursor)
	}
	return p, nil
}

// search visits the tasks of a filter from a place on, queue by queue, each queue newest first, until visit returns false or the
// budget is used up: stopped tells which. It passes over those that skip tells, if it is not nil. It returns where to go on; nil if it
// has seen everything.
func (t *tenant) search(ctx context.Context, f *Filter, from place, skip func(id string) bool, visit func(*queue.Task) bool) (next *place, stopped bool, err error) {
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
		at := place{Queue: name}
		if name == from.Queue {
			at = from
		}
		for more := true; more; {
			page, err := t.Queue(name).Page(ctx, queue.ListOptions{
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
				if older = f.Since > 0 && f.Status == "" && f.Key == "" && stamp(task.Created) < f.Since; older {
					break
				}
				if at.After = task.ID; f.Selects(task) && !visit(task) {
					return &at, true, nil
				}
			}
			at = place{Queue: name, Offset: page.Next}
			read, more = read+max(page.Read, 1), !page.End && !older
			if spent() && more {
				return &at, false, nil
			}
		}
		if spent() {
			// Behind this queue: no name of a queue has a NUL.
			return &place{Queue: name + "\x00"}, false, nil
		}
	}
	return nil, false, nil
}
