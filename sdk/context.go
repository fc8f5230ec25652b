package sdk

import (
	"context"
	"sync"
	"time"
)

// askEvery is how often the host is asked, while the handler waits, whether the task is cancelled.
const askEvery = 100 * time.Millisecond

// taskContext is the context of a handler. Each call of Err or Done asks the host whether the task is cancelled. After
// the first call of Done, a timer also asks while the handler waits. An unused context has no timer and nothing on the
// heap.
type taskContext struct {
	mu       sync.Mutex
	open     context.Context    //nolint:containedctx // implements this context. Guarded by mu until it is set
	cancel   context.CancelFunc // cancels open; guarded like open
	timer    *time.Timer        // nil until the first Done; guarded by mu
	finished bool               // the handler has returned; guarded by mu
}

// Deadline returns the task's deadline.
func (c *taskContext) Deadline() (time.Time, bool) { return deadline() }

// Value returns only the values that package context uses internally.
func (c *taskContext) Value(key any) any {
	c.mu.Lock()
	open := c.open
	c.mu.Unlock()
	if open == nil {
		return nil
	}
	return open.Value(key)
}

// Err asks the host whether the task is cancelled.
func (c *taskContext) Err() error { return c.look().Err() }

// Done asks the host whether the task is cancelled, and starts the timer that asks while the handler waits.
func (c *taskContext) Done() <-chan struct{} {
	open := c.look()
	c.mu.Lock()
	if c.timer == nil && !c.finished && open.Err() == nil {
		c.timer = time.AfterFunc(askEvery, c.ask)
	}
	c.mu.Unlock()
	return open.Done()
}

// ask is called by the timer.
func (c *taskContext) ask() {
	open := c.look()
	c.mu.Lock()
	if !c.finished && open.Err() == nil {
		c.timer.Reset(askEvery)
	}
	c.mu.Unlock()
}

// look asks the host, and cancels open if the task is cancelled. It returns open. It asks without the lock, because a
// host of sdktest may end the goroutine.
func (c *taskContext) look() context.Context {
	c.mu.Lock()
	open := c.open
	c.mu.Unlock()
	if open == nil {
		open = c.begin(deadline())
	}
	if open.Err() == nil && services().Cancelled() {
		c.cancel()
	}
	return open
}

// begin creates and returns open unless it exists. If limited is true, open has the deadline at.
func (c *taskContext) begin(at time.Time, limited bool) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.open != nil:
	case limited && !c.finished:
		c.open, c.cancel = context.WithDeadline(context.Background(), at)
	default:
		c.open, c.cancel = context.WithCancel(context.Background())
	}
	if c.finished {
		c.cancel() // under the lock: no context is derived from it yet
	}
	return c.open
}

// finish ends the context when its handler returns. If the timer of the warm call went on, it would be part of the
// snapshot.
func (c *taskContext) finish() {
	c.mu.Lock()
	c.finished = true
	cancel, timer := c.cancel, c.timer
	c.mu.Unlock()
	// The lock is not held here, because derived contexts that end may call this one.
	if cancel != nil {
		cancel()
	}
	if timer != nil {
		timer.Stop()
	}
}

func deadline() (time.Time, bool) {
	ms := services().TaskNumber(numberDeadline)
	return time.UnixMilli(ms), ms > 0
}
