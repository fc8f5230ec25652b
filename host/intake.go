package host

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/sdk/queue"
)

// reserveTimeout bounds a reserve, and what is compared before it. The connection's own time-outs bound each answer.
const reserveTimeout = 5 * time.Second

// intake reserves tasks of a session's queues for the slots that the scheduler allocates to it, one round trip at a time,
// and begins them.
type intake struct {
	access    *tenantAccess
	tasks     *taskSet
	scheduler *scheduler
	health    *health
	maxAge    func(queue string) time.Duration
	// run runs a task, begun is called for each batch of tasks, next with when a queue's next task is due, and lost when
	// Redis does not know the listener any more.
	run   func(context.Context, *task)
	begun func()
	next  func(at, clock time.Time)
	lost  func()

	mu sync.Mutex
	// quarantined are the digests of quarantined versions, by the queue that was to be reserved from; guarded by mu.
	quarantined map[string]string
}

func (in *intake) state(now time.Time) (available, reserving bool) {
	open, reserving := in.tasks.state()
	return open && in.health.mayReserve(now), reserving
}

func (in *intake) available() bool {
	available, _ := in.state(time.Now())
	return available
}

func (in *intake) begin() bool { return in.tasks.beginReserve() }

// wake tells that there may be work in a queue.
func (in *intake) wake(name string) { in.scheduler.wake(place{in.access.client.Tenant(), name}) }

// reserve does what is allocated: first it reconciles queues. What it does not come to, because ctx ended or Redis cannot
// serve, it cancels.
func (in *intake) reserve(ctx context.Context, allocations []*allocation) {
	defer in.tasks.endReserve()
	var fresh []*allocation
	for _, a := range allocations {
		switch {
		case !a.reconcile:
			fresh = append(fresh, a)
		case ctx.Err() != nil || !in.available():
			in.scheduler.cancel(a)
		default:
			in.reconcile(ctx, a)
		}
	}
	if ctx.Err() == nil && in.available() {
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
	bounded, cancel := outlive(ctx)
	defer cancel()
	wants := make([]queue.ReserveRequest, len(allocations))
	for i, a := range allocations {
		wants[i] = in.want(a)
	}
	for i, batch := range in.access.node.Reserve(bounded, wants) {
		in.take(ctx, allocations[i], batch)
		if batch.Err != nil {
			continue
		}
		in.health.succeeded(opReserve, wants[i].Queue)
		in.noteQuarantine(&wants[i], batch.Quarantined)
		in.health.noDeadLetter(opReserve, wants[i].Queue, batch.DeadError)
		if !batch.NextETA.IsZero() {
			in.next(batch.NextETA, batch.Clock)
		}
	}
}

// want asks for what is allocated, to be run at once.
func (in *intake) want(a *allocation) queue.ReserveRequest {
	plugin, permissions := &a.version.Manifest, a.version.Permissions(a.served.tenant)
	return queue.ReserveRequest{
		Queue: a.served.queue, Count: len(a.shares), Start: true, Plugin: a.version.Name, Digest: a.version.Digest,
		MaxAge: in.maxAge(a.served.queue), MaxRunning: plugin.MaxRunning, Fleet: plugin.Queues,
		FailurePolicy: queue.FailurePolicy{
			NoRerun: plugin.OnCrash == manifest.CrashFail, MaxCrashes: permissions.MaxCrashes, Dead: permissions.Dead,
		},
	}
}

// reconcile looks into the reserved list of a queue, takes on what the host does not know, from the oldest on, and gives back
// what there is no slot for: another host may have one. No reserve of the queue is on its way meanwhile: only the intake
// sends them.
func (in *intake) reconcile(ctx context.Context, a *allocation) {
	bounded, cancel := outlive(ctx)
	defer cancel()
	name := a.served.queue
	ids, err := in.access.node.Held(bounded, name) // newest first
	ids = in.tasks.unknown(ids)
	over := max(0, len(ids)-len(a.shares))
	if err == nil {
		err = giveBack(bounded, in.access.node, name, ids[:over])
	}
	if err != nil {
		in.take(ctx, a, queue.ReserveReply{Err: err})
		return
	}
	var batch queue.ReserveReply
	if ids = ids[over:]; len(ids) > 0 {
		slices.Reverse(ids)
		batch = in.access.node.Adopt(bounded, in.want(a), ids)
	}
	if over > 0 {
		in.access.logger.Warn("gave back tasks whose reserve was not answered", "queue", name, "tasks", over)
	}
	if len(batch.Tasks) > 0 {
		in.access.logger.Warn("took on tasks whose reserve was not answered", "queue", name, "tasks", len(batch.Tasks))
	}
	in.take(ctx, a, batch)
}

func outlive(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), reserveTimeout)
}

