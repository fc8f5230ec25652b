package host

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/quern-project/quern/host/upkeep"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/sdk/queue"
)

// reserveTimeout bounds a reserve, and reconciling a queue. The connection's own time-outs bound each answer.
const reserveTimeout = 5 * time.Second

// intake reserves tasks of a session's queues for the slots that the scheduler allocates to it, one round trip at a time,
// and starts them.
type intake struct {
	access    *tenantAccess
	tasks     *taskSet
	scheduler *scheduler
	health    *health
	lease     *leaseKeeper
	polls     *upkeep.Duty // the poller's
	shipper   *shipper
	expiry    func(queue string) (maxAge time.Duration, dead string)
	workers   *workers
	runner    *runner
	ahead     *atomic.Int64 // tasks that are reserved ahead
	// quarantined are the digests of quarantined versions, by the queue that was to be reserved from; only reserve uses it.
	quarantined map[string]string
}

func (in *intake) state(now time.Time) (available, reserving bool) {
	open, reserving := in.tasks.state()
	return open && in.health.mayReserve(now), reserving
}

func (in *intake) beginReserve() bool { return in.tasks.beginReserve() }

// reserve reconciles the queues that need it, and then reserves from all. It cancels the allocations that it cannot try because
// ctx ended or Redis cannot serve.
func (in *intake) reserve(ctx context.Context, allocations []*allocation) {
	defer in.tasks.endReserve()
	available := func() bool {
		available, _ := in.state(time.Now())
		return available && ctx.Err() == nil
	}
	var fresh []*allocation
	for _, a := range allocations {
		switch {
		case !a.reconcile:
			fresh = append(fresh, a)
		case available():
			in.reconcile(ctx, a)
		default:
			in.scheduler.cancel(a)
		}
	}
	if available() {
		in.reserveFresh(ctx, fresh)
		return
	}
	for _, a := range fresh {
		in.scheduler.cancel(a)
	}
}

// reserveFresh asks Redis for tasks. Once sent it is not cut off: that would leave tasks that nobody knows of.
func (in *intake) reserveFresh(ctx context.Context, allocations []*allocation) {
	if len(allocations) == 0 {
		return
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), reserveTimeout)
	defer cancel()
	requests := make([]queue.ReserveRequest, len(allocations))
	for i, a := range allocations {
		requests[i] = in.request(a)
	}
	for i, reply := range in.access.node.Reserve(bounded, requests) {
		in.take(ctx, allocations[i], reply)
		if reply.Err != nil {
			continue
		}
		in.health.Succeeded(opReserve, requests[i].Queue)
		in.noteQuarantine(&requests[i], reply.Quarantined)
		in.health.NoDeadLetter(opReserve, requests[i].Queue, reply.DeadError)
		if !reply.NextETA.IsZero() {
			in.polls.AskIn(reply.NextETA.Sub(reply.Clock))
		}
	}
}

// request is the reserve of an allocation. Its tasks start at once.
func (in *intake) request(a *allocation) queue.ReserveRequest {
	plugin, permissions := &a.version.Manifest, a.version.Permissions(a.served.tenant)
	maxAge, _ := in.expiry(a.served.queue)
	return queue.ReserveRequest{
		Queue: a.served.queue, Count: len(a.shares) + a.ahead, Start: true, Plugin: a.version.Name, Digest: a.version.Digest, Version: a.version.Manifest.Version,
		MaxAge: maxAge, MaxRunning: plugin.MaxRunning, Fleet: plugin.Queues,
		FailurePolicy: queue.FailurePolicy{
			NoRerun: plugin.OnCrash == manifest.CrashFail, MaxCrashes: permissions.MaxCrashes, Dead: permissions.Dead,
		},
	}
}

// reconcile reads the reserved list of a queue, takes on the tasks that the host does not know, the oldest first, and gives
// back those that it has no slot for: another host may have one. No reserve of the queue is on its way meanwhile: only the
// intake sends them.
func (in *intake) reconcile(ctx context.Context, a *allocation) {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), reserveTimeout)
	defer cancel()
	name := a.served.queue
	before := in.tasks.all()
	ids, err := in.access.node.Held(bounded, name) // newest first
	ids = in.tasks.unknown(ids, before)
	over := max(0, len(ids)-len(a.shares))
	released := 0
	if err == nil {
		released, err = in.release(bounded, name, ids[:over])
	}
	if err != nil {
		in.take(ctx, a, queue.ReserveReply{Err: err})
		return
	}
	var reply queue.ReserveReply
	ids = ids[over:]
	slices.Reverse(ids)
	for part := range slices.Chunk(ids, queue.MaxClaims) {
		tasks := reply.Tasks
		reply = in.access.node.Adopt(bounded, in.request(a), part)
		if reply.Tasks = append(tasks, reply.Tasks...); reply.Err != nil {
			break
		}
	}
	if released > 0 {
		in.access.logger.Warn("gave back tasks whose reserve was not answered", "queue", name, "tasks", released)
	}
	if len(reply.Tasks) > 0 {
		in.access.logger.Warn("took on tasks whose reserve was not answered", "queue", name, "tasks", len(reply.Tasks))
	}
	in.take(ctx, a, reply)
}

