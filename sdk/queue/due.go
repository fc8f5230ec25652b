package queue

import (
	"context"
	"fmt"
	"time"
)

const (
	// dueTasks is how many due tasks one block moves.
	dueTasks = 100
	// expiryTasks is how many tasks one block expires: each may have to be searched for, and need a dead letter.
	expiryTasks = 16
)

// Block is what one block of EnqueueDue or Expire did.
type Block struct {
	// Tasks is how many it moved.
	Tasks int
	// More: there may be more to do now.
	More bool
	// Clock is Redis's time of the block, and Next when the next task of the queue is due, or expires; zero if there is none.
	Clock, Next time.Time
	// DeadError is why a task that expired has no dead letter; "" if all have theirs.
	DeadError string
}

// EnqueueDue moves every scheduled task of the queue that is due now to its pending list, in blocks, and returns how many.
// It may run beside others, Blueque's own included. Hosts do it; a program calls it only where no host runs.
func (q *Queue) EnqueueDue(ctx context.Context) (int, error) {
	return allBlocks(q.client.clock, func(clock string) (Block, error) { return q.enqueueDue(ctx, clock) })
}

// EnqueueDueBlock is one block of EnqueueDue, for a caller with other queues that must not wait.
func (q *Queue) EnqueueDueBlock(ctx context.Context) (Block, error) {
	return q.enqueueDue(ctx, q.client.clock)
}

// Expire fails every task of the queue that waits and is past its time, and returns how many. maxAge bounds the age of tasks
// that have no bound of their own (0: none), and dead is the queue of their dead letters ("": none). Hosts do it, as the
// plugin's manifest says.
func (q *Queue) Expire(ctx context.Context, maxAge time.Duration, dead string) (int, error) {
	return allBlocks(q.client.clock, func(clock string) (Block, error) { return q.expire(ctx, clock, maxAge, dead) })
}

// ExpireBlock is one block of Expire, for a caller with other queues that must not wait.
func (q *Queue) ExpireBlock(ctx context.Context, maxAge time.Duration, dead string) (Block, error) {
	return q.expire(ctx, q.client.clock, maxAge, dead)
}

// allBlocks moves block after block until there is no more to do, by the clock of the first one: later tasks wait for the
// next call.
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
	block, err := q.moveBlock(ctx, dueScript.call(q.client.keys.scheduled(q.name), clock, q.name, dueTasks))
	return block, wrap(fmt.Sprintf("enqueue due tasks of %q", q.name), err)
}

func (q *Queue) expire(ctx context.Context, clock string, maxAge time.Duration, dead string) (Block, error) {
	block, err := q.moveBlock(ctx, expireScript.call(q.client.keys.expiry(q.name),
		clock, q.name, expiryTasks, optional(maxAge > 0, durationText(maxAge)), dead))
	return block, wrap(fmt.Sprintf("expire tasks of %q", q.name), err)
}

// moveBlock runs due.lua or expire.lua.
func (q *Queue) moveBlock(ctx context.Context, script call) (Block, error) {
	if err := ValidQueue(q.name); err != nil {
		return Block{}, err
	}
	reply, err := q.client.eval(ctx, script)
	if err != nil {
		return Block{}, err
	}
	v := valuesOf(reply)
	return Block{Tasks: v.count(), More: v.flag(), Clock: v.time(), Next: v.eta(), DeadError: v.last()}, v.err()
}
