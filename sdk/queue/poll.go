package queue

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Look is what the slow poll sees of one queue.
type Look struct {
	Queue   string
	Pending int64
	// NextETA is when the next scheduled task is due; zero if none is scheduled.
	NextETA time.Time
	// Expires is when the next waiting task fails because its time is over; zero if none does.
	Expires time.Time
}

// Poll is the slow look behind Pub/Sub.
type Poll struct {
	// Clock is Redis's time of the look.
	Clock time.Time
	// LeaseEnd is when the first lease of the tenant ends, in 1970 if that listener is being reclaimed;
	// zero if there is none.
	LeaseEnd time.Time
	Queues   []Look
}

// Poll looks at many queues with one script for each block of 200.
func (c *Client) Poll(ctx context.Context, queues []string) (Poll, error) {
	const block = 200
	k := c.keys
	var calls []call
	for from := 0; from < len(queues) || from == 0; from += block {
		args := []any{c.clock}
		for _, queue := range queues[from:min(from+block, len(queues))] {
			args = append(args, queue)
		}
		calls = append(calls, call{script: pollScript, keys: []string{k.nodes()}, args: args})
	}
	poll := Poll{Queues: make([]Look, 0, len(queues))}
	for _, reply := range c.evalAll(ctx, calls) {
		answer := asList(reply.value)
		if reply.err == nil && len(answer) < 2 {
			reply.err = errors.New("unexpected answer of a script")
		}
		if reply.err != nil {
			return Poll{}, fmt.Errorf("poll %d queues: %w", len(queues), reply.err)
		}
		poll.Clock, poll.LeaseEnd = parseSeconds(asString(answer[0])), parseETA(asString(answer[1]))
		for i := 2; i+2 < len(answer); i += 3 {
			poll.Queues = append(poll.Queues, Look{
				Queue: queues[len(poll.Queues)], Pending: asInt(answer[i]), NextETA: parseETA(asString(answer[i+1])),
				Expires: parseETA(asString(answer[i+2])),
			})
		}
	}
	return poll, nil
}

// EnqueueDue moves every scheduled task of the queue that is due now to its pending list, in blocks
// of 350, and returns how many. It may run beside others, Blueque's own included. A host does it
// by itself; a program calls it only where no host runs.
func (q *Queue) EnqueueDue(ctx context.Context) (int, error) {
	return allBlocks(q.client.clock, func(clock string) (Block, error) { return q.enqueueDue(ctx, clock) })
}

// EnqueueDueBlock is one block of EnqueueDue, for who has other queues that must not wait.
func (q *Queue) EnqueueDueBlock(ctx context.Context) (Block, error) {
	return q.enqueueDue(ctx, q.client.clock)
}

// Block is what one block of EnqueueDue or Expire did.
type Block struct {
	// Tasks is how many it moved.
	Tasks int
	// More says that there may be more to do now.
	More bool
	// Clock is Redis's time of the block, and Next when the next task of the queue is due, or expires; zero if there is none.
	Clock, Next time.Time
	// DeadError is why a task that expired has no dead letter; "" if all have theirs.
	DeadError string
}

// allBlocks moves one block after the other until there is no more to do, by the clock of the first one: what comes
// meanwhile is the next call's.
func allBlocks(clock string, move func(clock string) (Block, error)) (total int, err error) {
	for {
		block, err := move(clock)
		total += block.Tasks
		if err != nil || !block.More {
			return total, err
		}
		clock = seconds(block.Clock)
	}
}

func (q *Queue) enqueueDue(ctx context.Context, clock string) (Block, error) {
	if err := ValidQueue(q.name); err != nil {
		return Block{}, err
	}
	value, err := q.client.eval(ctx, call{
		script: dueScript,
		keys:   []string{q.client.keys.scheduled(q.name)},
		args:   []any{clock, q.name, dueTasks},
	})
	block, err := newBlock(value, err)
	return block, wrap(fmt.Sprintf("enqueue due tasks of %q", q.name), err)
}

func newBlock(value any, err error) (Block, error) {
	answer := asList(value)
	if err == nil && len(answer) < 4 {
		err = errors.New("unexpected answer of a script")
	}
	if err != nil {
		return Block{}, err
	}
	block := Block{
		Tasks: int(asInt(answer[0])), More: asInt(answer[1]) == 1, Clock: parseSeconds(asString(answer[2])), Next: parseETA(asString(answer[3])),
	}
	if len(answer) > 4 {
		block.DeadError = asString(answer[4])
	}
	return block, nil
}

// TakeDuty asks to be the one that does a fleet-wide duty now; it is given up by YieldDuty, or by
// itself after ttl, of a millisecond at least. One that would last longer than ttl is nobody's: see PROTOCOL.md, Clock. So
// all nodes name the same ttl for a duty.
func (n *Node) TakeDuty(ctx context.Context, name string, ttl time.Duration) (bool, error) {
	taken, err := n.duty(ctx, takeScript, name, max(1, ttl.Milliseconds()))
	return taken, wrap(fmt.Sprintf("take duty %q", name), err)
}

// KeepDuty keeps a duty for another ttl, of a millisecond at least; false if it is not this node's any more.
func (n *Node) KeepDuty(ctx context.Context, name string, ttl time.Duration) (bool, error) {
	kept, err := n.duty(ctx, keepScript, name, max(1, ttl.Milliseconds()))
	return kept, wrap(fmt.Sprintf("keep duty %q", name), err)
}

// YieldDuty gives a duty back, if it is still this node's.
func (n *Node) YieldDuty(ctx context.Context, name string) error {
	_, err := n.duty(ctx, yieldScript, name)
	return wrap(fmt.Sprintf("yield duty %q", name), err)
}

func (n *Node) duty(ctx context.Context, script script, name string, args ...any) (bool, error) {
	answer, err := n.client.eval(ctx, call{
		script: script, keys: []string{n.client.keys.duty(name)}, args: append([]any{n.id}, args...),
	})
	return asInt(answer) == 1, err
}
