package host

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"github.com/quern-project/quern/host/schedule"
	"github.com/quern-project/quern/host/trace"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/service"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// runner runs the tasks of a session.
type runner struct {
	*common
	access   *tenantAccess
	settler  *settler
	draining <-chan struct{} // closed when the tenant is drained
}

// run runs a reserved task, and then the tasks of its queue that were reserved ahead and get its slot. All run on the
// same goroutine, because waking another goroutine takes longer than many of these tasks run.
func (r *runner) run(ctx context.Context, t *task) {
	for t != nil {
		t = r.runOne(ctx, t)
	}
}

// runOne runs a task and hands its outcome to the settler. It returns the task that gets the slot next, or nil. No
// guest can make it panic.
func (r *runner) runOne(ctx context.Context, t *task) (next *task) {
	ctx, stop := context.WithCancelCause(ctx)
	tasks := &r.access.listener.Tasks
	tasks.Begin(&t.Task, stop)
	begun := time.Now()
	if tracer := r.config.Tracer; tracer != nil {
		t.span, t.Headers = tracer.Begin(t.traced(r.access, begun))
	}
	if wait, known := t.Waited(); known {
		t.counts.Started(trace.SampledID(t.Headers[queue.HeaderTraceparent]), wait)
		r.settler.tally.started(t, wait)
	}
	if logger := r.access.logger; logger.IsDebug() {
		logger.Debug("task started", t.logged("digest", t.version.Digest, "attempt", t.Attempts+1, "run", t.Run)...)
	}
	e := r.attempt(ctx, t)
	var err error
	if e.record, err = recordOf(e); err != nil {
		r.access.logger.Warn("the record of a run is lost", t.logged("run", t.Run, "error", err)...)
	}
	// Count the task now: it may be settled much later, or never.
	t.counts.Ran(e.outcome.CPU, e.outcome.Fuel)
	now := time.Now()
	e.took = now.Sub(begun)
	r.settler.tally.ran(e, e.took)
	t.span.Ran(reasonOf(e), e.outcome.CPU, e.outcome.Fuel)
	t.Parameters = nil
	t.result.end()
	// The duration does not include the wait for the first turn at the gate, because that wait is long with many slots.
	took := e.outcome.GuestTime + e.outcome.WaitTime
	switch {
	case took == 0:
		took = schedule.Unknown
	case t.Large || t.Checkpointed:
		took = e.took // includes the calls to Redis in fetch
	}
	next = taskOf(r.scheduler.Ended(&t.Slot, schedule.Run{
		Took: took, Waited: took - e.outcome.GuestTime, Computed: e.outcome.CPU, Result: e.size(),
	}, now))
	t.version.Release()
	settle := func() {
		defer stop(nil)
		r.settler.put(e)
		tasks.Ran(&t.Task)
	}
	if e.unknown != nil { // tasks.Ran, for which the session waits, ends this goroutine
		go func() {
			r.resolve(ctx, e)
			settle()
		}()
		return next
	}
	settle()
	return next
}

// traced returns the task's attributes for its span.
func (t *task) traced(access *tenantAccess, begun time.Time) trace.Task {
	since := begun
	if taken := t.Taken(); !taken.IsZero() {
		wait, _ := t.Waited()
		since = taken.Add(-wait) // by this host's clock
	}
	return trace.Task{
		Tenant: t.Queue.Tenant, Queue: t.Queue.Name, ID: t.ID, Plugin: t.version.Name, Version: t.version.Manifest.Version,
		Digest: t.version.Digest, Listener: access.listener.ID(), Attempt: t.Attempts + 1, Size: t.Size, Headers: t.Headers,
		Since: since,
	}
}

// reasonOf returns why a run failed, or "" if the task is complete or was stopped by its host.
func reasonOf(e *ended) string {
	if f := e.settlement.Failure; f != nil && (e.outcome.Kind != runtime.Cancelled || f.Reason == queue.ReasonCancelled) {
		return string(f.Reason)
	}
	return ""
}

// giveBack hands tasks that did not run to the settler, which returns them to their queues. It hands over all of them
// at once, so that they keep their order.
func (r *runner) giveBack(waiting []schedule.Task) {
	list, tasks := make([]*ended, len(waiting)), make([]*listen.Task, len(waiting))
	for i := range waiting {
		t := taskOf(waiting[i])
		tasks[i] = &t.Task
		t.version.Release()
		list[i] = &ended{task: t, outcome: runtime.Outcome{Kind: runtime.Cancelled, Err: errNoSlot}}
	}
	r.settler.put(list...)
	r.access.listener.Tasks.Ran(tasks...)
}

// call fetches the parameters and the checkpoint that did not come with the reserve, and runs the guest.
func (r *runner) call(ctx context.Context, t *task, services service.Services) runtime.Outcome {
	if allowed := t.version.Permissions; t.Large && t.Size > allowed.Limits.Input {
		return runtime.InputExceeded(allowed.Limits, t.Size) // not fetched only to be refused
	}
	input, checkpoint, err := fetch(ctx, t)
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
		return runtime.Outcome{
			Kind: runtime.LimitExceeded, Limit: runtime.Limit{Name: "timeout", Value: "0s"},
			Message: errTooLate.Error(), Err: errTooLate,
		}
	}
	lines := &guestLog{logger: r.access.logger, task: t}
	defer lines.flush()
	var refused atomic.Pointer[string] // the function of the last denial, whose line in the task's log comes next
	call := runtime.Call{
		TaskID: t.ID, Queue: t.Queue.Name, Timeout: timeout,
		Attempt: t.Attempts + 1, MaxAttempts: t.policy(r.config.Retry).Attempts(), Reschedules: t.Reschedules,
		Input: input, Checkpoint: checkpoint,
		Progress: func(fraction float64, message string) {
			t.progress.Store(&listen.ProgressReport{Claim: t.Claim(), Queue: t.Queue.Name, Fraction: fraction, Message: message})
		},
		PreviousError: t.Last.Message, Parent: t.Parent, Key: t.Key, Traceparent: t.Headers[queue.HeaderTraceparent],
		Headers:  t.Headers,
		Ending:   r.draining,
		Services: services,
		Secrets:  &t.secrets,
		Denied: func(function, reason string) {
			r.access.logger.Warn("a host function was refused", t.logged("function", function, "error", reason)...)
			refused.Store(&function)
		},
		Log: func(line string) {
			if function := refused.Swap(nil); function == nil || !strings.Contains(line, "."+*function+": ") {
				lines.add(line)
			}
			if dropped := t.log.add(line); dropped > 0 {
				r.metrics.LogLinesDropped(t.Queue.Tenant, t.Queue.Name, dropped)
			}
		},
	}
	t.record(&call)
	outcome := t.version.Run(ctx, call)
	if t.recorder != nil {
		t.recorder.outcome = outcome
	}
	return outcome
}

// fetch gets from Redis what did not come with the reserve: large parameters, and the checkpoint of an earlier run.
func fetch(ctx context.Context, t *task) (input, checkpoint []byte, err error) {
	input = t.Parameters
	if t.Large {
		if err = listen.Persist(ctx, func(context.Context) error {
			input, err = t.tenant.client.Parameters(ctx, t.ID,
				t.Size)
			return err
		}); err != nil {
			return nil, nil, err
		}
	}
	if t.Checkpointed {
		err = listen.Persist(ctx, func(context.Context) error {
			checkpoint, err = t.tenant.listener.ReadCheckpoint(ctx,
				t.ID)
			return err
		})
	}
	return input, checkpoint, err
}
