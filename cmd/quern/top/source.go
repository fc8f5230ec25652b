// Package top implements the full screen of `quern top`: the changing queues, running tasks, failures and hosts of a
// tenant. Anybody can have written a tenant's texts, so they reach the terminal without control characters.
package top

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/doctor"
	"github.com/quern-project/quern/sdk/queue"
)

// View is what the screen shows: one of four lists, the tasks of a queue, or one task.
type View int

// The views. The first four are in the order of their keys.
const (
	Queues View = iota
	Running
	Failures
	Hosts
	inQueue // the tasks of one queue
	inTask
)

// place is what the screen shows: a view, and in it a queue and a status, or a task.
type place struct {
	view   View
	queue  string
	status queue.Status
	task   string
	filter string // text that the shown rows contain
	row    string // key of the row under the cursor; "" for the first row
	index  int    // index of that row; if the row disappears, the cursor stays at the index
}

// Look is what one look has read. Clock is its time by Redis's clock.
type Look struct {
	Clock  time.Time
	Queues []admin.Queue
	All    int64 // number of entries of the view, also of those that were not read
	Tasks  []admin.Task
	Hosts  []admin.Node
	// Wrong holds the doctor's findings of some seconds ago, the worst first.
	Wrong []doctor.Finding
}

// Task is one task with its log. Clock is the time of the look by Redis's clock.
type Task struct {
	*admin.Task
	Clock time.Time
	Log   []admin.LogLine
}

// Maximum numbers of what one look reads.
const (
	maxQueues     = 500
	maxTasks      = 200
	maxTaskQueues = 20 // queues from which tasks are read
	maxHosts      = 200
	maxLog        = 500
)

// source reads a tenant. Each read is bounded, however many queues and tasks there are.
type source struct {
	client admin.Tenant

	mu       sync.Mutex // guards the fields below; held while the doctor looks
	examined time.Time
	wrong    []doctor.Finding
}

// examineEvery is the maximum age of the doctor's findings.
const examineEvery = 10 * time.Second

// examine returns the doctor's findings, and reads them again if they are too old. Without the permission there are
// none.
func (s *source) examine(ctx context.Context) []doctor.Finding {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.examined) > examineEvery {
		s.wrong, _ = s.client.Findings(ctx, s.client.Tenant())
		s.examined = time.Now()
	}
	return s.wrong
}

// look reads what a place shows. before is the previous look; nil if there is none.
func (s *source) look(ctx context.Context, at place, before *Look) (look *Look, err error) {
	look = &Look{}
	if look.Clock, err = s.client.Clock(ctx); err != nil {
		return nil, err
	}
	look.Wrong = s.examine(ctx)
	switch {
	case at.queue != "":
		look.Tasks, err = s.client.List(ctx, &admin.Filter{Queue: at.queue, Status: string(at.status)}, 0, maxTasks)
		if len(look.Tasks) > 0 && errors.Is(err, queue.ErrDamaged) {
			err = nil
		}
		return look, err
	case at.view == Hosts:
		look.Hosts, err = s.client.Leased(ctx, maxHosts+1)
		look.All = int64(len(look.Hosts))
		look.Hosts = look.Hosts[:min(len(look.Hosts), maxHosts)]
		return look, err
	}
	if look.Queues, look.All, err = s.client.BusiestQueues(ctx, maxQueues); err != nil {
		return nil, err
	}
	switch at.view {
	case Running:
		err = s.tasks(ctx, look, queue.Started, nil)
	case Failures:
		known := make(map[string]int64)
		if before != nil {
			for _, q := range before.Queues {
				known[q.Queue] = q.Totals["failed"]
			}
		}
		err = s.tasks(ctx, look, queue.Failed, known)
	}
	return look, err
}

// tasks reads tasks of a status from the queues that have the most of them. It prefers queues whose totals have grown
// since the previous look, which had the totals before.
func (s *source) tasks(ctx context.Context, look *Look, status queue.Status, before map[string]int64) error {
	weights := make(map[string]int64, len(look.Queues))
	var names []string
	look.All = 0
	for _, q := range look.Queues {
		n := q.Depth(status)
		if n == 0 || q.Err != nil {
			continue
		}
		look.All += n
		names, weights[q.Queue] = append(names, q.Queue), n
		if old, known := before[q.Queue]; known && q.Totals[string(status)] > old {
			weights[q.Queue] = math.MaxInt32 + q.Totals[string(status)] - old
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(weights[b], weights[a]), cmp.Compare(a, b)) })
	names = names[:min(len(names), maxTaskQueues)]
	for _, name := range names {
		some, err := s.client.List(ctx, &admin.Filter{Queue: name, Status: string(status)}, 0, maxTasks/len(names))
		if err != nil && !errors.Is(err, queue.ErrDamaged) {
			return err
		}
		look.Tasks = append(look.Tasks, some...)
	}
	return nil
}

// task reads one task. The error is queue.ErrNoTask if there is none. before is the result of the previous look; nil if
// there is none. Parameters and result can be large, and do not change during a run, so they are copied from before.
func (s *source) task(ctx context.Context, id string, before *Task) (*Task, error) {
	clock, err := s.client.Clock(ctx)
	if err != nil {
		return nil, err
	}
	task, err := s.client.Summary(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case before != nil && before.Status == task.Status && before.Run == task.Run:
		task.Parameters, task.ParametersBase64 = before.Parameters, before.ParametersBase64
		task.Result, task.ResultBase64 = before.Result, before.ResultBase64
	default:
		if task, err = s.client.Task(ctx, id); err != nil {
			return nil, err
		}
	}
	lines, err := s.client.Log(ctx, id, 0)
	if err != nil && !errors.Is(err, admin.ErrForbidden) { // the token does not allow to read it
		return nil, err
	}
	return &Task{Task: task, Clock: clock, Log: lines[max(0, len(lines)-maxLog):]}, nil
}
