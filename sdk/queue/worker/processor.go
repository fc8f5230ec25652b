package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/internal/store"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

// Processor starts and ends a task that a listener reserved. The error queue.ErrLost means that another listener has
// the task now, and that nothing was written. queue.ErrNoTask means that the task was deleted. A call that would let a
// cancelled task run again fails the task instead, and returns queue.ErrCancelled. If Redis was away, the call can be
// repeated.
type Processor struct {
	client *queue.Client
	task   *queue.Task
	pid    int
}

// NewProcessor makes a processor for a task that TryListen or Listen returned.
func NewProcessor(c *queue.Client, task *queue.Task) *Processor {
	return &Processor{client: c, task: task, pid: cmp.Or(task.PID, os.Getpid())}
}

// Start marks the task as started by a process (0: this one) and returns its parameters.
func (p *Processor) Start(ctx context.Context, pid int) ([]byte, error) {
	p.pid = cmp.Or(pid, os.Getpid()) // the PID in the hash may belong to an earlier run
	claim, err := p.node().Start(ctx, p.task.Queue, p.claim())
	if err != nil {
		return nil, err
	}
	p.task.Born = claim.Born
	return p.task.Parameters, nil
}

// Complete stores the result and finishes the task.
func (p *Processor) Complete(ctx context.Context, result []byte) error {
	return p.settle(ctx, listen.Settlement{Claim: p.claim(), Result: result})
}

// Fail stores the failure and finishes the task. The default reason is queue.ReasonError. The error queue.ErrNoLetter
// means that the task has failed, but has no dead letter. Do not repeat the call then.
func (p *Processor) Fail(ctx context.Context, failure queue.Failure) error {
	return p.settle(ctx, listen.Settlement{Claim: p.claim(), Failure: &failure})
}

// Release gives the task back to the front of its queue. It counts no attempt, reschedule or reject.
func (p *Processor) Release(ctx context.Context) error {
	errs, err := p.node().Release(ctx, p.task.Queue, []listen.Claim{p.claim()})
	return cmp.Or(err, errors.Join(errs...))
}

// Retry ends the current attempt as failed. The task waits for its next attempt as its own policy says; fields that its
// own policy does not set are taken from policy. Without attempts left, the task fails for good. (Queue.Retry is for
// operators: it runs such a task again.)
func (p *Processor) Retry(ctx context.Context, failure queue.Failure, policy queue.Retry) error {
	s := listen.Settlement{Claim: p.claim(), Failure: &failure}
	return p.settle(ctx, s.TryAgain(p.task.Retry.WithDefaults(policy), p.task.Attempts+1))
}

// Reschedule puts the task off without counting an attempt. It fails the task if it was put off MaxReschedules times
// before.
func (p *Processor) Reschedule(ctx context.Context, delay time.Duration, why string) error {
	failure := queue.Failure{Reason: queue.ReasonError, Message: why, RetryAfter: delay.Seconds()}
	s := listen.Settlement{Claim: p.claim(), Failure: &failure}
	return p.settle(ctx, s.PutOff(p.task.Retry, p.task.Reschedules, delay))
}

const (
	// maxRejects is how often a task can be rejected. The next reject fails the task.
	maxRejects = 100
	// rejectDelay is how long a task waits after its first reject. The delay doubles with each reject, up to
	// maxRejectDelay.
	rejectDelay    = time.Second
	maxRejectDelay = time.Minute
)

// Reject gives the task to another listener of the queue that has not rejected it yet. The task waits for 1 s after its
// first reject, then 2 s, and so on up to a minute. No attempt is counted. After 100 rejects the task fails. A task
// whose Retry.MaxReschedules is -1 fails at once.
func (p *Processor) Reject(ctx context.Context, why string) error {
	failure := queue.Failure{Reason: queue.ReasonRejected, Message: why}
	if p.task.Rejects >= maxRejects || p.task.Retry.MaxReschedules < 0 {
		return p.Fail(ctx, failure)
	}
	delay := periodic.Doubled(rejectDelay, maxRejectDelay, p.task.Rejects)
	return p.settle(ctx, listen.Settlement{
		Claim: p.claim(), Failure: &failure, Requeue: listen.RequeueReject,
		Delay: delay,
	})
}

// Progress reports how far the task has progressed, from 0 to 1, and a message about what it does now.
func (p *Processor) Progress(ctx context.Context, fraction float64, message string) error {
	report := listen.ProgressReport{Claim: p.claim(), Queue: p.task.Queue, Fraction: fraction, Message: message}
	return p.node().Progress(ctx, []listen.ProgressReport{report})[0]
}

// Checkpoint stores up to 1 MiB for the task's next run, even if this run ends in a crash. listen.Node.ReadCheckpoint
// reads it.
func (p *Processor) Checkpoint(ctx context.Context, value []byte) error {
	return p.node().Checkpoint(ctx, p.task.Queue, p.claim(), value)
}

func (p *Processor) settle(ctx context.Context, settlement listen.Settlement) error {
	if settlement.Requeue != "" && !p.task.Expires.IsZero() {
		now, err := p.client.Store().Now(ctx)
		if err != nil {
			return fmt.Errorf("task %s: %w", p.task.ID, err)
		}
		settlement = settlement.NoLaterThan(p.task.Expires, now)
	}
	errs, err := p.node().Settle(ctx, p.task.Queue, []listen.Settlement{settlement})
	return cmp.Or(store.Wrap("task "+p.task.ID, err), errors.Join(errs...))
}

func (p *Processor) claim() listen.Claim {
	return listen.Claim{ID: p.task.ID, Run: p.task.Run, Born: p.task.Born}
}

// node returns the listener that reserved the task, by the ID in the task.
func (p *Processor) node() *listen.Node {
	return listen.NodeAs(p.client, p.task.Node, p.pid)
}

// isOver reports whether err means that this listener is done with the task: another listener has it, or it was
// deleted, or it has failed.
func isOver(err error) bool {
	return errors.Is(err, queue.ErrLost) || errors.Is(err, queue.ErrNoTask) || errors.Is(err, queue.ErrCancelled) ||
		errors.Is(err, queue.ErrNoLetter)
}
