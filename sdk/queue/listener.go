package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Listener waits for tasks of one queue, for a worker written in plain Go. Its methods are safe for
// concurrent use, and several tasks may be in hand at once.
type Listener struct {
	node  *Node
	queue string

	drain    sync.Once       // closes drained
	drained  chan struct{}   // closed when somebody told the listener to take nothing more
	mu       sync.Mutex      // one reserve at a time; guards what follows
	given    map[string]Hold // by ID: what the caller got, as far as it was in the list when compared
	doubt    bool            // the reserved list may hold a task that the caller never got
	compared time.Time       // when the list was read for the last time
}

// Listener registers a listener of the queue. While it is in use Run must run, to keep its lease;
// Close takes it out of the queue's listeners.
func (c *Client) Listener(ctx context.Context, queue string) (*Listener, error) {
	l := c.newListener(queue)
	if err := l.register(ctx); err != nil {
		return nil, err
	}
	return l, nil
}

// newListener makes a listener of which Redis does not know yet.
func (c *Client) newListener(queue string) *Listener {
	return &Listener{node: c.Node(), queue: queue, given: make(map[string]Hold), compared: time.Now(), drained: make(chan struct{})}
}

func (l *Listener) register(ctx context.Context) error {
	if err := ValidQueue(l.queue); err != nil {
		return err
	}
	if err := l.node.Join(ctx); err != nil {
		return err
	}
	return l.node.Register(ctx, l.queue)
}

// ID is the listener ID, as Redis and `quern node ls` show it.
func (l *Listener) ID() string { return l.node.id }

// Run renews the lease every third of it until ctx ends, and then returns nil; ErrLeaseLost when the
// lease was lost: then the tasks that the listener had are others'. When somebody drains the listener it
// goes on renewing, and TryListen and Listen answer ErrDraining.
func (l *Listener) Run(ctx context.Context) error { return l.run(ctx, func() {}) }

// run is Run. When the control channel speaks it looks whether it is to drain; look is called then too,
// and must not block.
func (l *Listener) run(ctx context.Context, look func()) error {
	spoken := make(chan struct{}, 1)
	watch := l.node.client.Watch()
	var watching sync.WaitGroup
	defer watching.Wait()
	defer watch.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watching.Go(func() {
		_ = watch.Control(ctx, func() { // without a subscription the ticker does it
			select {
			case spoken <- struct{}{}:
			default:
			}
			look()
		})
		watch.Run(ctx, func(string) {})
	})
	ticker := time.NewTicker(l.node.client.config.Lease / 3)
	defer ticker.Stop()
	for {
		// While Redis is away the lease cannot be renewed, nor taken by others: go on trying.
		drain, err := l.node.Renew(ctx, map[string]string{
			"kind": KindGo, "queues": l.queue, "draining": strconv.FormatBool(l.draining()),
		})
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && !IsUnavailable(err) {
			return err
		}
		if drain {
			l.drain.Do(func() { close(l.drained) })
		}
		for due := false; !due; {
			select {
			case <-ctx.Done():
				return nil
			case <-spoken:
				_, drain, err := l.node.Marks(ctx, nil)
				due = err != nil || drain && !l.draining()
			case <-ticker.C:
				due = true
			}
		}
	}
}

// draining tells whether the listener takes nothing more.
func (l *Listener) draining() bool {
	select {
	case <-l.drained:
		return true
	default:
		return false
	}
}

