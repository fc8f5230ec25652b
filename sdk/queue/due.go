package queue

import (
	"cmp"
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
	Tasks int  // how many it moved
	More  bool // there may be more to do now
	// Clock is Redis's time of the block, and Next when the next task of the queue is due, or expires; zero if there is none.
	Clock, Next time.Time
	DeadError   string // why a task that expired has no dead letter; "" if all have theirs
}

// EnqueueDue moves every scheduled task of the queue that is due now to its pending list, in blocks, and returns how many.
// It may run beside others, Blueque's own included. Hosts do it; a program calls it only where no host runs.
func (q *Queue) EnqueueDue(ctx context.Context) (int, error) { return q.all(ctx, q.due) }

// EnqueueDueBlock is one block of EnqueueDue, for a caller with other queues that must not wait.
func (q *Queue) EnqueueDueBlock(ctx context.Context) (Block, error) {
	return q.block(ctx, q.due, q.client.clock)
}

// Expire fails every task of the queue that waits and is past its time, and returns how many. maxAge bounds the age of tasks
// that have no bound of their own (0: none), and dead is the queue of their dead letters ("": none). Hosts do it, as the
// plugin's manifest says.
func (q *Queue) Expire(ctx context.Context, maxAge time.Duration, dead string) (int, error) {
	return q.all(ctx, q.expiry(maxAge, dead))
}

// ExpireBlock is one block of Expire, for a caller with other queues that must not wait.
func (q *Queue) ExpireBlock(ctx context.Context, maxAge time.Duration, dead string) (Block, error) {
	return q.block(ctx, q.expiry(maxAge, dead), q.client.clock)
}

// due is one block of EnqueueDue at a time of Redis's clock, "" for now.
func (q *Queue) due(clock string) (what string, script call) {
	return "enqueue due", newCall("due", q.client.keys.scheduled(q.name), clock, q.name, dueTasks)
}

// expiry is due for Expire.
func (q *Queue) expiry(maxAge time.Duration, dead string) func(clock string) (what string, script call) {
	age := optional(maxAge > 0, durationText(maxAge))
	return func(clock string) (what string, script call) {
		return "expire", newCall("expire", q.client.keys.expiry(q.name), clock, q.name, expiryTasks, age, dead)
	}
}

// all moves block after block until there is no more to do, by the clock of the first one: later tasks wait for the next call.
func (q *Queue) all(ctx context.Context, script func(clock string) (string, call)) (total int, err error) {
	clock := q.client.clock
	for {
		block, err := q.block(ctx, script, clock)
		total += block.Tasks
		if err != nil || !block.More {
			return total, err
		}
		clock = seconds(block.Clock)
	}
}

func (q *Queue) block(ctx context.Context, script func(clock string) (string, call), clock string) (Block, error) {
	if err := ValidQueue(q.name); err != nil {
		return Block{}, err
	}
	what, call := script(clock)
	reply, err := q.client.eval(ctx, call)
	v := valuesOf(reply)
	block := Block{Tasks: v.count(), More: v.flag(), Clock: v.time(), Next: v.eta(), DeadError: v.last()}
	return block, wrap(fmt.Sprintf("%s tasks of %q", what, q.name), cmp.Or(err, v.err()))
}
