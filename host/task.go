package host

import (
	"context"
	"errors"
	"time"

	"github.com/quern-project/quern/host/guest"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/redact"
	"github.com/quern-project/quern/sdk/queue"
)

// errUnsettled says what became of a result that could not be written before the host ended.
var errUnsettled = errors.New("redis did not serve until the host ended: the task will run again")

// Why a running task is stopped before it ends by itself.
var (
	// errDrained gives the task back to its queue.
	errDrained = errors.New("the host is ending")
	// errLeaseLost drops it: it is another host's by now.
	errLeaseLost = errors.New("the host's lease was lost")
	// errCancelled fails it: somebody does not want it any more.
	errCancelled = errors.New("somebody cancelled the task")
)

// task is one that this host runs.
type task struct {
	queue.Reservation
	served  *served
	session *session
	version *plugins.Version
	share   *share
	// reserved is when the host got the task, by Redis's clock, and taken the same by its own.
	reserved, taken time.Time

	// number orders the tasks of a session by when they were taken; set by session.add.
	number uint64
	// stop ends the guest, with a cause; set before the guest begins, guarded by the session's mu.
	stop context.CancelCauseFunc

	log      taskLog
	progress taskProgress
	children *guest.Children // nil if it may not enqueue
	secrets  redact.Secrets  // that it was given
}

// permissions are what the task may do.
func (t *task) permissions() *manifest.Permissions { return t.version.Permissions(t.served.tenant) }

func (t *task) hold() queue.Claim { return t.Claim() }

// runner runs tasks and hands what became of them to the settler of their session.
type runner struct {
	scheduler *scheduler
	metrics   observer
	retry     queue.Retry // the host's own policy
	services  *guest.Services
}

// run runs one task from reserved to handed over. It never panics for what a guest does.
func (r *runner) run(ctx context.Context, t *task) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	t.session.begin(t, stop)
	if since := t.Since(); !since.IsZero() {
		r.metrics.started(t.served.place, t.reserved.Sub(since))
	}
	logger := t.session.logger
	if logger.IsDebug() {
		logger.Debug("task started", "task_id", t.ID, "queue", t.served.queue, "plugin", t.version.Name,
			"digest", t.version.Digest, "attempt", t.Attempts+1, "run", t.Run)
	}
	begun := time.Now()
	outcome := r.call(ctx, t)
	r.metrics.ran(t, outcome)
	end := ending{task: t, outcome: outcome, took: time.Since(begun)}
	end.settlement = settlement(end, r.retry)
	t.Parameters = nil
	r.scheduler.end(t, end.size())
	t.version.Release()
	t.session.settler.put(end)
	t.session.underway.end()
}

// call fetches what is missing and runs the guest.
func (r *runner) call(ctx context.Context, t *task) runtime.Outcome {
	if limits := t.permissions().Limits; t.Large && t.Size > limits.Input {
		return t.permissions().Explain(runtime.InputExceeded(limits, t.Size)) // not fetched only to be refused
	}
	input, kept, err := t.fetch(ctx)
	switch {
	case ctx.Err() != nil:
		return runtime.Outcome{Kind: runtime.Cancelled, Err: context.Cause(ctx)}
	case errors.Is(err, queue.ErrNoTask):
		return runtime.Outcome{Kind: runtime.Cancelled, Err: err}
	case err != nil:
		return runtime.Outcome{Kind: runtime.HostFault, Err: err}
	}
	timeout, ok := t.timeLeft(time.Now())
	if !ok {
		return runtime.Outcome{Kind: runtime.LimitExceeded, Limit: runtime.Limit{Name: "timeout", Value: "0s"}, Message: "its deadline is over"}
	}
	return t.version.Run(ctx, t.served.tenant, runtime.Call{
		TaskID: t.ID, Queue: t.served.queue, Timeout: timeout,
		Attempt: t.Attempts + 1, MaxAttempts: t.policy(r.retry).Attempts(), Input: input, Checkpoint: kept,
		Progress:      func(fraction float64, message string) { t.progress.set(fraction, message) },
		PreviousError: t.Last.Message, Parent: t.Parent, Key: t.Key, Traceparent: t.Traceparent,
		Ending:   t.session.owner().ending,
		Services: r.servicesOf(t),
		Secrets:  &t.secrets,
		Denied: func(function, reason string) {
			t.session.logger.Warn("a function of quern_v1 was refused", "task_id", t.ID, "queue", t.served.queue, "plugin", t.version.Name,
				"function", function, "error", reason)
		},
		Log: func(line string) {
			t.session.logger.Info("plugin says", "task_id", t.ID, "queue", t.served.queue, "plugin", t.version.Name, "line", line)
			if dropped := t.log.add(line); dropped > 0 {
				r.metrics.logLinesDropped(t.served.place, dropped)
			}
		},
	})
}

// fetch gets from Redis what did not come with the reserve: large parameters, and what an earlier run
// of the task kept. A first run has nothing to ask for.
func (t *task) fetch(ctx context.Context) (input, kept []byte, err error) {
	input = t.Parameters
	if t.Large {
		if input, err = t.session.parameters(ctx, t.ID); err != nil {
			return nil, nil, err
		}
	}
	if t.Run > 1 {
		kept, err = t.session.checkpoint(ctx, t.ID)
	}
	return input, kept, err
}
