package host

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/quern-project/quern/host/rollout"
	"github.com/quern-project/quern/host/schedule"
	"github.com/quern-project/quern/metrics"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

// reserveTimeout is the time limit of a reserve, and of reconciling a queue. In addition, each single reply of Redis
// has the timeout of the connection.
const reserveTimeout = 5 * time.Second

// insteadPause is the minimum time between two lines of the log about tasks that run on another release than theirs.
const insteadPause = time.Minute

// intake reserves tasks of a session's queues for the slots that the scheduler allocates to it, one round trip at a
// time, and starts them.
type intake struct {
	access    *tenantAccess
	scheduler *schedule.Scheduler
	health    *health
	polls     *periodic.Duty // the duty of the poller
	shipper   *shipper
	workers   *workers
	runner    *runner
	ahead     *atomic.Int64 // tasks that are reserved ahead
	releases  *rollout.Follower
	// quarantined maps a queue to its plugin version, if that version is quarantined. Only reserve uses it.
	quarantined map[string]quarantined
	// instead has the tasks that ran on another release than theirs and are not logged yet. Only reserve uses it.
	instead map[instead]*unlogged
}

// instead says on which release tasks of a queue were to run, and why they ran on another.
type instead struct {
	queue string
	own   int
	why   string
}

// quarantined is a version of a plugin that is quarantined.
type quarantined struct {
	digest string
	cause  listen.Cause
}

// unlogged are tasks since the last line of the log about them.
type unlogged struct {
	tasks int
	since time.Time // when that line was logged
}

// State implements schedule.Source.
func (in *intake) State(now time.Time) (available, reserving bool) {
	open, reserving := in.access.listener.Tasks.State()
	return open && in.health.mayReserve(now), reserving
}

// AddAhead implements schedule.Source.
func (in *intake) AddAhead(n int) { in.ahead.Add(int64(n)) }

// reserve reconciles the queues that need it, and then reserves from the other queues. If ctx has ended or Redis cannot
// serve, it cancels the allocations that it has not tried yet.
func (in *intake) reserve(ctx context.Context, allocations []*schedule.Allocation) {
	defer in.access.listener.Tasks.EndReserve()
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

// reserveFresh asks Redis for tasks. The end of ctx does not cut off a request that was sent: that would leave reserved
// tasks that no host runs.
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
	for i, reply := range in.access.listener.Reserve(bounded, requests) {
		in.accept(ctx, allocations[i], reply)
		if reply.Err != nil {
			continue
		}
		if requests[i].Release > 0 {
			in.noteReleases(&requests[i], &reply, time.Now())
		}
		in.health.Succeeded(opReserve, requests[i].Queue)
		in.noteQuarantine(&requests[i], reply.Quarantined)
		in.health.NoDeadLetter(opReserve, requests[i].Queue, reply.DeadError)
		if !reply.NextETA.IsZero() {
			in.polls.AskIn(reply.NextETA.Sub(reply.Clock))
		}
	}
}

// request builds the reserve request for an allocation. It makes Redis mark the reserved tasks as started at once.
func (in *intake) request(a *schedule.Allocation) listen.ReserveRequest {
	version := servingOf(a)
	plugin := &version.Manifest
	maxAge, _ := in.access.catalog.expiry(a.Queue.Name)
	r := listen.ReserveRequest{
		Queue: a.Queue.Name, Count: a.Tasks(), Start: true, Plugin: version.Name, Digest: version.Digest,
		Version: plugin.Version,
		MaxAge:  maxAge, MaxRunning: plugin.MaxRunning, Fleet: plugin.Queues, Memory: a.Version.Memory,
		FailurePolicy: failurePolicy(version.TenantVersion), Breaker: plugin.Breaker.Failures > 0,
		Release: version.Number, Pin: plugin.Pin == manifest.PinTask,
	}
	if version.Number > 0 {
		in.addReleases(&r, version)
	}
	return r
}

func failurePolicy(v *plugins.TenantVersion) listen.FailurePolicy {
	return listen.FailurePolicy{
		NoRerun: v.Manifest.OnCrash == manifest.CrashFail, MaxCrashes: v.Permissions.MaxCrashes, Dead: v.Permissions.Dead,
	}
}

