package host

import (
	"context"
	"time"

	"github.com/quern-project/quern/host/schedule"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/periodic"
)

// dispatcher carries out what the scheduler plans: it starts tasks, gives tasks back, and makes sources reserve.
type dispatcher struct {
	scheduler *schedule.Scheduler
	due       chan struct{} // has a token when there may be something to plan; never closed
}

// newDispatcher makes a scheduler and its dispatcher. running is called with the number of slots that run a task,
// whenever that number may have changed.
func newDispatcher(config Config, directory *plugins.Directory, running func(n int)) *dispatcher {
	due := make(chan struct{}, 1)
	return &dispatcher{due: due, scheduler: schedule.New(schedule.Config{
		Slots: config.Concurrency, Guests: config.Guests, Memory: config.Memory, Account: config.Account,
		Logger:     config.Logger,
		MaxReserve: listen.MaxReserve, MaxSettle: batchTasks, Running: running, Wake: func() { periodic.Notify(due) },
		Acquire: func(at schedule.Queue) *schedule.Version {
			v, ok := directory.AcquireServing(at.Tenant, at.Name)
			if !ok {
				return nil
			}
			version := &schedule.Version{
				Code: v, Plugin: schedule.Plugin{Tenant: v.Tenant, Name: v.Name},
				Concurrency: v.Manifest.Concurrency, Memory: v.Footprint,
				MayWait: config.MaxCrashes != 1 && mayWait(v.TenantVersion),
			}
			// Which release runs a task is known only when it is reserved.
			for _, number := range v.Others() {
				other := v.Other(number)
				version.Memory, version.MayWait = max(version.Memory, other.Footprint), version.MayWait && mayWait(other)
			}
			return version
		},
	})}
}

// mayWait reports whether tasks of a version can be marked as started in Redis while they still wait for a slot. This
// is not allowed if the manifest bounds the running tasks of the fleet, because the waiting tasks would count. It is
// not allowed either if one crash of a host fails a started task for good, because the task may never have run.
func mayWait(v *plugins.TenantVersion) bool {
	return v.Manifest.MaxRunning == 0 && v.Manifest.OnCrash != manifest.CrashFail && v.Permissions.MaxCrashes != 1
}

// servingOf returns what runs the tasks of an allocation. Its version is nil if the allocation has none.
func servingOf(a *schedule.Allocation) (s plugins.Serving) {
	if a.Version != nil {
		s, _ = a.Version.Code.(plugins.Serving)
	}
	return s
}

// plan makes Run plan a round soon.
func (d *dispatcher) plan() { periodic.Notify(d.due) }

// Run gives slots to tasks until ctx ends, and returns when the last reserve has ended. Each source has at most one
// reserve on its way, and a source whose Redis hangs does not delay the others.
func (d *dispatcher) Run(ctx context.Context) {
	reserves := &workers{next: make(chan func())}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-d.due:
		case <-timer.C:
		}
		for more := true; more && ctx.Err() == nil; {
			var next time.Duration
			if more, next = d.runOnce(ctx, reserves); next > 0 {
				timer.Reset(next)
			} else {
				timer.Stop()
			}
		}
	}
	reserves.wait()
	for source, tasks := range d.scheduler.End() { // these tasks retain their versions until they are given back
		in, _ := source.(*intake)
		in.runner.giveBack(tasks)
	}
}

// runOnce plans one round and carries it out. If more is true, the caller plans again at once. Otherwise it plans again
// after next, or only when asked if next is 0.
func (d *dispatcher) runOnce(ctx context.Context, reserves *workers) (more bool, next time.Duration) {
	round := d.scheduler.Plan(time.Now())
	for _, a := range round.Idle {
		a.Release()
	}
	for source, work := range round.Work {
		in, _ := source.(*intake)
		for _, t := range work.Begin {
			in.start(context.WithoutCancel(ctx), t) // tasks are stopped one by one, not by ctx
		}
		if len(work.Return) > 0 {
			in.runner.giveBack(work.Return)
		}
		if len(work.Allocations) > 0 && in.access.listener.Tasks.BeginReserve() {
			reserves.run(func() { in.reserve(ctx, work.Allocations); d.plan() })
			continue
		}
		for _, a := range work.Allocations {
			d.scheduler.Cancel(a)
		}
	}
	return round.More, round.Next
}
