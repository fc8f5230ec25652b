package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

// Listener reserves tasks of one queue for a worker in plain Go. It can hold several tasks at once. Its methods are
// safe for concurrent use.
type Listener struct {
	client *queue.Client
	queue  string
	*user

	mu       sync.Mutex              // allows one reserve at a time; guards the fields below
	given    map[string]listen.Claim // by ID: the claims of tasks that the caller got, without those known to have ended
	doubt    bool                    // the reserved list may have a task that the caller never got
	compared time.Time               // when the reserved list was last read
}

// user implements listen.User and periodic.Reports for a Listener.
type user struct {
	listener *listen.Listener
	queue    string
	drain    sync.Once     // closes drained
	drained  chan struct{} // closed when the listener is to reserve no more tasks
	refusal  chan error    // gets the error with which Redis refused to renew the lease; never closed
}

// Queues implements listen.User.
func (u *user) Queues() map[string]bool { return map[string]bool{u.queue: true} }

// Registered implements listen.User.
func (u *user) Registered(string, bool) {}

// Unregistered implements listen.User.
func (u *user) Unregistered(string) {}

// Wake implements listen.User. It does nothing: Listen has its own subscription, because Run may not run yet.
func (u *user) Wake(string) {}

// Drain implements listen.User.
func (u *user) Drain() { u.drain.Do(func() { close(u.drained); u.listener.Publish() }) }

// About implements listen.User.
func (u *user) About() map[string]string {
	return map[string]string{"kind": listen.KindGo, "queues": u.queue, "draining": strconv.FormatBool(u.draining())}
}

// draining reports whether the listener is to reserve no more tasks.
func (u *user) draining() bool {
	select {
	case <-u.drained:
		return true
	default:
		return false
	}
}

// Failed implements periodic.Reports. It records that Redis refused to renew the lease. It ignores that Redis is away,
// because then nobody can renew or take the lease, and the listener goes on.
func (u *user) Failed(op, _ string, err error) {
	if op == listen.OpRenew && !queue.IsUnavailable(err) {
		select {
		case u.refusal <- err:
		default:
		}
	}
}

// Succeeded implements periodic.Reports.
func (u *user) Succeeded(string, string) {}

// FailedQuietly implements periodic.Reports.
func (u *user) FailedQuietly(string, error) {}

// run renews the lease until ctx ends, and then returns nil. It returns an error when the lease is lost, or when Redis
// refuses to renew it.
func (u *user) run(ctx context.Context) error {
	select {
	case <-u.refusal: //nolint:errcheck // it is of an earlier run
	default:
	}
	ctx, end := context.WithCancel(ctx)
	ended := make(chan error)
	go func() { ended <- u.listener.Run(ctx) }()
	defer end()
	select {
	case err := <-ended:
		return err
	case refusal := <-u.refusal:
		end()
		return cmp.Or(<-ended, refusal)
	}
}

// NewListener registers a new listener of the queue. Run must run while the listener is in use, to keep its lease.
// Close removes the listener from the queue's listeners.
func NewListener(ctx context.Context, c *queue.Client, queue string) (*Listener, error) {
	l := newListener(c, queue)
	if err := l.register(ctx); err != nil {
		return nil, err
	}
	return l, nil
}

// newListener makes a listener that is not yet in Redis.
func newListener(c *queue.Client, queue string) *Listener {
	owner := &user{queue: queue, drained: make(chan struct{}), refusal: make(chan error, 1)}
	owner.listener = listen.NewListener(c, owner, owner)
	return &Listener{client: c, queue: queue, user: owner, given: make(map[string]listen.Claim), compared: time.Now()}
}

func (l *Listener) register(ctx context.Context) error {
	if err := queue.ValidQueue(l.queue); err != nil {
		return err
	}
	if err := l.listener.Join(ctx); err != nil {
		return err
	}
	return l.listener.Register(ctx, l.queue)
}

// ID returns the listener ID, as Redis and `quern node ls` show it.
func (l *Listener) ID() string { return l.listener.ID() }

// Run renews the lease, every third of its length, until ctx ends; then it returns nil. It returns listen.ErrLeaseLost
// if the lease is lost: then other listeners get the tasks of this one. The lease of a drained listener is still
// renewed, but TryListen and Listen return listen.ErrDraining.
func (l *Listener) Run(ctx context.Context) error { return l.run(ctx) }

