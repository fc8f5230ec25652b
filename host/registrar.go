package host

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quern-project/quern/sdk/queue/listen"

	"github.com/quern-project/quern/sdk/queue"
)

// recheckLeases is after how many leases the registrar checks that Redis still knows its registrations.
const recheckLeases = 6

// registerQueues is how many queues are registered for in one round trip.
const registerQueues = 1000

// registrar registers a session for the queues that have a plugin here, and leaves the others, again and again while that
// fails.
type registrar struct {
	duty
	access    *tenantAccess
	desired   func() map[string]bool // the queues that the session should listen to
	watch     *listen.Watch
	scheduler *scheduler
	source    source
	publish   func() // called after changes
	changed   atomic.Bool
	recheck   time.Time

	mu sync.Mutex
	// listens are the queues that the session listens to, and with false those that it has left; guarded by mu.
	listens map[string]bool
	refused map[string]bool // queues that Redis did not let it listen to; guarded by mu
}

// follow makes the session listen to the queues that are desired now.
func (r *registrar) follow() {
	r.changed.Store(true)
	r.ask()
}

func (r *registrar) runOnce(ctx context.Context) (pause, wait time.Duration, err error) {
	interval := recheckLeases * r.access.node.Lease()
	if r.recheck.IsZero() {
		r.recheck = time.Now().Add(interval)
	}
	if r.changed.Swap(false) {
		if err := r.update(ctx); err != nil {
			r.changed.Store(true)
			return 0, 0, err
		}
		r.health.succeeded(opRegister, "") // a change that failed may have been taken back
		r.publish()
	}
	if time.Now().After(r.recheck) {
		r.registerAgain(ctx)
		r.recheck = time.Now().Add(interval)
	}
	return 0, time.Until(r.recheck), nil
}

// update registers and leaves what is not as desired. A queue that Redis refuses does not keep it from the others.
func (r *registrar) update(ctx context.Context) error {
	var errs []error
	note := func(name string, err error) (fatal error) {
		switch {
		case err == nil:
			r.health.succeeded(opRegister, name)
			return nil
		case ctx.Err() != nil:
			return err
		}
		r.health.failed(opRegister, name, err)
		if queue.IsUnavailable(err) {
			return err
		}
		r.mu.Lock()
		r.refused[name] = true
		r.mu.Unlock()
		errs = append(errs, err)
		return nil
	}
	var coming []string
	for name, listen := range r.changes() {
		if listen {
			coming = append(coming, name)
		} else if err := note(name, r.leave(ctx, name)); err != nil {
			return err
		}
	}
	for names := range slices.Chunk(coming, registerQueues) {
		for i, err := range r.serve(ctx, names) {
			if err := note(names[i], err); err != nil {
				return err
			}
		}
	}
	return errors.Join(errs...)
}

// complete tells whether the session listens to all desired queues, except for those that Redis refuses.
func (r *registrar) complete() bool {
	changes := r.changes()
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, listen := range changes {
		if listen && !r.refused[name] {
			return false
		}
	}
	return true
}

// changes are the queues that are not as desired: true is to be listened to, false to be left.
func (r *registrar) changes() map[string]bool {
	changes := r.desired()
	r.mu.Lock()
	defer r.mu.Unlock()
	for name, listens := range r.listens {
		switch {
		case listens && changes[name]:
			delete(changes, name)
		case listens:
			changes[name] = false
		}
	}
	return changes
}

// serve begins to serve queues, each with its own error.
func (r *registrar) serve(ctx context.Context, names []string) []error {
	errs := r.access.node.RegisterAll(ctx, names)
	var served []string
	for i, name := range names {
		if errs[i] != nil {
			continue
		}
		served = append(served, name)
		r.set(name, true)
		r.access.queues.add(name)
		r.scheduler.serve(r.access.place(name), r.source)
		r.access.logger.Info("serving queue", "queue", name)
	}
	if len(served) == 0 {
		return errs
	}
	if err := r.watch.Add(ctx, served...); err != nil && ctx.Err() == nil {
		// The poll finds what is not announced; the subscription comes back by itself.
		r.health.failedQuietly(opSubscribe, err)
	}
	return errs
}

// leave stops serving a queue. While Redis does not know of it the queue stays as it is: without a plugin nothing is taken
// from it, and it may have one again before Redis is back.
func (r *registrar) leave(ctx context.Context, name string) error {
	if err := r.access.node.Unregister(ctx, name); err != nil {
		return err
	}
	r.set(name, false)
	r.scheduler.leave(r.access.place(name))
	r.health.succeeded(opReserve, name) // if that failed: it may not be tried again
	_ = r.watch.Remove(ctx, name)       // without it, messages of a queue that is not served are passed over
	r.access.logger.Info("left queue", "queue", name)
	return nil
}

// registerAgain registers for the queues that do not know the session any more.
func (r *registrar) registerAgain(ctx context.Context) {
	unlisted, err := r.access.node.Unregistered(ctx, slices.Collect(maps.Keys(r.listening())))
	for _, name := range unlisted {
		if err = r.access.node.Register(ctx, name); err != nil {
			break
		}
		r.access.logger.Warn("queue did not know this listener any more: registered again", "queue", name)
	}
	if err != nil && ctx.Err() == nil {
		r.health.failedQuietly(opRegister, err) // the next time
	}
}

func (r *registrar) set(queue string, listens bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listens[queue] = listens
}

// listening are the queues that the session listens to now.
func (r *registrar) listening() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	queues := maps.Clone(r.listens)
	maps.DeleteFunc(queues, func(_ string, listens bool) bool { return !listens })
	return queues
}

// ever are the queues that the session listens to, or has left.
func (r *registrar) ever() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.listens))
}
