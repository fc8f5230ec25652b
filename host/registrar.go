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

	"github.com/quern-project/quern/host/schedule"
	"github.com/quern-project/quern/host/upkeep"
	"github.com/quern-project/quern/sdk/queue"
)

// recheckLeases is after how many leases the registrar checks that Redis still knows its registrations.
const recheckLeases = 6

// registerQueues is how many queues are registered for in one round trip.
const registerQueues = 1000

// registrar registers a session as the listener of the queues that have a plugin here, and leaves the others. It
// repeats what failed.
type registrar struct {
	upkeep.Duty
	access    *tenantAccess
	watch     *listen.Watch
	scheduler *schedule.Scheduler
	source    schedule.Source
	publish   func()      // called after changes
	followed  atomic.Bool // no queue has got or lost its plugin since the last update
	recheck   time.Time

	mu sync.Mutex
	// listens maps queues to whether the session listens to them; false: it has left. Guarded by mu.
	listens map[string]bool
	refused map[string]bool // queues that Redis did not let it listen to; guarded by mu
}

// follow makes the session listen to the queues that have a plugin now.
func (r *registrar) follow() {
	r.followed.Store(false)
	r.Ask()
}

// RunOnce implements upkeep.Worker.
func (r *registrar) RunOnce(ctx context.Context) (pause, wait time.Duration, err error) {
	interval := recheckLeases * r.access.node.Lease()
	if r.recheck.IsZero() {
		r.recheck = time.Now().Add(interval)
	}
	if !r.followed.Swap(true) {
		if err := r.update(ctx); err != nil {
			r.followed.Store(false)
			return 0, 0, err
		}
		r.Reports.Succeeded(opRegister, "") // a change that failed may have been taken back
		r.publish()
	}
	if time.Now().After(r.recheck) {
		r.registerAgain(ctx)
		r.recheck = time.Now().Add(interval)
	}
	return 0, time.Until(r.recheck), nil
}

// update registers for queues and leaves others, as desired. A queue that Redis refuses does not stop the others.
func (r *registrar) update(ctx context.Context) error {
	var errs []error
	record := func(name string, err error) (fatal error) {
		switch {
		case err == nil:
			r.Reports.Succeeded(opRegister, name)
			return nil
		case ctx.Err() != nil:
			return err
		}
		r.Reports.Failed(opRegister, name, err)
		if queue.IsUnavailable(err) {
			return err
		}
		r.mu.Lock()
		r.refused[name] = true
		r.mu.Unlock()
		errs = append(errs, err)
		return nil
	}
	var joining []string
	for name, listen := range r.changes() {
		if listen {
			joining = append(joining, name)
		} else if err := record(name, r.leave(ctx, name)); err != nil {
			return err
		}
	}
	for names := range slices.Chunk(joining, registerQueues) {
		for i, err := range r.serve(ctx, names) {
			if err := record(names[i], err); err != nil {
				return err
			}
		}
	}
	return errors.Join(errs...)
}

// complete reports whether the session listens to all desired queues, except for those that Redis refuses.
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

// changes lists the queues to listen to (true) and those to leave (false).
func (r *registrar) changes() map[string]bool {
	changes := r.access.catalog.queues()
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
		r.scheduler.Serve(r.access.queue(name), r.source)
		r.access.logger.Info("serving queue", "queue", name)
	}
	if len(served) == 0 {
		return errs
	}
	if err := r.watch.Add(ctx, served...); err != nil && ctx.Err() == nil {
		// The poll finds what is not announced; the subscription comes back by itself.
		r.Reports.FailedQuietly(opSubscribe, err)
	}
	return errs
}

// leave stops serving a queue. If Redis is away the queue stays as it is: without a plugin no task is reserved from it,
// and it may have a plugin again before Redis is back.
func (r *registrar) leave(ctx context.Context, name string) error {
	if err := r.access.node.Unregister(ctx, name); err != nil {
		return err
	}
	r.set(name, false)
	r.scheduler.Leave(r.access.queue(name))
	r.Reports.Succeeded(opReserve, name) // no reserve may follow that ends the trouble
	_ = r.watch.Remove(ctx, name)        // without it, messages of a queue that is not served are passed over
	r.access.logger.Info("left queue", "queue", name)
	return nil
}

// registerAgain registers for the queues that have forgotten the session.
func (r *registrar) registerAgain(ctx context.Context) {
	unlisted, err := r.access.node.Unregistered(ctx, slices.Collect(maps.Keys(r.listening())))
	for _, name := range unlisted {
		if err = r.access.node.Register(ctx, name); err != nil {
			break
		}
		r.access.logger.Warn("queue did not know this listener any more: registered again", "queue", name)
	}
	if err != nil && ctx.Err() == nil {
		r.Reports.FailedQuietly(opRegister, err) // the next time
	}
}

func (r *registrar) set(queue string, listens bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listens[queue] = listens
}

// listening lists the queues that the session listens to now.
func (r *registrar) listening() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	queues := maps.Clone(r.listens)
	maps.DeleteFunc(queues, func(_ string, listens bool) bool { return !listens })
	return queues
}

// ever lists the queues that the session listens to, or has left.
func (r *registrar) ever() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.listens))
}
