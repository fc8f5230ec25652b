package host

import (
	"cmp"
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/quern-project/quern/sdk/queue/listen"

	"github.com/quern-project/quern/host/guest"
	"github.com/quern-project/quern/host/schedule"
	"github.com/quern-project/quern/host/trace"
	"github.com/quern-project/quern/metrics"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/redact"
	"github.com/quern-project/quern/sdk/queue"
)

// Why a task is stopped before it ends by itself, or does not run.
var (
	errDrained   = errors.New("the host is ending")          // it goes back to its queue
	errLeaseLost = errors.New("the host's lease was lost")   // it is dropped: another host runs it by now
	errCancelled = errors.New("somebody cancelled the task") // it fails
	errReplaced  = errors.New("its ID was handed out again") // it is dropped: the new run takes its place
	errNoSlot    = errors.New("no slot was free in time")    // it was reserved ahead, and goes back to its queue
)

// task is a task that this host reserved.
type task struct {
	listen.Reservation
	schedule.Slot
	life
	version *plugins.Version // retained while the task runs
	counts  *metrics.Tasks
	tenant  *tenantAccess
	// reserved is when the host got the task by Redis's clock, and taken the same by its own.
	reserved, taken time.Time

	log      taskLog
	progress atomic.Pointer[listen.ProgressReport] // the last report, until it is sent
	children *guest.Children                       // nil before the task runs, and of commands
	result   loan                                  // for the result of a dependency that the guest reads
	secrets  redact.Secrets                        // that it was given
	span     *trace.Span                           // of its run; nil without a tracer, and of a task that did not run
}

// life is the state of a task in the taskSet, which sets the fields and whose mu guards them.
type life struct {
	// number orders the tasks of a session by when they were reserved; began is when the guest began, and stop ends it, with a
	// cause: zero and nil before.
	number uint64
	began  time.Time
	stop   context.CancelCauseFunc
	// former is the run of the same ID that this one replaces and has not waited for yet. Once a run is replaced itself, replaced is
	// closed when it is over.
	former   *task
	replaced chan struct{}
	over     bool
}

// taskOf is the task of a slot that the scheduler gave, nil for none.
func taskOf(t schedule.Task) *task {
	own, _ := t.(*task)
	return own
}

// logged are fields of a line of the log about the task, with its trace if it has one.
func (t *task) logged(fields ...any) []any {
	all := append([]any{"task_id", t.ID, "queue", t.Queue.Name, "plugin", t.version.Name}, fields...)
	if id := trace.ID(t.Headers[queue.HeaderTraceparent]); id != "" {
		all = append(all, "trace_id", id)
	}
	return all
}

// permissions are the rights of the tenant's tasks of the plugin.
func (t *task) permissions() *manifest.Permissions { return t.version.Permissions(t.Queue.Tenant) }

// clock estimates Redis's time: when the task was reserved, and the time that has passed here since then.
func (t *task) clock(now time.Time) time.Time { return t.reserved.Add(now.Sub(t.taken)) }

// timeLeft is the time limit of a run: the task's own, or what is left until its deadline if that is less; 0 for none.
// ok is false if the deadline is over.
func (t *task) timeLeft(now time.Time) (limit time.Duration, ok bool) {
	if t.Deadline.IsZero() {
		return t.Timeout, true
	}
	limit = cmp.Or(t.Timeout, t.permissions().Limits.Timeout)
	left := t.Deadline.Sub(t.clock(now))
	if limit == 0 || left < limit {
		limit = left
	}
	return limit, left > 0
}

// ended is a task that has run, or was stopped.
type ended struct {
	task    *task
	outcome runtime.Outcome
	took    time.Duration
	// settlement is decided once: a repeat must be the same.
	settlement listen.Settlement
}

// size is about how many bytes of memory its settlement keeps.
func (e *ended) size() int {
	size := len(e.settlement.Result)
	for i := range e.settlement.Children {
		size += e.settlement.Children[i].Size()
	}
	for _, p := range e.settlement.Publications {
		size += len(p.Payload)
	}
	return size
}
