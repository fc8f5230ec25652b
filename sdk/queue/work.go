package queue

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
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
// a task that it had not finished, leaves and returns nil. What handle returns is the result; an
// error fails the task, a panic too. It returns an error only when it cannot go on at all, or not
// begin: a Redis that is away is waited for, but not at the start, where the address may be wrong.
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
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := listener.Run(leased); err != nil {
			lose(err)
		}
	}()
	err := c.workLoop(leased, listener, handle)
	if leased.Err() != nil && ctx.Err() == nil {
		err = context.Cause(leased) // whatever else went wrong for it
	}
	lose(nil)
	<-ended

	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	if leaveErr := listener.Close(leaving); err == nil && leaveErr != nil {
		err = leaveErr
	}
	return err
}

// workLoop takes and runs tasks until ctx ends; only what it cannot go on with is an error.
func (c *Client) workLoop(ctx context.Context, listener *Listener, handle func(context.Context, *Task) ([]byte, error)) error {
	for {
		task, err := listener.Listen(ctx)
		if err != nil && ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if err := c.workOn(ctx, task, handle); err != nil && !errors.Is(err, ErrLost) && !errors.Is(err, ErrNoTask) {
			return err
		}
	}
}

// workOn runs one task and settles it; settling goes on after ctx has ended, for the work is done.
func (c *Client) workOn(ctx context.Context, task *Task, handle func(context.Context, *Task) ([]byte, error)) error {
	processor := c.Processor(task)
	settling, cancel := outlive(ctx, leaveTimeout)
	defer cancel()
	err := persist(settling, func(ctx context.Context) error {
		_, err := processor.Start(ctx, 0)
		return err
	})
	if err != nil {
		return err
	}
	result, failure := safely(ctx, task, handle)
	switch {
	case failure != nil && ctx.Err() != nil:
		return persist(settling, processor.Release)
	case failure != nil:
		return persist(settling, func(ctx context.Context) error { return processor.Fail(ctx, *failure) })
	}
	return persist(settling, func(ctx context.Context) error { return processor.Complete(ctx, result) })
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

// safely calls the handler and makes an error or a panic of it a failure.
func safely(ctx context.Context, task *Task, handle func(context.Context, *Task) ([]byte, error)) (result []byte, failure *Failure) {
	defer func() {
		if value := recover(); value != nil {
			failure = &Failure{Reason: ReasonError, Message: fmt.Sprintf("panic: %v", value), Stderr: string(debug.Stack())}
		}
	}()
	result, err := handle(ctx, task)
	if err != nil {
		return nil, &Failure{Reason: ReasonError, Message: err.Error()}
	}
	return result, nil
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
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return err
		case <-timer.C:
		}
		wait = min(2*wait, maxSettleBackoff)
	}
}
