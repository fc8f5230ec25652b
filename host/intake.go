package host

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/quern-project/quern/sdk/queue/listen"

	"github.com/quern-project/quern/host/schedule"
	"github.com/quern-project/quern/host/upkeep"
	"github.com/quern-project/quern/metrics"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/sdk/queue"
)

// reserveTimeout bounds a reserve, and reconciling a queue. The connection's own time-outs bound each answer.
const reserveTimeout = 5 * time.Second

// intake reserves tasks of a session's queues for the slots that the scheduler allocates to it, one round trip at a
// time, and starts them.
type intake struct {
	access    *tenantAccess
	tasks     *taskSet
	scheduler *schedule.Scheduler
	health    *health
	lease     *leaseKeeper
	polls     *upkeep.Duty // the poller's
	shipper   *shipper
	workers   *workers
	runner    *runner
	ahead     *atomic.Int64 // tasks that are reserved ahead
	// quarantined are the digests of quarantined versions, by the queue that was to be reserved from; only reserve uses
	// it.
	quarantined map[string]string
}

// State implements schedule.Source.
func (in *intake) State(now time.Time) (available, reserving bool) {
	open, reserving := in.tasks.state()
	return open && in.health.mayReserve(now), reserving
}

// AddAhead implements schedule.Source.
func (in *intake) AddAhead(n int) { in.ahead.Add(int64(n)) }

// reserve reconciles the queues that need it, and then reserves from all. It cancels the allocations that it cannot try
// because ctx ended or Redis cannot serve.
func (in *intake) reserve(ctx context.Context, allocations []*schedule.Allocation) {
	defer in.tasks.endReserve()
	available := func() bool {
		available, _ := in.State(time.Now())
		return available && ctx.Err() == nil
	}
	var fresh []*schedule.Allocation
	for _, a := range allocations {
		switch {
		case !a.Reconcile:
			fresh = append(fresh, a)
		case available():
			in.reconcile(ctx, a)
		default:
			in.scheduler.Cancel(a)
		}
	}
	if available() {
		in.reserveFresh(ctx, fresh)
		return
	}
	for _, a := range fresh {
		in.scheduler.Cancel(a)
	}
}

// reserveFresh asks Redis for tasks. Once sent it is not cut off: that would leave reserved tasks that no host runs.
func (in *intake) reserveFresh(ctx context.Context, allocations []*schedule.Allocation) {
	if len(allocations) == 0 {
		return
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), reserveTimeout)
	defer cancel()
	requests := make([]listen.ReserveRequest, len(allocations))
	for i, a := range allocations {
		requests[i] = in.request(a)
	}
	for i, reply := range in.access.node.Reserve(bounded, requests) {
		in.accept(ctx, allocations[i], reply)
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
func (in *intake) request(a *schedule.Allocation) listen.ReserveRequest {
	version := versionOf(a)
	plugin, permissions := &version.Manifest, version.Permissions(a.Queue.Tenant)
	maxAge, _ := in.access.catalog.expiry(a.Queue.Name)
	return listen.ReserveRequest{
		Queue: a.Queue.Name, Count: a.Tasks(), Start: true, Plugin: version.Name, Digest: version.Digest, Version: plugin.Version,
		MaxAge: maxAge, MaxRunning: plugin.MaxRunning, Fleet: plugin.Queues,
		FailurePolicy: listen.FailurePolicy{
			NoRerun: plugin.OnCrash == manifest.CrashFail, MaxCrashes: permissions.MaxCrashes, Dead: permissions.Dead,
		},
	}
}

// reconcile reads the reserved list of a queue, takes on the tasks that the host does not know, the oldest first, and
// gives back those that it has no slot for: another host may have one. No reserve of the queue is on its way meanwhile:
// only the intake sends them.
func (in *intake) reconcile(ctx context.Context, a *schedule.Allocation) {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), reserveTimeout)
	defer cancel()
	name := a.Queue.Name
	before := in.tasks.all()
	ids, err := in.access.node.Held(bounded, name) // newest first
	ids = in.tasks.unknown(ids, before)
	over := max(0, len(ids)-a.Slots())
	released := 0
	if err == nil {
		released, err = in.release(bounded, name, ids[:over])
	}
	if err != nil {
		in.accept(ctx, a, listen.ReserveReply{Err: err})
		return
	}
	var reply listen.ReserveReply
	ids = ids[over:]
	slices.Reverse(ids)
	for part := range slices.Chunk(ids, listen.MaxClaims) {
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
	in.accept(ctx, a, reply)
}

