package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// LeaveTimeout is the time limit after a worker's context has ended: first for settling the running task, and then
// again for leaving.
const LeaveTimeout = 5 * time.Second

// Run runs handle for the tasks of a queue, one after the other, until ctx ends or the listener is drained. Then it
// gives back an unfinished task, leaves and returns nil. handle returns the result. An error or a panic fails the
// attempt, and the task's policy decides whether there is another one. An error of Permanent fails the task for good,
// and an error of Later puts it off. When the task is cancelled, handle's context ends with the cause
// queue.ErrCancelled.
//
// handle's context ends with context.DeadlineExceeded when the task's Timeout or Deadline is over. A result after that
// still completes the task. After the Timeout, any error or panic fails the attempt with queue.ReasonTimeout. After the
// Deadline, it fails the task with queue.ReasonExpired. A handler that ignores its context is not stopped.
//
// Run returns an error only if it cannot start or go on. If Redis goes away, Run waits until it is back. At the start
// it does not wait, because the address may be wrong.
//
//	err := worker.Run(ctx, client, "mail", func(ctx context.Context, task *queue.Task) ([]byte, error) {
//		return nil, send(ctx, task.Parameters)
//	})
func Run(ctx context.Context, c *queue.Client, name string,
	handle func(context.Context, *queue.Task) ([]byte, error),
) error {
	listener := newListener(c, name)
	err := listener.register(ctx)
	for err == nil && ctx.Err() == nil {
		if err = workAs(ctx, c, listener, handle); errors.Is(err, listen.ErrLeaseLost) {
			// Other listeners get the tasks of this one: start again under a new ID.
			listener = newListener(c, name)
			err = listen.Persist(ctx, listener.register)
		} else {
			return err
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

type handlerFunc func(context.Context, *queue.Task) ([]byte, error)

// workAs works as one listener until ctx ends or the listener is drained, and then returns nil. It returns an error if
// the lease is lost, or if it cannot go on.
func workAs(ctx context.Context, c *queue.Client, listener *Listener, handle handlerFunc) error {
	leased, lose := context.WithCancelCause(ctx)
	defer lose(nil)
	var running sync.WaitGroup
	running.Go(func() {
		if err := listener.Run(leased); err != nil {
			lose(err)
		}
	})
	err := workLoop(leased, c, listener, handle)
	if leased.Err() != nil && ctx.Err() == nil {
		err = context.Cause(leased) // the cause of every other error
	}
	lose(nil)
	running.Wait()

	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), LeaveTimeout)
	defer cancel()
	return cmp.Or(err, listener.Close(leaving))
}

// workLoop reserves and runs tasks until ctx ends, the listener is drained, or an error stops it.
func workLoop(ctx context.Context, c *queue.Client, listener *Listener, handle handlerFunc) error {
	for {
		task, err := listener.Listen(ctx)
		if err != nil && ctx.Err() != nil || errors.Is(err, listen.ErrDraining) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := workOn(ctx, c, task, listener.listener, handle); err != nil && !isOver(err) {
			return err
		}
	}
}

// workOn runs one task and settles it, even after ctx has ended.
func workOn(ctx context.Context, c *queue.Client, task *queue.Task, listener *listen.Listener,
	handle handlerFunc,
) error {
	processor := NewProcessor(c, task)
	settling, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(LeaveTimeout, cancel) })()
	var left time.Duration // time left until the deadline, by Redis's clock
	err := listen.Persist(settling, func(ctx context.Context) error {
		if _, err := processor.Start(ctx, 0); err != nil || task.Deadline.IsZero() {
			return err
		}
		now, err := c.Store().Now(ctx)
		left = task.Deadline.Sub(now)
		return err
	})
	if err != nil {
		return err
	}
	result, err, cause := runHandler(ctx, task, left, listener, handle)
	return listen.Persist(settling, func(settling context.Context) error {
		var over *overrun
		var ended *ended
		errors.As(err, &ended)
		switch {
		case err == nil:
			return processor.Complete(settling, result)
		case errors.Is(cause, queue.ErrCancelled):
			return processor.Fail(settling, queue.Failure{Reason: queue.ReasonCancelled, Message: "cancelled while it ran"})
		case errors.As(cause, &over) && over.reason == queue.ReasonExpired:
			return processor.Fail(settling, over.failure(err))
		case over != nil:
			return processor.Retry(settling, over.failure(err), queue.Retry{})
		case cause != nil:
			return processor.Release(settling)
		case ended != nil && ended.later:
			return processor.Reschedule(settling, max(ended.delay, task.Retry.Least()), err.Error())
		case ended != nil:
			return processor.Fail(settling, queue.Failure{Message: err.Error()})
		}
		return processor.Retry(settling, failureText(err), queue.Retry{})
	})
}

