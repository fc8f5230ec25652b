package host

import (
	"slices"
	"time"

	"github.com/quern-project/quern/sdk/queue/listen"

	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/plugins/manifest"
)

// catalog tells which queues this host serves, and by which plugins.
type catalog struct {
	directory *plugins.Directory
	config    *Config
}

// queues are those of the tenant.
func (c *catalog) queues(tenant string) map[string]bool {
	queues := make(map[string]bool)
	for _, binding := range c.directory.BindingsOf(tenant) {
		if c.config.serves(binding.Queue) {
			queues[binding.Queue] = true
		}
	}
	return queues
}

// maxQueues is how many queues the tenant may have.
func (c *catalog) maxQueues(tenant string) int {
	if own := c.directory.MaxQueues(tenant); own > 0 {
		return min(own, c.config.MaxQueues)
	}
	return c.config.MaxQueues
}

// expiry is the longest age of a queue's tasks that set none themselves (0: none), and the queue of their dead letters, as
// its plugin's manifest says; nothing for a queue that has no plugin here.
func (c *catalog) expiry(tenant, name string) (maxAge time.Duration, dead string) {
	version := c.directory.Acquire(tenant, name)
	if version == nil {
		return 0, ""
	}
	defer version.Release()
	permissions := version.Permissions(tenant)
	return bounded(manifestRetry(version.Manifest.Retry).WithDefaults(c.config.Retry), permissions.MostRetry).MaxAge, permissions.Dead
}

// refused reports each plugin with a file that is refused, once for each file.
func (c *catalog) refused(report func(tenant, plugin string)) {
	for _, s := range c.directory.List() {
		if s.State == plugins.StateRefused {
			report(s.Tenant, s.Plugin)
		}
	}
}

// quarantined tells whether the version that serves a queue here is quarantined.
func (c *catalog) quarantined(tenant, name string, quarantines []listen.Quarantine) bool {
	if len(quarantines) == 0 {
		return false
	}
	version := c.directory.Acquire(tenant, name)
	if version == nil {
		return false
	}
	defer version.Release()
	return slices.ContainsFunc(quarantines, func(q listen.Quarantine) bool {
		return q.Plugin == version.Name && q.Digest == version.Digest
	})
}

// StateLeftOut is the state of a plugin that could serve, but the host serves none of its queues: see Config.Queues.
const StateLeftOut = "left out by --queues"

// PluginInfo is what a host publishes of one of its plugins; `quern plugin ls -o json` prints these names.
type PluginInfo struct {
	Tenant  string   `json:"tenant,omitempty"`
	Plugin  string   `json:"plugin"`
	Version string   `json:"version,omitempty"`
	Digest  string   `json:"digest,omitempty"`
	Queues  []string `json:"queues,omitempty"`
	// LeftOut are those of the queues that Config.Queues leaves out.
	LeftOut   []string `json:"left_out,omitempty"`
	State     string   `json:"state"`
	Error     string   `json:"error,omitempty"`
	ResetMode string   `json:"reset_mode,omitempty"`
	// Subscriptions are the IDs of those that its manifest has for the tenant.
	Subscriptions []string `json:"subscriptions,omitempty"`
	// Schedules are the IDs of those that its manifest has for the tenant.
	Schedules []string `json:"schedules,omitempty"`
	// Grants are what it may use beyond a task of the tenant.
	Grants *manifest.Granted `json:"grants,omitempty"`
	// Lowered are the limits where the host gives such a task less than the manifest asks for.
	Lowered []manifest.Lowered `json:"lowered,omitempty"`
}
