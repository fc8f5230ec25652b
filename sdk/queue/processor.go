package queue

import (
	"context"
	"fmt"
	"os"
)

// Processor tells Redis what becomes of a task that a listener reserved. Its calls prove that the
// task is still held: ErrLost means that it is another's now and nothing was written, ErrNoTask that
// it was deleted. When Redis was away they may be repeated.
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

// Fail stores the failure and finishes the task; a reason that is missing is ReasonError.
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

func (p *Processor) settle(ctx context.Context, settlement Settlement) error {
	errs, err := p.node().Settle(ctx, p.task.Queue, []Settlement{settlement})
	if err != nil {
		return fmt.Errorf("task %s: %w", p.task.ID, err)
	}
	return errs[0]
}

func (p *Processor) hold() Hold { return Hold{ID: p.task.ID, Run: p.task.Run, PID: p.pid} }

// node is the listener that reserved the task, by the ID that the task carries.
func (p *Processor) node() *Node {
	return &Node{client: p.client, id: p.task.Node, pid: p.pid}
}
