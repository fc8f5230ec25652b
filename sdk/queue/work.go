package queue

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

const (
	// settleBackoff to maxSettleBackoff is how long a settle, or a look of a listener, waits before it
	// is repeated while Redis is away or refuses.
	settleBackoff    = 50 * time.Millisecond
	maxSettleBackoff = 2 * time.Second
	// leaveTimeout bounds settling and leaving after a worker was told to end.
	leaveTimeout = 5 * time.Second
)

// Work runs handle for the tasks of a queue, one after the other, until ctx ends; then it gives back
// a task that it had not finished, leaves and returns nil; it does so too when somebody drains it. What
// handle returns is the result; an error fails the attempt, a panic too, and the task's policy says
// whether there is another one; an error that Permanent made fails the task for good, and one that Later
// made puts it off. When somebody cancels the task, handle's context ends with the cause ErrCancelled.
//
// The context ends with context.DeadlineExceeded when the task's Timeout or Deadline is over. A result that
// comes all the same is one, and completes the task; any error after that, also a panic and what
// Permanent or Later made, means that the attempt failed for ReasonTimeout, as the policy says, or the
// task for ReasonExpired, for good. A handler that does not heed its context is not stopped.
//
// Work returns an error only when it cannot go on at all, or not begin: a Redis that is away is waited
// for, but not at the start, where the address may be wrong.
//
//	err := client.Work(ctx, "mail", func(ctx context.Context, task *queue.Task) ([]byte, error) {
//		return nil, send(ctx, task.Parameters)
//	})
func (c *Client) Work(ctx context.Context, queue string, handle func(context.Context, *Task) ([]byte, error)) error {
	listener := c.newListener(queue)
	err := listener.register(ctx)
	for err == nil && ctx.Err() == nil {
		if err = c.workAs(ctx, listener, handle); errors.Is(err, ErrLeaseLost) {
			// What it held is others' now: start anew under a new ID.
			listener = c.newListener(queue)
			err = persist(ctx, listener.register)
		} else {
			return err
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// workAs works as one listener until ctx ends, and returns nil, or its lease is lost.
func (c *Client) workAs(ctx context.Context, listener *Listener, handle func(context.Context, *Task) ([]byte, error)) error {
	leased, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	cancels := &cancels{client: c, look: make(chan struct{}, 1)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := listener.run(leased, cancels.poke); err != nil {
			lose(err)
		}
	}()
	watched := make(chan struct{})
	go func() { defer close(watched); cancels.run(leased) }()
	err := c.workLoop(leased, listener, cancels, handle)
	if leased.Err() != nil && ctx.Err() == nil {
		err = context.Cause(leased) // whatever else went wrong for it
	}
	lose(nil)
	<-ended
	<-watched

	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	if leaveErr := listener.Close(leaving); err == nil && leaveErr != nil {
		err = leaveErr
	}
	return err
}

// workLoop takes and runs tasks until ctx ends; only what it cannot go on with is an error.
func (c *Client) workLoop(ctx context.Context, listener *Listener, cancels *cancels, handle func(context.Context, *Task) ([]byte, error)) error {
	for {
		task, err := listener.Listen(ctx)
		if err != nil && ctx.Err() != nil || errors.Is(err, ErrDraining) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := c.workOn(ctx, task, cancels, handle); err != nil && !isOver(err) {
			return err
		}
	}
}

// isOver tells whether a settlement found that the task is no more the listener's affair: another one
// has it, it was deleted, or it was cancelled and has failed; or it has failed without its dead letter.
func isOver(err error) bool {
	return errors.Is(err, ErrLost) || errors.Is(err, ErrNoTask) || errors.Is(err, ErrCancelled) ||
		errors.Is(err, ErrNoLetter)
}

// workOn runs one task and settles it; settling goes on after ctx has ended, for the work is done.
func (c *Client) workOn(ctx context.Context, task *Task, cancels *cancels, handle func(context.Context, *Task) ([]byte, error)) error {
	processor := c.Processor(task)
	settling, cancel := outlive(ctx, leaveTimeout)
	defer cancel()
	var left time.Duration // until the deadline, by Redis's clock
	err := persist(settling, func(ctx context.Context) error {
		if _, err := processor.Start(ctx, 0); err != nil || task.Deadline.IsZero() {
			return err
		}
		now, err := c.now(ctx)
		left = task.Deadline.Sub(now)
		return err
	})
	if err != nil {
		return err
	}
	result, err, cause := runHandler(ctx, task, left, cancels, handle)
	return persist(settling, func(settling context.Context) error {
		var over *overrun
		var ended *ended
		errors.As(err, &ended)
		switch {
		case err == nil:
			return processor.Complete(settling, result)
		case errors.Is(cause, ErrCancelled):
			return processor.Fail(settling, Failure{Reason: ReasonCancelled, Message: "cancelled while it ran"})
		case errors.As(cause, &over) && over.reason == ReasonExpired:
			return processor.Fail(settling, over.failure(err))
		case over != nil:
			return processor.Retry(settling, over.failure(err), Retry{})
		case cause != nil:
			return processor.Release(settling)
		case ended != nil && ended.later:
			return processor.Reschedule(settling, max(ended.delay, task.Retry.Least()), err.Error())
		case ended != nil:
			return processor.Fail(settling, Failure{Message: err.Error()})
		}
		return processor.Retry(settling, failureText(err), Retry{})
	})
}

// runHandler calls the handler, with a context that ends also when the task is cancelled or its time is
// over; left is what it has until its deadline, if it has one. cause is why the context ended before the
// handler did, nil if it did not; one that ended before the handler began is its error too.
func runHandler(ctx context.Context, task *Task, left time.Duration, cancels *cancels, handle func(context.Context, *Task) ([]byte, error)) (result []byte, err, cause error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if task.Timeout > 0 {
		var end context.CancelFunc
		ctx, end = context.WithTimeoutCause(ctx, task.Timeout, &overrun{
			ReasonTimeout, "timeout=" + task.Timeout.String(), fmt.Sprintf("timeout of %s exceeded", task.Timeout),
		})
		defer end()
	}
	if !task.Deadline.IsZero() {
		var end context.CancelFunc
		ctx, end = context.WithTimeoutCause(ctx, left, &overrun{ReasonExpired, "", "its deadline is over"})
		defer end()
	}
	cancels.begin(task.ID, stop)
	defer cancels.begin("", nil)
	if cause = context.Cause(ctx); cause != nil {
		return nil, cause, cause
	}
	result, err = safely(ctx, task, handle)
	return result, err, context.Cause(ctx)
}

// overrun is the cause with which a handler's context ends whose task has no time left.
type overrun struct {
	reason      Reason
	limit, text string
}

func (o *overrun) Error() string { return o.text }
func (o *overrun) Unwrap() error { return context.DeadlineExceeded }

// failure is what the overrun makes of the handler's error.
func (o *overrun) failure(err error) Failure {
	f := failureText(err)
	f.Reason, f.Limit = o.reason, o.limit
	if !errors.Is(err, o) {
		f.Message = o.text + ": " + f.Message
	}
	return f
}

// ended is how a handler's error ends the attempt, if not as the task's policy says.
type ended struct {
	err   error
	later bool
	delay time.Duration
}

func (e *ended) Error() string { return e.err.Error() }
func (e *ended) Unwrap() error { return e.err }

// Permanent makes an error of a handler fail its task for good, whatever attempts are left.
func Permanent(err error) error { return &ended{err: err} }

// Later makes an error of a handler put its task off, for the delay or the least one of its policy; no
// attempt is counted.
func Later(err error, delay time.Duration) error { return &ended{err: err, later: true, delay: delay} }

// cancels stops the task that a worker runs when somebody cancels it.
type cancels struct {
	client *Client
	look   chan struct{} // has a token when there may be a mark; never closed

	mu   sync.Mutex
	id   string // of the task that runs, "" for none; guarded by mu
	stop context.CancelCauseFunc
}

// begin makes it look for marks of another task, "" for none; and at once, for the mark may be older.
func (c *cancels) begin(id string, stop context.CancelCauseFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.id, c.stop = id, stop
	if id != "" {
		c.poke()
	}
}

func (c *cancels) poke() {
	select {
	case c.look <- struct{}{}:
	default:
	}
}

// run looks for a mark whenever there may be one, and every third of a lease, until ctx ends.
func (c *cancels) run(ctx context.Context) {
	ticker := time.NewTicker(c.client.config.Lease / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.look:
		case <-ticker.C:
		}
		c.lookOnce(ctx)
	}
}

func (c *cancels) lookOnce(ctx context.Context) {
	c.mu.Lock()
	id := c.id
	c.mu.Unlock()
	if id == "" {
		return
	}
	marked, err := c.client.Cancelled(ctx, []string{id})
	if err != nil || len(marked) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.id == id {
		c.stop(ErrCancelled)
	}
}

// outlive makes a context that ends a while after its parent does.
func outlive(parent context.Context, by time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(parent))
	stop := context.AfterFunc(parent, func() {
		timer := time.AfterFunc(by, cancel)
		context.AfterFunc(ctx, func() { timer.Stop() })
	})
	return ctx, func() { stop(); cancel() }
}

// safely calls the handler and makes a panic of it an error.
func safely(ctx context.Context, task *Task, handle func(context.Context, *Task) ([]byte, error)) (result []byte, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &panicked{fmt.Sprintf("panic: %v", value), string(debug.Stack())}
		}
	}()
	return handle(ctx, task)
}

// panicked is what a handler panicked with.
type panicked struct{ message, stack string }

func (p *panicked) Error() string { return p.message }

func failureText(err error) Failure {
	failure := Failure{Reason: ReasonError, Message: err.Error()}
	var p *panicked
	if errors.As(err, &p) {
		failure.Stderr = p.stack
	}
	return failure
}

// persist repeats a call that is safe to repeat while Redis is away or refuses. When ctx ends it
// returns what was wrong with Redis.
func persist(ctx context.Context, call func(context.Context) error) error {
	var last error
	wait := settleBackoff
	for {
		err := call(ctx)
		if last != nil && ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return last
		}
		if !IsUnavailable(err) {
			return err
		}
		last = err
		if !rest(ctx, wait) {
			return err
		}
		wait = min(2*wait, maxSettleBackoff)
	}
}

// rest waits, and tells whether it did to the end.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
