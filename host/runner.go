package host

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/host/guest"
	"github.com/quern-project/quern/metrics"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/sdk/queue"
)

// runner runs the tasks of a session.
type runner struct {
	tasks    *taskSet
	access   *tenantAccess
	metrics  *metrics.Metrics
	logger   hclog.Logger
	retry    queue.Retry // the host's own policy
	services *guest.Services
	draining <-chan struct{} // closed when the tenant is drained
	// ran frees the slot of a task that has run, and settle settles it.
	ran    func(of *slot, result int)
	settle func(*ended)
}

// run runs one task from reserved to handed over. It never panics for what a guest does.
func (r *runner) run(ctx context.Context, t *task) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	r.tasks.begin(t, stop)
	if since := t.Since(); !since.IsZero() {
		r.metrics.TaskStarted(t.served.tenant, t.served.queue, max(0, t.reserved.Sub(since)))
	}
	if r.logger.IsDebug() {
		r.logger.Debug("task started", "task_id", t.ID, "queue", t.served.queue, "plugin", t.version.Name,
			"digest", t.version.Digest, "attempt", t.Attempts+1, "run", t.Run)
	}
	begun := time.Now()
	e := &ended{task: t, outcome: r.call(ctx, t)}
	// Counted now, not when it is settled, which may be long after, or never.
	r.metrics.TaskRan(t.served.tenant, t.served.queue, t.version.Name, e.outcome.CPU, e.outcome.Fuel)
	e.took = time.Since(begun)
	e.settlement = settlement(e, r.retry)
	t.Parameters = nil
	r.ran(&t.slot, e.size())
	t.version.Release()
	r.settle(e)
	r.tasks.ran()
}

// call fetches what is missing and runs the guest.
func (r *runner) call(ctx context.Context, t *task) runtime.Outcome {
	if limits := t.permissions().Limits; t.Large && t.Size > limits.Input {
		return t.permissions().Explain(runtime.InputExceeded(limits, t.Size)) // not fetched only to be refused
	}
	input, checkpoint, err := fetch(ctx, r.access.client, t)
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
		Attempt: t.Attempts + 1, MaxAttempts: t.policy(r.retry).Attempts(), Input: input, Checkpoint: checkpoint,
		Progress:      t.progress.set,
		PreviousError: t.Last.Message, Parent: t.Parent, Key: t.Key, Traceparent: t.Traceparent,
		Ending:   r.draining,
		Services: r.servicesOf(t),
		Secrets:  &t.secrets,
		Denied: func(function, reason string) {
			r.logger.Warn("a function of quern_v1 was refused", "task_id", t.ID, "queue", t.served.queue, "plugin", t.version.Name,
				"function", function, "error", reason)
		},
		Log: func(line string) {
			r.logger.Info("plugin says", "task_id", t.ID, "queue", t.served.queue, "plugin", t.version.Name, "line", line)
			if dropped := t.log.add(line); dropped > 0 {
				r.metrics.LogLinesDropped(t.served.tenant, t.served.queue, dropped)
			}
		},
	})
}

// fetch gets from Redis what did not come with the reserve: large parameters, and the checkpoint of an earlier run.
func fetch(ctx context.Context, client *queue.Client, t *task) (input, checkpoint []byte, err error) {
	input = t.Parameters
	if t.Large {
		if err = persist(ctx, func() error { input, err = client.Parameters(ctx, t.ID); return err }); err != nil {
			return nil, nil, err
		}
	}
	if t.Run > 1 {
		err = persist(ctx, func() error { checkpoint, err = client.Checkpoint(ctx, t.ID); return err })
	}
	return input, checkpoint, err
}
