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

// Listener waits for tasks of one queue, for a worker written in plain Go. Its methods are safe for concurrent use, and it may
// hold several tasks at once.
type Listener struct {
	client *queue.Client
	queue  string
	*user

	mu       sync.Mutex              // one reserve at a time; guards what follows
	given    map[string]listen.Claim // by ID: what the caller got, and was in the list when last compared
	doubt    bool                    // the reserved list may have a task that the caller never got
	compared time.Time               // when the list was last read
}

// user is a Listener as the user of its listen.Listener.
type user struct {
	listener *listen.Listener
	queue    string
	drain    sync.Once     // closes drained
	drained  chan struct{} // closed when the listener is to take nothing more
	refusal  chan error    // has why Redis refuses to renew the lease; never closed
}

// Queues implements listen.User.
func (u *user) Queues() map[string]bool { return map[string]bool{u.queue: true} }

// Registered implements listen.User.
func (u *user) Registered(string, bool) {}

// Unregistered implements listen.User.
func (u *user) Unregistered(string) {}

// Wake implements listen.User. Listen has a subscription of its own, for Run need not run yet.
func (u *user) Wake(string) {}

// Drain implements listen.User.
func (u *user) Drain() { u.drain.Do(func() { close(u.drained); u.listener.Publish() }) }

// About implements listen.User.
func (u *user) About() map[string]string {
	return map[string]string{"kind": listen.KindGo, "queues": u.queue, "draining": strconv.FormatBool(u.draining())}
}

// draining reports whether the listener takes nothing more.
func (u *user) draining() bool {
	select {
	case <-u.drained:
		return true
	default:
		return false
	}
}

// Failed implements periodic.Reports. While Redis is away nobody can renew or take the lease: the listener goes on.
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

// run renews the lease until ctx ends, and then returns nil, or until Redis refuses to renew it or it is lost.
func (u *user) run(ctx context.Context) error {
	select {
	case <-u.refusal: // of an earlier run
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

// NewListener registers a listener of the queue. Run must run while it is in use, to keep its lease; Close removes it from the
// queue's listeners.
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

// ID is the listener ID, as Redis and `quern node ls` show it.
func (l *Listener) ID() string { return l.listener.ID() }

// Run renews the lease every third of it until ctx ends, and then returns nil; listen.ErrLeaseLost: the listener's tasks belong to
// others. A listener that is drained goes on renewing, and its TryListen and Listen return listen.ErrDraining.
func (l *Listener) Run(ctx context.Context) error { return l.run(ctx) }

// TryListen reserves the next task; nil if none is pending. Start it with a Processor. After an error a task may be reserved
// all the same: a later call returns it before any other.
func (l *Listener) TryListen(ctx context.Context) (*queue.Task, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if l.draining() {
		return nil, listen.ErrDraining
	}
	// An interrupted reserve would leave a task that nobody knows of. It ends with the connection's own time-outs.
	ctx = context.WithoutCancel(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	// A reserve may run in Redis long after it was given up, so the list is read now and then in any case.
	if l.doubt || time.Since(l.compared) > l.listener.Lease() {
		if task, err := l.compare(ctx); task != nil || err != nil {
			return task, err
		}
	}
	for {
		reply := l.listener.Reserve(ctx, []listen.ReserveRequest{{Queue: l.queue, Count: 1}})[0]
		switch {
		case reply.Err != nil: // perhaps only the answer was lost
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
		// It dropped what cannot run: there may be a task behind it.
	}
}

// compare reads the listener's own list and takes over a task that the caller never got; nil if there is none.
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
		if claim := l.given[task.ID]; claim.ID == task.ID && claim.Run == task.Run && strings.HasPrefix(task.Born, claim.Born) { // it may have started
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

// give reads a reserved task for the caller.
func (l *Listener) give(ctx context.Context, reserved listen.Reservation) (*queue.Task, error) {
	task, err := l.client.Task(ctx, reserved.ID)
	if err != nil {
		l.doubt = true // it stays in the list
		return nil, err
	}
	// The claim is that of the reservation, whatever the hash says now: it may be edited by hand, or another's already.
	task.Queue, task.Node, task.Run, task.Born = l.queue, l.listener.ID(), reserved.Run, reserved.Born
	l.given[task.ID] = reserved.Claim()
	return task, nil
}

// Listen blocks until there is a task and reserves it. While Redis is away it goes on trying until ctx ends.
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
	_ = watch.Add(ctx, l.queue) // if it fails, the poll is left

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

// passing tells whether to go on listening after err: none, a task that vanished, or Redis away.
func passing(err error) bool {
	return err == nil || queue.IsUnavailable(err) || errors.Is(err, queue.ErrNoTask)
}

// Close removes the listener from the queue's set. Tasks that the caller got and has not settled stay the listener's until the
// lease ends; those that it never got go back to the queue.
func (l *Listener) Close(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.doubt {
		task, err := l.compare(ctx)
		if err == nil && task != nil {
			err = NewProcessor(l.client, task).Release(ctx)
		}
		if err != nil && !isOver(err) {
			return fmt.Errorf("give back what was reserved from %q: %w", l.queue, err)
		}
	}
	return l.listener.Leave(ctx)
}
