package host

import (
	"context"
	"slices"
	"time"

	"github.com/quern-project/quern/host/rollout"
	"github.com/quern-project/quern/host/upkeep"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// catalog knows which queues of a tenant this host serves, and by which plugins.
type catalog struct {
	directory *plugins.Directory
	config    *Config
	tenant    string // "" in the Host's own catalog, from which it makes those of the tenants
	releases  *rollout.Tenant
}

// of returns the catalog of a tenant.
func (c catalog) of(tenant string, releases *rollout.Tenant) catalog {
	return catalog{c.directory, c.config, tenant, releases}
}

// queues returns the set of the tenant's queues that this host serves.
func (c catalog) queues() map[string]bool {
	queues := make(map[string]bool)
	for _, binding := range c.directory.BindingsOf(c.tenant) {
		if c.config.serves(binding.Queue) {
			queues[binding.Queue] = true
		}
	}
	return queues
}

// maxQueues returns the maximum number of queues of the tenant.
func (c catalog) maxQueues() int {
	if own := c.directory.MaxQueues(c.tenant); own > 0 {
		return min(own, c.config.MaxQueues)
	}
	return c.config.MaxQueues
}

// expiry returns two settings of the plugin that serves a queue. maxAge is the maximum age of tasks that set none
// themselves (0: no bound), and dead is the queue for their dead letters ("": none). Both are zero if no plugin serves
// the queue here.
func (c catalog) expiry(name string) (maxAge time.Duration, dead string) {
	version := c.directory.Acquire(c.tenant, name)
	if version == nil {
		return 0, ""
	}
	defer version.Release()
	return bounded(manifestRetry(version.Manifest.Retry).WithDefaults(c.config.Retry),
		version.Permissions.MostRetry).MaxAge, version.Permissions.Dead
}

// statuses lists the plugins of the directory, those that could not be built, and the tenant's releases that could not
// be fetched or are being fetched.
func (c catalog) statuses() []plugins.Status {
	list := slices.Concat(c.directory.List(), c.releases.Refused(), c.releases.Fetching())
	if c.config.Unbuilt != nil {
		list = append(list, c.config.Unbuilt()...)
	}
	return list
}

// refused calls report once for each plugin file that was refused at load.
func (c catalog) refused(report func(tenant, plugin string)) {
	for _, s := range c.directory.List() {
		if s.State == plugins.StateRefused {
			report(s.Tenant, s.Plugin)
		}
	}
}

// quarantined returns why the plugin version that serves a queue here is one of the quarantines; "" if it is none.
func (c catalog) quarantined(name string, quarantines []listen.Quarantine) listen.Cause {
	if len(quarantines) == 0 {
		return ""
	}
	version := c.directory.Acquire(c.tenant, name)
	if version == nil {
		return ""
	}
	defer version.Release()
	for _, q := range quarantines {
		if q.Plugin == version.Name && q.Digest == version.Digest {
			return q.Cause
		}
	}
	return ""
}

// servingReleases maps the tenant's own plugins to the numbers of the releases that serve here. A plugin of the plugin
// directory has none.
func (c catalog) servingReleases() map[string]int {
	releases := make(map[string]int)
	for _, s := range c.directory.List() {
		if s.Tenant == c.tenant && s.State == plugins.StateServing {
			releases[s.Plugin] = s.Release
		}
	}
	return releases
}

// declarations lists the schedules, subscriptions and concurrencies of the plugins that serve the tenant's queues here.
func (c catalog) declarations() (all []upkeep.Declaration) {
	names := make(map[string]bool)
	releases := c.servingReleases()
	add := func(one upkeep.Declaration) {
		wanted := c.releases.Wanted(one.Plugin)
		one.Behind = wanted != 0 && wanted != releases[one.Plugin]
		if name := one.Name(); c.config.serves(one.Queue) && !names[name] {
			names[name] = true
			all = append(all, one)
		}
	}
	for _, binding := range c.directory.BindingsOf(c.tenant) {
		version := c.directory.Acquire(c.tenant, binding.Queue)
		if version == nil {
			continue
		}
		// The tenant's grants forbid what this plugin declares. The plugin must be one for all tenants: a tenant's own
		// plugin would not be served with such grants.
		if version.Permissions.Undeclared("") != nil {
			version.Release()
			continue
		}
		for _, s := range version.Manifest.Schedule {
			declared := upkeep.ScheduleOf(s)
			declared.ID, declared.Owner = s.ID(version.Name), queue.OwnedByPlugin(version.Name)
			add(upkeep.DeclaredSchedule(declared))
		}
		if m := version.Manifest; m.ConcurrencyKey != "" {
			rule := listen.ConcurrencyRule{Key: m.ConcurrencyKey, Max: m.MaxConcurrent}
			add(upkeep.DeclaredConcurrency(version.Name, binding.Queue, rule.String()))
		}
		for _, s := range version.Manifest.Subscribe {
			add(upkeep.DeclaredSubscription(queue.Subscription{
				ID: queue.PluginSubscriptionID(version.Name, s.Topic), Plugin: version.Name, Topic: s.Topic, Queue: s.Queue,
				Filter:  queue.Filter{Attributes: s.Attributes, Data: s.Data},
				FairKey: s.FairKey, FairWeight: s.FairWeight, ConcurrencyKey: s.ConcurrencyKey, MaxConcurrent: s.MaxConcurrent,
			}))
		}
		version.Release()
	}
	return all
}

// runs reports whether a plugin serves a queue of the tenant here.
func (c catalog) runs(plugin string) bool {
	return slices.ContainsFunc(c.directory.BindingsOf(c.tenant),
		func(b plugins.Binding) bool { return b.Plugin == plugin })
}

// StateLeftOut is the state of a plugin that could serve if Config.Queues did not leave out all of its queues.
const StateLeftOut = "left out by --queues"

// presence returns which live hosts have a canary of a plugin. A host that serves the plugin from its plugin directory
// takes no canary.
func presence(ctx context.Context, client *queue.Client, plugin string, number int) (in rollout.Presence, err error) {
	refuses := make(map[string]bool) // by host: whether it refuses the canary for good, of those that take it
	err = upkeep.PublishedPlugins(ctx, client, func(host string, p upkeep.PluginInfo) {
		switch {
		case p.Plugin != plugin || p.Release == 0:
		case p.Release == number && p.Ready():
			in.Has = true
		default:
			refuses[host] = refuses[host] || p.Release == number && p.State == plugins.StateRefused && !p.Unfetched
		}
	})
	for _, refused := range refuses {
		in.May = in.May || !refused
	}
	return in, err
}

// runningPlugins returns the set of plugins that at least one live host has and does not refuse.
func runningPlugins(ctx context.Context, client *queue.Client) (map[string]bool, error) {
	running := make(map[string]bool)
	err := upkeep.PublishedPlugins(ctx, client, func(_ string, p upkeep.PluginInfo) {
		if p.Ready() {
			running[p.Plugin] = true
		}
	})
	return running, err
}
