// Package top is the full-screen view of `quern top`: queues, running tasks, failures and hosts of a tenant, which
// change as it is looked at. What it shows comes from a Source, whose texts may be anybody's: they reach the terminal
// without control characters.
package top

import (
	"context"
	"time"

	"github.com/quern-project/quern/host/admin"
	"github.com/quern-project/quern/host/doctor"
	"github.com/quern-project/quern/sdk/queue"
)

// Source reads a tenant, and changes its tasks. Each read is bounded, however many queues and tasks there are.
type Source interface {
	// Look reads what a view shows.
	Look(ctx context.Context, want Want) (*Look, error)
	// Task reads one task: queue.ErrNoTask if there is none. before is how it was, nil at first.
	Task(ctx context.Context, id string, before *Task) (*Task, error)
	// Cancel cancels a task, and reports whether it has ended: a running task is only asked to.
	Cancel(ctx context.Context, queue, id string) (done bool, err error)
	// Retry makes a failed task wait in its queue again.
	Retry(ctx context.Context, id string) error
}

// View is what the screen shows.
type View int

// The views, in the order of their keys.
const (
	Queues View = iota
	Running
	Failures
	Hosts
	inQueue // the tasks of one queue
	inTask
)

// Want is what to read: View, or the tasks of a status ("" for any) in a queue if it is named. Before is the last look,
// nil for none.
type Want struct {
	View   View
	Queue  string
	Status queue.Status
	Before *Look
}

// Look is what was read at a time by Redis's clock.
type Look struct {
	Clock  time.Time
	Queues []admin.Queue
	All    int64 // how many there are of what the view lists, which may be more than were read
	Tasks  []admin.Task
	Hosts  []admin.Node
	// Wrong is what the doctor finds, the worst first, as of some seconds ago.
	Wrong []doctor.Finding
}

// Task is one task with its past, as it was by Redis's clock.
type Task struct {
	*admin.Task
	Clock time.Time
	Log   []admin.LogLine
}
