package host

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/sdk/queue"
)

const (
	// declareInterval is how often what plugins declare is compared with Redis.
	declareInterval = time.Minute
	// undeclaredTime is how long what a plugin declared stays when hosts have the plugin and none declares it any more: hosts
	// restart one after the other. absentTime is how long it stays, and stands still, when no host has the plugin at all.
	undeclaredTime = 10 * time.Minute
	absentTime     = 7 * 24 * time.Hour
)

// declarer keeps the schedules in Redis that the manifests of the tenant's plugins have. A schedule comes with the first host
// that has it; a host that gets another version of the plugin changes it, or deletes it; and one host of the fleet deletes it
// when none has had it for a while, but never as soon as it begins: a fleet that was away as a whole loses none. Between these a host stores only what is missing, so that two versions do not take turns
// while hosts are restarted one after the other.
type declarer struct {
	duty
	access   *tenantAccess
	declared func() []queue.Schedule // now
	serves   func(plugin string) bool
	since    time.Time        // when the session began
	stored   []queue.Schedule // what this session has stored; only the run under way uses it
}

func (d *declarer) runOnce(ctx context.Context) (pause, wait time.Duration, err error) {
	if d.since.IsZero() {
		d.since = time.Now()
	}
	if err := d.store(ctx); err != nil {
		return 0, 0, err
	}
	err = d.sweep(ctx)
	return 0, around(declareInterval), err
}

// store stores what has changed since this session stored it, and of the rest what is missing. What is refused, because
// somebody else has a schedule of that ID, keeps nothing else from being stored.
func (d *declarer) store(ctx context.Context) error {
	now := d.declared()
	for _, s := range now {
		known := slices.ContainsFunc(d.stored, func(other queue.Schedule) bool { return other.Same(&s) })
		put, err := d.access.client.PutSchedule(ctx, s, known)
		switch {
		case err == nil:
			d.health.succeeded(opDeclare, s.Queue)
			if put == queue.ScheduleNew || put == queue.ScheduleChanged {
				d.access.logger.Info("stored a schedule of a plugin", "schedule", s.ID, "owner", s.Owner, "cron", s.Cron)
			}
		case ctx.Err() != nil || queue.IsUnavailable(err):
			return err
		default:
			d.health.failed(opDeclare, s.Queue, err)
		}
	}
	for _, s := range d.stored {
		if slices.ContainsFunc(now, func(other queue.Schedule) bool { return other.ID == s.ID }) || !d.serves(s.PluginOwner()) {
			continue
		}
		switch err := d.access.client.DeleteSchedule(ctx, s.ID, s.Owner); {
		case ctx.Err() != nil || queue.IsUnavailable(err):
			return err
		case err == nil:
			d.access.logger.Info("deleted a schedule that its plugin has no more", "schedule", s.ID, "owner", s.Owner)
		}
	}
	d.stored = now
	return nil
}

// sweep deletes, on one host of the fleet, schedules that no live host's plugin declares any more.
func (d *declarer) sweep(ctx context.Context) error {
	mine, err := d.access.node.TakeDuty(ctx, "declared", declareInterval)
	if err != nil || !mine {
		return err
	}
	all, err := d.access.client.Schedules(ctx)
	if err != nil || !slices.ContainsFunc(all, ownedByPlugin) {
		return err
	}
	live, err := Plugins(ctx, d.access.client)
	if err != nil {
		return err
	}
	for _, s := range all {
		if !ownedByPlugin(s) {
			continue
		}
		serves := slices.ContainsFunc(live, func(p Plugin) bool {
			return p.State != plugins.StateRefused && s.Owner == queue.OwnedByPlugin(p.Plugin) && slices.Contains(p.Schedules, s.ID)
		})
		if !serves && !s.Absent.IsZero() && time.Since(d.since) < undeclaredTime {
			continue
		}
		switch gone, err := d.access.client.Fleet().NoteDeclared(ctx, s, serves, keptFor(live, s.PluginOwner())); {
		case queue.IsUnavailable(err):
			return err
		case errors.Is(err, queue.ErrNoSchedule) || errors.Is(err, queue.ErrOwned):
		case err != nil:
			d.health.failed(opDeclare, s.Queue, err)
		case gone:
			d.access.logger.Info("deleted a schedule: no host has had its plugin for a while", "schedule", s.ID, "owner", s.Owner)
		}
	}
	return nil
}

// keptFor is how long what a plugin declared stays that no live host declares.
func keptFor(live []Plugin, plugin string) time.Duration {
	if slices.ContainsFunc(live, func(p Plugin) bool { return p.State != plugins.StateRefused && p.Plugin == plugin }) {
		return undeclaredTime
	}
	return absentTime
}

func ownedByPlugin(s *queue.Schedule) bool { return s.PluginOwner() != "" }

// schedules are those of the plugins that serve the tenant's queues here.
func (c *catalog) schedules(tenant string) (all []queue.Schedule) {
	seen := make(map[string]bool) // plugins
	for _, binding := range c.directory.BindingsOf(tenant) {
		if seen[binding.Plugin] {
			continue
		}
		seen[binding.Plugin] = true
		version := c.directory.Acquire(tenant, binding.Queue)
		if version == nil {
			continue
		}
		for _, s := range version.Manifest.Schedule {
			if c.config.serves(s.Queue) {
				all = append(all, declaredSchedule(version.Name, s))
			}
		}
		version.Release()
	}
	return all
}

// runs tells whether a plugin serves a queue of the tenant here.
func (c *catalog) runs(tenant, plugin string) bool {
	return slices.ContainsFunc(c.directory.BindingsOf(tenant), func(b plugins.Binding) bool { return b.Plugin == plugin })
}

// declaredSchedule is a schedule of a plugin's manifest.
func declaredSchedule(plugin string, s manifest.Schedule) queue.Schedule {
	declared := ScheduleOf(s)
	declared.ID, declared.Owner = s.ID(plugin), queue.OwnedByPlugin(plugin)
	return declared
}

// ScheduleOf is a schedule of a file.
func ScheduleOf(s manifest.Schedule) queue.Schedule {
	return queue.Schedule{
		ID: s.Name, Queue: s.Queue, Cron: s.Cron, Timezone: s.Timezone, Parameters: s.Parameters,
		Options: queue.Options{Priority: s.Priority, Timeout: s.Timeout, Retry: queue.Retry{MaxAttempts: s.MaxAttempts, MaxAge: s.MaxAge}},
		Missed:  queue.Missed(s.Missed), MaxMissed: s.MaxMissed, Window: s.Window, Overlap: queue.Overlap(s.Overlap),
	}
}
