package host

import (
	"cmp"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/quern-project/quern/host/guest"
	"github.com/quern-project/quern/host/schedule"
	"github.com/quern-project/quern/host/sql"
	"github.com/quern-project/quern/host/trace"
	"github.com/quern-project/quern/metrics"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/redact"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// errNoSlot is the cause for which a task that was reserved ahead goes back to its queue without a run.
var errNoSlot = errors.New("no slot was free in time")

// errTooLate is the outcome's error of a task that did not run because its deadline was over.
var errTooLate = errors.New("its deadline is over")

// task is a task that this host reserved.
type task struct {
	listen.Task
	schedule.Slot
	version *plugins.TenantVersion // retained while the task runs
	release int                    // the number of the release that version is; 0 if it is none
	apart   bool                   // this host lacks the canary of the plugin, so the task is not comparable
	bound   []string               // the queues whose tasks may wait for the end of this one, by max_running; else nil
	side    string                 // sideCanary or sideStable while the plugin has a canary, else ""
	counts  *metrics.Tasks
	tenant  *tenantAccess

	log       taskLog
	progress  atomic.Pointer[listen.ProgressReport] // the last report; nil once it is sent
	children  *guest.Children                       // nil before the task runs, and for commands
	databases *sql.Run                              // nil if the manifest asks for none
	result    loan                                  // memory for the result of a dependency that the guest has read
	secrets   redact.Secrets                        // the secrets that the guest was given
	// span is the span of the run. It is nil without a tracer, or if the task did not run.
	span     *trace.Span
	recorder *recorder // nil if the run is not recorded
}

// The sides of the tasks of a plugin that has a canary.
const (
	sideCanary = "canary"
	sideStable = "stable"
)

// taskOf returns the *task that a schedule.Task, or the Value of a listen.Task, holds. It returns nil for nil.
func taskOf(t any) *task {
	own, _ := t.(*task)
	return own
}

// created returns what distinguishes the task from others that had the same ID: when it was created, and when it was
// retried by hand, which makes it a task anew.
func (t *task) created() string {
	text := strconv.FormatInt(t.Created.UnixMicro(), 10)
	if !t.RetriedAt.IsZero() {
		text += "+" + strconv.FormatInt(t.RetriedAt.UnixMicro(), 10)
	}
	return text
}

// logged returns the fields of a log line about the task, with its trace ID if it has one.
func (t *task) logged(fields ...any) []any {
	all := append([]any{"task_id", t.ID, "queue", t.Queue.Name, "plugin", t.version.Name}, fields...)
	if t.release > 0 {
		all = append(all, "release", t.release)
	}
	if id := trace.ID(t.Headers[queue.HeaderTraceparent]); id != "" {
		all = append(all, "trace_id", id)
	}
	return all
}

// timeLeft returns the time limit for a run: the task's own, or the time until its deadline if that is shorter; 0 if
// the task sets neither. ok is false if the deadline is over.
func (t *task) timeLeft(now time.Time) (limit time.Duration, ok bool) {
	if t.Deadline.IsZero() {
		return t.Timeout, true
	}
	limit = cmp.Or(t.Timeout, t.version.Permissions.Limits.Timeout)
	left := t.Deadline.Sub(t.Clock(now))
	if limit == 0 || left < limit {
		limit = left
	}
	return limit, left > 0
}

// ended is a task whose run is over, or that was stopped before it ran.
type ended struct {
	task    *task
	outcome runtime.Outcome
	took    time.Duration
	// settlement is decided once, because a repeated write must be the same.
	settlement listen.Settlement
	// unknown is why it is not known whether the task's database has committed; nil if it is known.
	unknown *sql.UnknownError
	// record is the record of the run that is to be kept; nil for none, and once it is stored.
	record *listen.RunRecord
	// away is why the task was put off because its database does not serve; nil if it was not.
	away error
}

// size returns about how many bytes of memory the settlement keeps.
func (e *ended) size() int {
	size := len(e.settlement.Result)
	if e.record != nil {
		size += len(e.record.Bytes)
	}
	for i := range e.settlement.Children {
		size += e.settlement.Children[i].Size()
	}
	for _, p := range e.settlement.Publications {
		size += len(p.Payload)
	}
	return size
}