// runHandler calls the handler with a context that also ends when the task is cancelled or its time is over. left is
// the time until the task's deadline, if it has one. cause is why the context ended before the handler returned, or
// nil. If the context ended before the handler was called, err is also cause.
func runHandler(ctx context.Context, task *queue.Task, left time.Duration, listener *listen.Listener,
	handle handlerFunc,
) (result []byte, err, cause error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if task.Timeout > 0 {
		var end context.CancelFunc
		ctx, end = context.WithTimeoutCause(ctx, task.Timeout, &overrun{
			queue.ReasonTimeout, "timeout=" + task.Timeout.String(), fmt.Sprintf("timeout of %s exceeded", task.Timeout),
		})
		defer end()
	}
	if !task.Deadline.IsZero() {
		var end context.CancelFunc
		ctx, end = context.WithTimeoutCause(ctx, left, &overrun{queue.ReasonExpired, "", "its deadline is over"})
		defer end()
	}
	if cause = context.Cause(ctx); cause != nil {
		return nil, cause, cause
	}
	held := &listen.Task{Reservation: listen.Reservation{ID: task.ID}}
	listener.Tasks.Add(held)
	listener.Tasks.Begin(held, stop)
	listener.CheckMarks() // nothing announces a mark that is older than this run
	defer func() {
		listener.Tasks.Ran(held)
		listener.Tasks.Remove(held)
		cause = context.Cause(ctx)
		if value := recover(); value != nil {
			err = &panicked{fmt.Sprintf("panic: %v", value), string(debug.Stack())}
		}
	}()
	result, err = handle(ctx, task)
	return result, err, nil
}

// overrun is the cause with which a handler's context ends when the Timeout or Deadline of the task is over.
type overrun struct {
	reason      queue.Reason
	limit, text string // limit is for Failure.Limit; text is the error's text
}

func (o *overrun) Error() string { return o.text }
func (o *overrun) Unwrap() error { return context.DeadlineExceeded }

// failure returns the handler's error as a Failure with the reason and limit of the overrun.
func (o *overrun) failure(err error) queue.Failure {
	f := failureText(err)
	f.Reason, f.Limit = o.reason, o.limit
	if !errors.Is(err, o) {
		f.Message = o.text + ": " + f.Message
	}
	return f
}

// ended is a handler's error, made by Permanent or Later. It decides what happens to the task, instead of the task's
// policy.
type ended struct {
	err   error
	later bool          // whether Later made the error
	delay time.Duration // for Later
}

func (e *ended) Error() string { return e.err.Error() }
func (e *ended) Unwrap() error { return e.err }

// Permanent returns an error with which a handler fails its task for good, even if attempts are left.
func Permanent(err error) error { return &ended{err: err} }

// Later returns an error with which a handler puts its task off, without counting an attempt. The task waits for delay,
// or for its policy's minimum delay if that is longer.
func Later(err error, delay time.Duration) error { return &ended{err: err, later: true, delay: delay} }

// panicked is a handler's panic as an error.
type panicked struct{ message, stack string }

func (p *panicked) Error() string { return p.message }

func failureText(err error) queue.Failure {
	failure := queue.Failure{Reason: queue.ReasonError, Message: err.Error()}
	var p *panicked
	if errors.As(err, &p) {
		failure.Stderr = p.stack
	}
	return failure
}
