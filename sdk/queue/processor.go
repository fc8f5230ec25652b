package queue

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"
)

// Processor tells Redis what becomes of a task that a listener reserved. Its calls prove that the
// task is still held: ErrLost means that it is another's now and nothing was written, ErrNoTask that
// it was deleted. What would have a task run again that somebody has cancelled fails it, and says
// ErrCancelled. When Redis was away they may be repeated.
type Processor struct {
	client *Client
	task   *Task
	pid    int
}

// Processor makes the processor of a task that TryListen or Listen returned.
func (c *Client) Processor(task *Task) *Processor {
	pid := task.PID
	if pid == 0 {
		pid = os.Getpid()
	}
	return &Processor{client: c, task: task, pid: pid}
}

// Start marks the task as started by a process (0: this one) and returns its parameters.
func (p *Processor) Start(ctx context.Context, pid int) ([]byte, error) {
	if pid == 0 {
		pid = os.Getpid() // what the hash says may be of an earlier run
	}
	p.pid = pid
	if err := p.node().Start(ctx, p.task.Queue, p.hold()); err != nil {
		return nil, err
	}
	return p.task.Parameters, nil
}

// Complete stores the result and finishes the task.
func (p *Processor) Complete(ctx context.Context, result []byte) error {
	return p.settle(ctx, Settlement{Hold: p.hold(), Result: result})
}

// Fail stores the failure and finishes the task; a reason that is missing is ReasonError. ErrNoLetter says that the task has
// failed and has no dead letter: the call must not be repeated.
func (p *Processor) Fail(ctx context.Context, failure Failure) error {
	return p.settle(ctx, Settlement{Hold: p.hold(), Failure: &failure})
}

// Release gives the task back to the front of its queue; nothing is counted.
func (p *Processor) Release(ctx context.Context) error {
	errs, err := p.node().Release(ctx, p.task.Queue, []Hold{p.hold()})
	if err != nil {
		return err
	}
	return errs[0]
}

// Retry ends the attempt that its listener makes just now, as failed: if the task's policy (a value of the
// type Retry), over the one given, has another attempt the task waits for it, for the policy's delay; else
// it has failed for good. It is not Queue.Retry, by which somebody has a task tried again that did.
func (p *Processor) Retry(ctx context.Context, failure Failure, policy Retry) error {
	return p.settle(ctx, failureOf(p.hold(), p.task.Attempts, p.task.Retry.Over(policy), failure))
}

// failureOf makes of a failure what the policy says after so many attempts before.
func failureOf(hold Hold, attempts int, policy Retry, failure Failure) Settlement {
	s := Settlement{Hold: hold, Failure: &failure}
	switch attempt := attempts + 1; {
	case policy.Again(attempt):
		s.Again, s.Delay = AgainRetry, policy.Wait(attempt)
	case policy.Attempts() > 1:
		s.Failure = Exhausted(failure, attempt)
	}
	return s
}

// Within makes a settlement final that would have its task tried again only after the task has expired.
// Both are times of Redis's clock; a task that never expires has zero.
func (s Settlement) Within(expires, now time.Time) Settlement {
	if s.Again == "" || expires.IsZero() || !now.Add(s.Delay).After(expires) {
		return s
	}
	last := *s.Failure
	last.Message = fmt.Sprintf("expires before it could be tried again; %s: %s", last.reason(), last.Message)
	last.Reason = ReasonExpired
	s.Failure, s.Again, s.Delay = &last, "", 0
	return s
}

// Exhausted is the failure of a task whose last attempt failed, of several.
func Exhausted(last Failure, attempts int) *Failure {
	last.Message = fmt.Sprintf("attempt %d of %d: %s: %s", attempts, attempts, cmp.Or(last.Reason, ReasonError), last.Message)
	last.Reason = ReasonExhausted
	return &last
}

// Reschedule puts the task off; no attempt is counted. After as many as the task's policy allows it
// has failed.
func (p *Processor) Reschedule(ctx context.Context, delay time.Duration, why string) error {
	failure := Failure{Reason: ReasonError, Message: why}
	if p.task.Reschedules >= p.task.Retry.Reschedules() {
		return p.Fail(ctx, *Exhausted(failure, p.task.Attempts+1))
	}
	return p.settle(ctx, Settlement{Hold: p.hold(), Failure: &failure, Again: AgainReschedule, Delay: delay})
}

// RescheduleAt puts the task off until a time of Redis's clock.
func (p *Processor) RescheduleAt(ctx context.Context, at time.Time, why string) error {
	now, err := p.client.Clock(ctx)
	if err != nil {
		return err
	}
	return p.Reschedule(ctx, at.Sub(now), why)
}

const (
	// maxRejects is how often a task may be rejected before it fails.
	maxRejects = 100
	// rejectDelay to maxRejectDelay is how long it waits each time.
	rejectDelay    = time.Second
	maxRejectDelay = time.Minute
)

// Reject gives the task to another listener of the queue, if there is one that did not reject it too:
// in 1 s, then 2 s, up to a minute. No attempt is counted. After 100 it has failed.
func (p *Processor) Reject(ctx context.Context, why string) error {
	failure := Failure{Reason: ReasonRejected, Message: why}
	if p.task.Rejects >= maxRejects {
		return p.Fail(ctx, failure)
	}
	delay := maxRejectDelay
	if p.task.Rejects < 6 {
		delay = rejectDelay << p.task.Rejects
	}
	return p.settle(ctx, Settlement{Hold: p.hold(), Failure: &failure, Again: AgainReject, Delay: delay})
}

// Progress tells how far the task is, from 0 to 1, and what it does now.
func (p *Processor) Progress(ctx context.Context, fraction float64, message string) error {
	report := ProgressReport{Hold: p.hold(), Queue: p.task.Queue, Fraction: fraction, Message: message}
	return p.node().Progress(ctx, []ProgressReport{report})[0]
}

// Checkpoint keeps up to 1 MiB for the task's next run, after a crash too; Restore reads them there.
func (p *Processor) Checkpoint(ctx context.Context, value []byte) error {
	return p.node().Checkpoint(ctx, p.task.Queue, p.hold(), value)
}

// Restore reads what an earlier run of the task kept; nil if nothing.
func (p *Processor) Restore(ctx context.Context) ([]byte, error) {
	return p.client.Checkpoint(ctx, p.task.ID)
}

func (p *Processor) settle(ctx context.Context, settlement Settlement) error {
	if settlement.Again != "" && !p.task.Expires.IsZero() {
		now, err := p.client.now(ctx)
		if err != nil {
			return fmt.Errorf("task %s: %w", p.task.ID, err)
		}
		settlement = settlement.Within(p.task.Expires, now)
	}
	errs, err := p.node().Settle(ctx, p.task.Queue, []Settlement{settlement})
	if err != nil {
		return fmt.Errorf("task %s: %w", p.task.ID, err)
	}
	return errs[0]
}

func (p *Processor) hold() Hold {
	return Hold{ID: p.task.ID, Run: p.task.Run, PID: p.pid, born: p.task.born}
}

// node is the listener that reserved the task, by the ID that the task carries.
func (p *Processor) node() *Node {
	return &Node{client: p.client, id: p.task.Node, pid: p.pid}
}