// TryListen reserves the next task; nil if none is pending. Start it with a Processor. After an error
// a task may be reserved all the same: a later call returns it before any other.
func (l *Listener) TryListen(ctx context.Context) (*Task, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if l.draining() {
		return nil, ErrDraining
	}
	// A reserve that is cut off would leave a task that nobody knows of: once begun it is finished,
	// bounded by the connection's own time-outs.
	ctx = context.WithoutCancel(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	// A reserve that was given up may be done late, so the list is read now and then in any case.
	if l.doubt || time.Since(l.compared) > l.node.client.config.Lease {
		if task, err := l.compare(ctx); task != nil || err != nil {
			return task, err
		}
	}
	for {
		batch := l.node.Reserve(ctx, []Want{{Queue: l.queue, Count: 1}})[0]
		switch {
		case batch.Err != nil: // perhaps only the answer did not come
			l.doubt = true
			if task, err := l.compare(ctx); task != nil && err == nil {
				return task, nil
			}
			return nil, batch.Err
		case len(batch.Tasks) > 0:
			return l.give(ctx, batch.Tasks[0])
		case batch.Dropped == 0 && batch.Passed == 0:
			return nil, nil
		}
		// Nothing but what cannot run was dropped: there may be a task behind it.
	}
}

// compare reads the listener's own list and takes on a task in it that the caller never got; nil if
// there is none.
func (l *Listener) compare(ctx context.Context) (*Task, error) {
	ids, err := l.node.Held(ctx, l.queue)
	if err != nil {
		return nil, err
	}
	given, unknown := make(map[string]Hold), []Reservation(nil)
	for block := range slices.Chunk(ids, blockTasks) {
		batch := l.node.Adopt(ctx, Want{Queue: l.queue}, block)
		if batch.Err != nil {
			return nil, batch.Err
		}
		for _, task := range batch.Tasks {
			if l.given[task.ID] == task.Hold() {
				given[task.ID] = task.Hold()
			} else {
				unknown = append(unknown, task)
			}
		}
	}
	l.given, l.compared, l.doubt = given, time.Now(), len(unknown) > 1
	if len(unknown) == 0 {
		return nil, nil
	}
	return l.give(ctx, unknown[len(unknown)-1]) // the oldest
}

// give reads a reserved task for the caller.
func (l *Listener) give(ctx context.Context, reserved Reservation) (*Task, error) {
	task, err := l.node.client.Task(ctx, reserved.ID)
	if err != nil {
		l.doubt = true // it stays in the list
		return nil, err
	}
	// What was reserved is what a Processor has to prove, whatever the hash says: it may have been
	// written by hand, or be another's by now.
	task.Queue, task.Node, task.Run, task.born = l.queue, l.node.id, reserved.Run, reserved.born
	l.given[task.ID] = reserved.Hold()
	return task, nil
}

// Listen blocks until there is a task and reserves it. While Redis is away it goes on trying until
// ctx ends.
func (l *Listener) Listen(ctx context.Context) (*Task, error) {
	task, err := l.TryListen(ctx)
	if task != nil || !passing(err) {
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

	poll := time.NewTicker(l.node.client.poll)
	defer poll.Stop()
	wait := settleBackoff
	for task == nil && passing(err) {
		var again <-chan time.Time
		if err != nil { // that look told nothing
			again, wait = time.After(wait), min(2*wait, maxSettleBackoff)
		} else {
			wait = settleBackoff
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("listen to %q: %w", l.queue, context.Cause(ctx))
		case <-l.drained:
		case <-wake: // a message, or a subscription that stands (again)
		case <-poll.C:
		case <-again:
		}
		task, err = l.TryListen(ctx)
	}
	return task, err
}

// passing tells whether to go on listening after err: no task yet, one that vanished, or Redis away.
func passing(err error) bool {
	return err == nil || IsUnavailable(err) || errors.Is(err, ErrNoTask)
}

// Close takes the listener out of the queue's set. A task that the caller got and has not settled
// stays the listener's until the lease ends; one that it never got goes back to the queue.
func (l *Listener) Close(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.doubt {
		task, err := l.compare(ctx)
		if err == nil && task != nil {
			err = l.node.client.Processor(task).Release(ctx)
		}
		if err != nil && !isOver(err) {
			return fmt.Errorf("give back what was reserved from %q: %w", l.queue, err)
		}
	}
	return l.node.Leave(ctx)
}