// accept begins the tasks of a reply and frees the rest of the allocation.
func (in *intake) accept(ctx context.Context, a *schedule.Allocation, reply listen.ReserveReply) {
	tasks, now, version := make([]schedule.Task, len(reply.Tasks)), time.Now(), versionOf(a)
	var counts *metrics.Tasks
	if len(tasks) > 0 {
		counts = in.health.metrics.Tasks(a.Queue.Tenant, a.Queue.Name, version.Name)
	}
	for i, reservation := range reply.Tasks {
		version.Retain()
		t := &task{
			Reservation: reservation, Slot: a.Slot(now), version: version, counts: counts, tenant: in.access, reserved: reply.Clock, taken: now,
		}
		tasks[i] = t
		if in.tasks.add(t) {
			in.access.logger.Warn("a task that still runs here was reserved again: its former run is stopped, and its outcome dropped",
				t.logged("run", reservation.Run)...)
		}
	}
	away := queue.IsUnavailable(reply.Err)
	begun := in.scheduler.Reserved(a, tasks, schedule.Reply{
		Failed: reply.Err != nil, Refused: reply.Err != nil && !away, More: reply.Dropped > 0 || reply.Passed > 0,
	}, now)
	switch {
	case errors.Is(reply.Err, listen.ErrLeaseLost): // even if renewals succeed: they may reach another server
		in.lease.lost()
	case away && version == nil: // the queue may be left: no reserve follows that ends the trouble
		in.health.FailedQuietly(opReserve, reply.Err)
	case reply.Err != nil:
		in.health.Failed(opReserve, a.Queue.Name, reply.Err)
	}
	for range reply.Dropped {
		in.health.metrics.TaskDropped(a.Queue.Tenant, a.Queue.Name)
	}
	if len(tasks) > 0 {
		in.shipper.AskIn(shipInterval)
	}
	ctx = context.WithoutCancel(ctx) // a stopped task is cancelled by itself
	for _, t := range begun {
		in.start(ctx, t)
	}
}

func (in *intake) start(ctx context.Context, t schedule.Task) {
	in.workers.run(func() { in.runner.run(ctx, taskOf(t)) })
}

// noteQuarantine notes whether the version that was to run a queue's tasks is quarantined, and logs when that changes.
func (in *intake) noteQuarantine(request *listen.ReserveRequest, quarantined bool) {
	switch before := in.quarantined[request.Queue]; {
	case quarantined && before != request.Digest:
		in.quarantined[request.Queue] = request.Digest
		in.access.logger.Error("plugin is quarantined: tasks of this version ended several hosts, the others wait; replace it, or see `quern plugin release`",
			"queue", request.Queue, "plugin", request.Plugin, "digest", request.Digest)
	case !quarantined && before != "":
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

// RunOnce implements upkeep.Worker. A reserve may be on its way: reconcile, which knows, looks again before it takes
// anything on.
func (a *auditor) RunOnce(ctx context.Context) (pause, wait time.Duration, err error) {
	in := a.intake
	lease, before := in.access.node.Lease(), in.tasks.all()
	held, err := in.access.node.HeldAll(ctx, a.registrar.ever())
	if err != nil {
		return lease, lease, nil // the lease keeper reports it, and the next audit looks again
	}
	for name, ids := range held {
		if len(in.tasks.unknown(ids, before)) > 0 {
			in.scheduler.Reconcile(in.access.queue(name), in)
		}
	}
	return lease, lease, nil
}

// sweep gives back, when the session ends, the tasks that the host does not know because their reserve was not
// answered.
func (in *intake) sweep(ctx context.Context, queues []string) {
	var held map[string][]string
	err := listen.Persist(ctx, func(context.Context) (err error) {
		held, err = in.access.node.HeldAll(ctx, queues)
		return err
	})
	if err != nil && ctx.Err() == nil {
		in.access.logger.Error("queues were not searched for unknown tasks", "error", err)
	}
	for name, ids := range held {
		ids = in.tasks.unknown(ids, nil)
		err := listen.Persist(ctx, func(context.Context) error { _, err := in.release(ctx, name, ids); return err })
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
	for part := range slices.Chunk(ids, listen.MaxClaims) {
		reply := in.access.node.Adopt(ctx, listen.ReserveRequest{Queue: name}, part)
		if reply.Err != nil {
			return released, reply.Err
		}
		claims := make([]listen.Claim, len(reply.Tasks))
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