// addReleases adds the canary of a plugin to a request, and the releases that this host has beside the one that serves.
func (in *intake) addReleases(r *listen.ReserveRequest, serving plugins.Serving) {
	canary, gone := in.releases.Staged(serving.Name)
	if canary != nil && canary.Number != serving.Number &&
		(len(canary.Queues) == 0 || slices.Contains(canary.Queues, r.Queue)) {
		r.Canary = &listen.CanaryShare{
			Number: canary.Number, Percent: canary.Stage.Percent(), Needle: canary.Stage.Share.Needle(),
		}
	}
	for _, number := range serving.Others() {
		v := serving.Other(number)
		r.Others = append(r.Others, listen.OtherRelease{
			Number: number, Plugin: v.Name, Digest: v.Digest, Version: v.Manifest.Version, FailurePolicy: failurePolicy(v),
			Breaker: v.Manifest.Breaker.Failures > 0, Pin: v.Manifest.Pin == manifest.PinTask,
		})
	}
	for _, number := range gone {
		r.Others = append(r.Others, listen.OtherRelease{Number: number, Gone: true})
	}
}

// noteReleases asks for releases that tasks of a reply need, and logs which tasks run on another release than theirs.
func (in *intake) noteReleases(request *listen.ReserveRequest, reply *listen.ReserveReply, now time.Time) {
	needed, others := slices.Clone(reply.Lacking), make(map[int]int)
	for i := range reply.Tasks {
		switch t := &reply.Tasks[i]; {
		case t.Release > 0:
			needed = append(needed, t.Release)
		case t.Instead > 0:
			others[t.Instead]++
		}
	}
	slices.Sort(needed)
	ask := false
	for _, number := range slices.Compact(needed) {
		if in.releases.Need(request.Plugin, number, now) {
			ask = true
		}
	}
	if ask {
		in.releases.Ask()
	}
	for number, tasks := range others {
		why := "no host that may run it took them for a minute"
		if slices.ContainsFunc(request.Others, func(o listen.OtherRelease) bool { return o.Gone && o.Number == number }) {
			why = "it was deleted, halted or rolled back"
		}
		u := in.instead[instead{request.Queue, number, why}]
		if u == nil {
			u = &unlogged{}
			in.instead[instead{request.Queue, number, why}] = u
		}
		if u.tasks += tasks; now.Sub(u.since) < insteadPause {
			continue
		}
		in.access.logger.Warn("tasks run on the release that serves, and not on their own", "queue", request.Queue,
			"plugin", request.Plugin, "tasks", u.tasks, "release", request.Release, "own", number, "why", why)
		*u = unlogged{since: now}
	}
}

// reconcile reads the reserved list of a queue. It takes on the tasks that the host does not know, the oldest first, as
// far as the allocation has slots for them. It gives the rest back, because another host may have a slot. No reserve of
// the queue is on its way meanwhile, because only the intake sends reserves.
func (in *intake) reconcile(ctx context.Context, a *schedule.Allocation) {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), reserveTimeout)
	defer cancel()
	name := a.Queue.Name
	listener := in.access.listener
	before := listener.Tasks.All()
	ids, err := listener.Held(bounded, name) // newest first
	ids = listener.Tasks.Unknown(ids, before)
	over := max(0, len(ids)-a.Slots())
	released := 0
	if err == nil {
		released, err = listener.GiveBack(bounded, name, ids[:over])
	}
	if err != nil {
		in.accept(ctx, a, listen.ReserveReply{Err: err})
		return
	}
	ids = ids[over:]
	slices.Reverse(ids)
	var reply listen.ReserveReply
	// If no IDs are left, there may be no version either, because the queue has lost its plugin.
	if len(ids) > 0 {
		reply = listener.Adopt(bounded, in.request(a), ids)
	}
	if released > 0 {
		in.access.logger.Warn("gave back tasks whose reserve was not answered", "queue", name, "tasks", released)
	}
	if len(reply.Tasks) > 0 {
		in.access.logger.Warn("took on tasks whose reserve was not answered", "queue", name, "tasks", len(reply.Tasks))
	}
	in.accept(ctx, a, reply)
}