// take begins the tasks of a reply and frees what is left of the allocation.
func (in *intake) take(ctx context.Context, a *allocation, reply queue.ReserveReply) {
	tasks, now := make([]*task, len(reply.Tasks)), time.Now()
	of := slot{served: a.served, version: a.version}
	if len(tasks) > 0 {
		of.counts = in.health.metrics.Tasks(a.served.tenant, a.served.queue, a.version.Name)
	}
	for i, reservation := range reply.Tasks {
		a.version.Retain()
		tasks[i] = &task{Reservation: reservation, slot: of, tenant: in.access, reserved: reply.Clock, taken: now}
		if in.tasks.add(tasks[i]) {
			in.access.logger.Warn("a task that still runs here was reserved again: its former run is stopped, and its outcome dropped",
				tasks[i].logged("run", reservation.Run)...)
		}
	}
	begun := in.scheduler.close(a, tasks, reply)
	switch {
	case errors.Is(reply.Err, queue.ErrLeaseLost): // whatever renewals say, which may go to another server
		in.lease.lost()
	case queue.IsUnavailable(reply.Err) && a.version == nil: // it may be left: no reserve follows that ends the trouble
		in.health.failedQuietly(opReserve, reply.Err)
	case reply.Err != nil:
		in.health.Failed(opReserve, a.served.queue, reply.Err)
	}
	for range reply.Dropped {
		in.health.metrics.TaskDropped(a.served.tenant, a.served.queue)
	}
	if len(tasks) > 0 {
		in.shipper.AskIn(shipInterval)
	}
	ctx = context.WithoutCancel(ctx) // tasks end when they are told
	for _, t := range begun {
		in.start(ctx, t)
	}
}

func (in *intake) start(ctx context.Context, t *task) {
	in.workers.run(func() { in.runner.run(ctx, t) })
}

func (in *intake) giveBack(tasks []*task) { in.runner.giveBack(tasks) }

func (in *intake) reservedAhead() *atomic.Int64 { return in.ahead }

// noteQuarantine notes whether the version that was to run a queue's tasks is quarantined, and logs when that changes.
func (in *intake) noteQuarantine(request *queue.ReserveRequest, is bool) {
	switch before := in.quarantined[request.Queue]; {
	case is && before != request.Digest:
		in.quarantined[request.Queue] = request.Digest
		in.access.logger.Error("plugin is quarantined: tasks of this version ended several hosts, the others wait; replace it, or see `quern plugin release`",
			"queue", request.Queue, "plugin", request.Plugin, "digest", request.Digest)
	case !is && before != "":
		delete(in.quarantined, request.Queue)
		in.access.logger.Info("plugin is not quarantined any more", "queue", request.Queue, "plugin", request.Plugin, "digest", request.Digest)
	}
}

// auditor has the queues reconciled, once a lease, whose reserved lists have a task that the host does not know.
type auditor struct {
	upkeep.Duty
	intake    *intake
	registrar *registrar
}

// RunOnce implements upkeep.Worker. A reserve may be on its way: reconcile, which knows, looks again before it takes anything on.
func (a *auditor) RunOnce(ctx context.Context) (pause, wait time.Duration, err error) {
	in := a.intake
	lease, before := in.access.client.Lease(), in.tasks.all()
	held, err := in.access.node.HeldAll(ctx, a.registrar.ever())
	if err != nil {
		return lease, lease, nil // the lease keeper reports it, and the next audit looks again
	}
	for name, ids := range held {
		if len(in.tasks.unknown(ids, before)) > 0 {
			in.scheduler.reconcile(in.access.place(name), in)
		}
	}
	return lease, lease, nil
}

// sweep gives back, when the session ends, the tasks that the host does not know because their reserve was not answered.
func (in *intake) sweep(ctx context.Context, queues []string) {
	var held map[string][]string
	err := queue.Persist(ctx, func(context.Context) (err error) {
		held, err = in.access.node.HeldAll(ctx, queues)
		return err
	})
	if err != nil && ctx.Err() == nil {
		in.access.logger.Error("queues were not searched for unknown tasks", "error", err)
	}
	for name, ids := range held {
		ids = in.tasks.unknown(ids, nil)
		err := queue.Persist(ctx, func(context.Context) error { _, err := in.release(ctx, name, ids); return err })
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			in.access.logger.Error("unknown tasks of a queue were not given back", "queue", name, "error", err)
		}
	}
}

// release gives back tasks that the host does not know, the newest first, and returns how many it had.
func (in *intake) release(ctx context.Context, name string, ids []string) (released int, err error) {
	for part := range slices.Chunk(ids, queue.MaxClaims) {
		reply := in.access.node.Adopt(ctx, queue.ReserveRequest{Queue: name}, part)
		if reply.Err != nil {
			return released, reply.Err
		}
		claims := make([]queue.Claim, len(reply.Tasks))
		for i, reservation := range reply.Tasks {
			claims[i] = reservation.Claim()
		}
		if len(claims) == 0 {
			continue
		}
		if _, err := in.access.node.Release(ctx, name, claims); err != nil {
			return released, err
		}
		released += len(claims)
	}
	return released, nil
}
