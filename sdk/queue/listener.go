package queue

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// pollInterval is how often an idle listener looks by itself: Python clients do not publish.
const pollInterval = 5 * time.Second

// Listener waits for tasks of one queue, one at a time, for a worker written in plain Go.
type Listener struct {
	node  *Node
	queue string
}

// Listener registers a listener of the queue. While it is in use Run must run, to keep its lease;
// Close takes it out of the queue's listeners.
func (c *Client) Listener(ctx context.Context, queue string) (*Listener, error) {
	l := &Listener{node: c.Node(), queue: queue}
	if err := l.node.Join(ctx); err != nil {
		return nil, err
	}
	if err := l.node.Register(ctx, queue); err != nil {
		return nil, err
	}
	return l, nil
}

// ID is the listener ID, as Redis and `quern node ls` show it.
func (l *Listener) ID() string { return l.node.id }

// Run renews the lease every third of it until ctx ends, and then returns nil; ErrLeaseLost when the
// lease was lost: then the tasks that the listener had are others'.
func (l *Listener) Run(ctx context.Context) error {
	ticker := time.NewTicker(l.node.client.config.Lease / 3)
	defer ticker.Stop()
	for {
		// While Redis is away the lease cannot be renewed, nor taken by others: go on trying.
		err := l.node.Renew(ctx, map[string]string{"kind": "go", "queues": l.queue})
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && !IsUnavailable(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// TryListen reserves the next task; nil if none is pending. Start it with a Processor.
func (l *Listener) TryListen(ctx context.Context) (*Task, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	// A reserve that is cut off would leave a task that nobody knows of: once begun it is finished,
	// bounded by the connection's own time-outs.
	ctx = context.WithoutCancel(ctx)
	batch := l.node.Reserve(ctx, []Want{{Queue: l.queue, Count: 1}})[0]
	if batch.Err != nil {
		// The answer did not come: the task may be in our list. At most one is, for one was asked.
		batch = l.recover(ctx, batch.Err)
	}
	if batch.Err != nil {
		return nil, batch.Err
	}
	if len(batch.Tasks) == 0 {
		return nil, nil
	}
	return l.node.client.Task(ctx, batch.Tasks[0].ID)
}

// recover looks into the listener's own list after a reserve without an answer.
func (l *Listener) recover(ctx context.Context, cause error) Batch {
	ids, err := l.node.Held(ctx, l.queue)
	if err != nil || len(ids) == 0 {
		return Batch{Err: cause}
	}
	// Older entries are tasks that the caller took before and still works on.
	return l.node.Adopt(ctx, l.queue, ids[:1], false)
}

// Listen blocks until there is a task and reserves it. While Redis is away it goes on trying until
// ctx ends.
func (l *Listener) Listen(ctx context.Context) (*Task, error) {
	if task, err := l.TryListen(ctx); task != nil || !passing(err) {
		return task, err // a busy queue needs no subscription
	}
	watch := l.node.client.Watch()
	defer watch.Close()
	wake := make(chan struct{}, 1)
	watching, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		watch.Run(watching, func(string) {
			select {
			case wake <- struct{}{}:
			default:
			}
		})
	}()
	defer func() { stop(); <-ended }()
	_ = watch.Add(ctx, l.queue) // without a subscription the poll finds the task

	poll := time.NewTicker(pollInterval)
	defer poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("listen to %q: %w", l.queue, context.Cause(ctx))
		case <-wake: // a message, or a subscription that stands (again)
		case <-poll.C:
		}
		if task, err := l.TryListen(ctx); task != nil || !passing(err) {
			return task, err
		}
	}
}

// passing tells whether to go on listening after err: no task yet, one that vanished, or Redis away.
func passing(err error) bool {
	return err == nil || IsUnavailable(err) || errors.Is(err, ErrNoTask)
}

// Close takes the listener out of the queue's set. A task that it still holds stays its own until
// the lease ends.
func (l *Listener) Close(ctx context.Context) error { return l.node.Leave(ctx) }