// take begins the tasks of a batch and frees what is left of the allocation.
func (in *intake) take(ctx context.Context, a *allocation, batch queue.ReserveReply) {
	tasks := make([]*task, len(batch.Tasks))
	for i, reservation := range batch.Tasks {
		a.version.Retain()
		tasks[i] = &task{
			Reservation: reservation, slot: slot{a.served, a.version, a.shares[i]}, tenant: in.access,
			reserved: batch.Clock, taken: time.Now(),
		}
		in.tasks.add(tasks[i])
	}
	in.scheduler.close(a, len(tasks), batch)
	switch {
	case errors.Is(batch.Err, queue.ErrLeaseLost): // whatever renewals say, which may go to another server
		in.lost()
	case batch.Err != nil:
		in.health.failed(opReserve, a.served.queue, batch.Err)
	}
	for range batch.Dropped {
		in.health.metrics.TaskDropped(a.served.tenant, a.served.queue)
	}
	if len(tasks) > 0 {
		in.begun()
	}
	ctx = context.WithoutCancel(ctx) // tasks end when they are told
	for _, t := range tasks {
		in.run(ctx, t)
	}
}

// noteQuarantine notes whether the version that was to run a queue's tasks is quarantined, and logs when that changes.
func (in *intake) noteQuarantine(want *queue.ReserveRequest, is bool) {
	in.mu.Lock()
	before := in.quarantined[want.Queue]
	delete(in.quarantined, want.Queue)
	if is {
		in.quarantined[want.Queue] = want.Digest
	}
	in.mu.Unlock()
	switch {
	case is && before != want.Digest:
		in.access.logger.Error("plugin is quarantined: tasks of this version ended several hosts, the others wait; replace it, or see `quern plugin release`",
			"queue", want.Queue, "plugin", want.Plugin, "digest", want.Digest)
	case !is && before != "":
		in.access.logger.Info("plugin is not quarantined any more", "queue", want.Queue, "plugin", want.Plugin, "digest", want.Digest)
	}
}

// audit has the queues reconciled whose reserved lists have a task that the host does not know. A reserve may be on its way:
// reconcile, which knows, looks again before it takes anything on.
func (in *intake) audit(ctx context.Context, queues []string) {
	held, err := in.access.node.HeldAll(ctx, queues)
	if err != nil {
		return // the lease keeper reports it, and the next audit looks again
	}
	for name, ids := range held {
		if len(in.tasks.unknown(ids)) > 0 {
			in.scheduler.reconcile(place{in.access.client.Tenant(), name}, in)
		}
	}
}

// sweep gives back, when the session ends, the tasks that the host does not know because their reserve was not answered.
func (in *intake) sweep(ctx context.Context, queues []string) {
	var held map[string][]string
	err := persist(ctx, func() (err error) {
		held, err = in.access.node.HeldAll(ctx, queues)
		return err
	})
	if err != nil && ctx.Err() == nil {
		in.access.logger.Error("queues were not searched for unknown tasks", "error", err)
	}
	for name, ids := range held {
		ids = in.tasks.unknown(ids)
		err := persist(ctx, func() error { return giveBack(ctx, in.access.node, name, ids) })
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			in.access.logger.Error("unknown tasks of a queue were not given back", "queue", name, "error", err)
		}
	}
}

// giveBack releases tasks that the host does not know; the newest come first.
func giveBack(ctx context.Context, node *queue.Node, name string, ids []string) error {
	for part := range slices.Chunk(ids, batchTasks) {
		batch := node.Adopt(ctx, queue.ReserveRequest{Queue: name}, part)
		if batch.Err != nil {
			return batch.Err
		}
		holds := make([]queue.Claim, len(batch.Tasks))
		for i, reservation := range batch.Tasks {
			holds[i] = reservation.Claim()
		}
		if len(holds) == 0 {
			continue
		}
		if _, err := node.Release(ctx, name, holds); err != nil {
			return err
		}
	}
	return nil
}