// accept passes the tasks of a reply to the scheduler, which frees the unused slots of the allocation, and starts the
// tasks that get a slot.
func (in *intake) accept(ctx context.Context, a *schedule.Allocation, reply listen.ReserveReply) {
	tasks, now, serving := make([]schedule.Task, len(reply.Tasks)), time.Now(), servingOf(a)
	var counts *metrics.Tasks
	if len(tasks) > 0 {
		counts = in.health.metrics.Tasks(a.Queue.Tenant, a.Queue.Name, serving.Name)
	}
	canary := in.canaryBeside(serving, len(tasks))
	apart := canary != 0 && canary != serving.Number && serving.Other(canary) == nil
	for i, reservation := range reply.Tasks {
		version, number := serving.TenantVersion, serving.Number
		if reservation.Release > 0 {
			version, number = serving.Other(reservation.Release), reservation.Release
		}
		version.Retain()
		t := &task{
			Task: listen.NewTask(a.Queue.Name, reservation, &reply, now), Slot: a.Slot(now), version: version, counts: counts,
			tenant: in.access, release: number, apart: apart,
		}
		if serving.Manifest.MaxRunning > 0 {
			t.bound = serving.Manifest.Queues
		}
		switch canary {
		case 0:
		case number:
			t.side = sideCanary
		default:
			t.side = sideStable
		}
		t.Value, tasks[i] = t, t
		if in.access.listener.Tasks.Add(&t.Task) {
			in.access.logger.Warn("a task that still runs here was reserved again: its former run is stopped, and its outcome dropped",
				t.logged("run", reservation.Run)...)
		}
	}
	away := queue.IsUnavailable(reply.Err)
	begun := in.scheduler.Reserved(a, tasks, schedule.Reply{
		Failed: reply.Err != nil, Refused: reply.Err != nil && !away, More: reply.Dropped > 0 || reply.Passed > 0,
		Elsewhere: len(tasks) == 0 && len(reply.Lacking) > 0, Early: reply.Early,
	}, now)
	switch {
	case errors.Is(reply.Err, listen.ErrLeaseLost): // even if renewals succeed: they may reach another server
		in.access.listener.Lost()
	case away && serving.TenantVersion == nil:
		// The host may have left the queue: then no reserve follows that could end the trouble.
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
	ctx = context.WithoutCancel(ctx) // tasks are stopped one by one, not by ctx
	for _, t := range begun {
		in.start(ctx, t)
	}
}

// canaryBeside returns the number of the canary beside what serves; 0 if there is none, or no task.
func (in *intake) canaryBeside(serving plugins.Serving, tasks int) int {
	if tasks == 0 || serving.Number == 0 {
		return 0
	}
	if canary, _ := in.releases.Staged(serving.Name); canary != nil {
		return canary.Number
	}
	return 0
}

func (in *intake) start(ctx context.Context, t schedule.Task) {
	in.workers.run(func() { in.runner.run(ctx, taskOf(t)) })
}

// noteQuarantine records whether the plugin version of a queue is quarantined, and logs a change.
func (in *intake) noteQuarantine(request *listen.ReserveRequest, cause listen.Cause) {
	before, was := in.quarantined[request.Queue]
	now := quarantined{request.Digest, cause}
	fields := []any{"queue", request.Queue, "plugin", request.Plugin, "digest", request.Digest}
	switch {
	case cause == "" && was:
		delete(in.quarantined, request.Queue)
		in.access.logger.Info("plugin is not quarantined any more", fields...)
	case cause == "" || now == before:
		return
	case cause == listen.CauseFailures:
		in.access.logger.Warn("circuit breaker of the plugin is open and its tasks wait: runs of this version failed in a row, "+
			"so one task runs as a probe after each pause; see `quern plugin ls`", fields...)
	default:
		in.access.logger.Error("plugin is quarantined and its tasks wait: tasks of this version crashed several hosts; "+
			"replace the version, or see `quern plugin release`", fields...)
	}
	if cause != "" {
		in.quarantined[request.Queue] = now
	}
}

// auditor looks, once per lease length, for reserved tasks that the host does not know, and has their queues
// reconciled.
type auditor struct {
	periodic.Duty
	intake *intake
}

// RunOnce implements periodic.Worker. An unknown task can belong to a reserve that is still on its way. Therefore
// reconcile, which runs while no reserve is on its way, looks again before it takes on any task.
func (a *auditor) RunOnce(ctx context.Context) (pause, wait time.Duration, err error) {
	in := a.intake
	lease := in.access.listener.Lease()
	unknown, err := in.access.listener.Unknown(ctx)
	if err != nil {
		return lease, lease, nil // the renewals report it, and the next audit looks again
	}
	for name := range unknown {
		in.scheduler.Reconcile(in.access.queue(name), in)
	}
	return lease, lease, nil
}
