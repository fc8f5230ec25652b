package sdk

import (
	"context"
	"sync"
	"time"
)

// askEvery is how often the host is asked while the handler waits. It is far below the time that a host gives its tasks to end.
const askEvery = 100 * time.Millisecond

// taskContext is the context of a handler. The host tells nobody by itself that it is about to end: it is asked whenever somebody
// looks, and from when somebody has looked at Done also by a timer, which runs while the handler waits. There is nothing of this,
// and nothing on the heap, as long as nobody looks.
type taskContext struct {
	mu       sync.Mutex
	open     context.Context    //nolint:containedctx // this is the context. Guarded by mu until it is set
	cancel   context.CancelFunc // of open, and guarded likewise
	timer    *time.Timer        // nil until somebody has looked at Done; guarded by mu
	finished bool               // the handler has returned; guarded by mu
}

// Deadline is that of the task.
func (c *taskContext) Deadline() (time.Time, bool) { return deadline() }

// Value has none, but for package context's own.
func (c *taskContext) Value(key any) any {
	c.mu.Lock()
	open := c.open
	c.mu.Unlock()
	if open == nil {
		return nil
	}
	return open.Value(key)
}

// Err asks the host.
func (c *taskContext) Err() error { return c.look().Err() }

// Done asks the host, and has it asked again while the handler waits.
func (c *taskContext) Done() <-chan struct{} {
	open := c.look()
	c.mu.Lock()
	if c.timer == nil && !c.finished && open.Err() == nil {
		c.timer = time.AfterFunc(askEvery, c.ask)
	}
	c.mu.Unlock()
	return open.Done()
}

// ask is look by the timer.
func (c *taskContext) ask() {
	open := c.look()
	c.mu.Lock()
	if !c.finished && open.Err() == nil {
		c.timer.Reset(askEvery)
	}
	c.mu.Unlock()
}

// look asks the host, and returns the context that ends accordingly. The host is asked without the lock, for one that sdktest
// lends may end the goroutine.
func (c *taskContext) look() context.Context {
	c.mu.Lock()
	open := c.open
	c.mu.Unlock()
	if open == nil {
		open = c.begin(deadline())
	}
	if open.Err() == nil && hostCancelled() {
		c.cancel()
	}
	return open
}

// begin makes open, if nobody else has by now.
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
		c.cancel() // nothing hangs on it yet
	}
	return c.open
}

// finish ends the context with the call of its handler. Without it the timer of the call that warms a module would be there in
// every task.
func (c *taskContext) finish() {
	c.mu.Lock()
	c.finished = true
	cancel, timer := c.cancel, c.timer
	c.mu.Unlock()
	// Without the lock, for contexts that end with this one are ended by it, and may be another's who asks this one then.
	if cancel != nil {
		cancel()
	}
	if timer != nil {
		timer.Stop()
	}
}

func deadline() (time.Time, bool) {
	ms := hostNumber(2)
	return time.UnixMilli(ms), ms > 0
}