// TryListen reserves the next task. It returns nil if no task is pending. The caller starts the task with a Processor.
// After an error, a task may be reserved all the same; a later call returns that task first.
func (l *Listener) TryListen(ctx context.Context) (*queue.Task, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if l.draining() {
		return nil, listen.ErrDraining
	}
	// ctx must not interrupt a reserve: it might leave a reserved task that nobody knows. The connection's own
	// time-outs bound it.
	ctx = context.WithoutCancel(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	// A reserve may run in Redis long after it timed out here, so the reserved list is read now and then in any case.
	if l.doubt || time.Since(l.compared) > l.listener.Lease() {
		if task, err := l.compare(ctx); task != nil || err != nil {
			return task, err
		}
	}
	for {
		reply := l.listener.Reserve(ctx, []listen.ReserveRequest{{Queue: l.queue, Count: 1}})[0]
		switch {
		case reply.Err != nil: // perhaps only the reply was lost
			l.doubt = true
			if task, err := l.compare(ctx); task != nil && err == nil {
				return task, nil
			}
			return nil, reply.Err
		case len(reply.Tasks) > 0:
			return l.give(ctx, reply.Tasks[0])
		case reply.Dropped == 0 && reply.Passed == 0:
			return nil, nil
		}
		// Redis dropped IDs that cannot run: there may be a task behind them.
	}
}

// compare reads the listener's reserved list. It returns a task in the list that the caller never got, or nil.
func (l *Listener) compare(ctx context.Context) (*queue.Task, error) {
	ids, err := l.listener.Held(ctx, l.queue)
	if err != nil {
		return nil, err
	}
	given, unknown := make(map[string]listen.Claim), []listen.Reservation(nil)
	reply := l.listener.Adopt(ctx, listen.ReserveRequest{Queue: l.queue}, ids)
	if reply.Err != nil {
		return nil, reply.Err
	}
	for _, task := range reply.Tasks {
		if claim := l.given[task.ID]; claim.ID == task.ID && claim.Run == task.Run && strings.HasPrefix(task.Born,
			claim.Born) { // the task may have started since
			given[task.ID] = claim
		} else {
			unknown = append(unknown, task)
		}
	}
	l.given, l.compared, l.doubt = given, time.Now(), len(unknown) > 1
	if len(unknown) == 0 {
		return nil, nil
	}
	return l.give(ctx, unknown[len(unknown)-1]) // the oldest
}

// give reads a reserved task, and records that the caller has it.
func (l *Listener) give(ctx context.Context, reserved listen.Reservation) (*queue.Task, error) {
	task, err := l.client.Task(ctx, reserved.ID)
	if err != nil {
		l.doubt = true // the task stays in the reserved list
		return nil, err
	}
	// The claim is the reservation's, whatever the hash says now: people may have edited it, or another listener may
	// have the task.
	task.Queue, task.Node, task.Run, task.Born = l.queue, l.listener.ID(), reserved.Run, reserved.Born
	l.given[task.ID] = reserved.Claim()
	return task, nil
}

// Listen blocks until there is a task and reserves it. While Redis is away it tries again until ctx ends.
func (l *Listener) Listen(ctx context.Context) (*queue.Task, error) {
	task, err := l.TryListen(ctx)
	if task != nil || !passing(err) {
		return task, err // a busy queue needs no subscription
	}
	watch := listen.NewWatch(l.client)
	wake := make(chan struct{}, 1)
	var following sync.WaitGroup
	defer following.Wait()
	defer watch.Close()
	running, stop := context.WithCancel(ctx)
	defer stop()
	following.Go(func() { watch.Run(running, func(string) { periodic.Notify(wake) }) })
	_ = watch.Add(ctx, l.queue) // if it fails, the poll still finds tasks

	poll := time.NewTicker(l.client.Store().Poll)
	defer poll.Stop()
	var pause periodic.Pause
	for task == nil && passing(err) {
		var again <-chan time.Time
		if err != nil {
			again = time.After(pause.Failed(time.Now()))
		} else {
			pause.Succeeded()
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("listen to %q: %w", l.queue, context.Cause(ctx))
		case <-l.drained:
		case <-wake: // a message, or a new subscription
		case <-poll.C:
		case <-again:
		}
		task, err = l.TryListen(ctx)
	}
	return task, err
}

// passing reports whether Listen goes on after err: err is nil, or the task was deleted meanwhile, or Redis is away.
func passing(err error) bool {
	return err == nil || queue.IsUnavailable(err) || errors.Is(err, queue.ErrNoTask)
}

// Close removes the listener from the queue's listeners. Tasks that the caller got and has not settled stay with the
// listener until its lease ends. Reserved tasks that the caller never got go back to the queue.
func (l *Listener) Close(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.doubt {
		task, err := l.compare(ctx)
		if err == nil && task != nil {
			err = NewProcessor(l.client, task).Release(ctx)
		}
		if err != nil && !isOver(err) {
			return fmt.Errorf("give back tasks reserved from %q: %w", l.queue, err)
		}
	}
	return l.listener.Leave(ctx)
}
