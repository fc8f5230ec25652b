package host

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/sdk/queue"
)

// catalog tells which queues this host serves, and by which plugins.
type catalog struct {
	directory *plugins.Directory
	serves    func(queue string) bool // whether the configuration lets the host serve a queue
	retry     queue.Retry             // the host's own policy
}

// bindings are the queues that have a plugin here and that the configuration lets in.
func (c *catalog) bindings() []plugins.Binding {
	return slices.DeleteFunc(c.directory.Bindings(), func(b plugins.Binding) bool { return !c.serves(b.Queue) })
}

// queues are those of the tenant.
func (c *catalog) queues(tenant string) map[string]bool {
	queues := make(map[string]bool)
	for _, binding := range c.directory.BindingsOf(tenant) {
		if c.serves(binding.Queue) {
			queues[binding.Queue] = true
		}
	}
	return queues
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
	return bounded(manifestRetry(version.Manifest.Retry).WithDefaults(c.retry), permissions.MostRetry).MaxAge, permissions.Dead
}

// quarantined tells whether the version that serves a queue here is quarantined.
func (c *catalog) quarantined(tenant, name string, quarantines []queue.Quarantine) bool {
	if len(quarantines) == 0 {
		return false
	}
	version := c.directory.Acquire(tenant, name)
	if version == nil {
		return false
	}
	defer version.Release()
	return slices.ContainsFunc(quarantines, func(q queue.Quarantine) bool {
		return q.Plugin == version.Name && q.Digest == version.Digest
	})
}

// PluginInfo is what a host publishes of one of its plugins; `quern plugin ls -o json` prints these names.
type PluginInfo struct {
	Tenant    string   `json:"tenant,omitempty"`
	Plugin    string   `json:"plugin"`
	Version   string   `json:"version,omitempty"`
	Digest    string   `json:"digest,omitempty"`
	Queues    []string `json:"queues,omitempty"`
	State     string   `json:"state"`
	Error     string   `json:"error,omitempty"`
	ResetMode string   `json:"reset_mode,omitempty"`
	// Grants are what it may use beyond a task of the tenant.
	Grants *manifest.Granted `json:"grants,omitempty"`
	// Lowered are the limits where the host gives such a task less than the manifest asks for.
	Lowered []manifest.Lowered `json:"lowered,omitempty"`
}

// about describes the host to one tenant, in the node hash: nothing of other tenants.
func (c *catalog) about(tenant string) map[string]string {
	list := []PluginInfo{}
	for _, s := range c.directory.List() {
		if s.Tenant == "" || s.Tenant == tenant {
			info := PluginInfo{s.Tenant, s.Plugin, s.Version, s.Digest, s.Queues, s.State, s.Error, s.ResetMode, nil, nil}
			if p := s.Permissions[tenant]; p != nil {
				info.Grants, info.Lowered = p.Granted(), p.Lowered
			}
			list = append(list, info)
		}
	}
	queues := append([]string{}, slices.Sorted(maps.Keys(c.queues(tenant)))...)
	return map[string]string{"kind": "quern", "queues": jsonText(queues), "plugins": jsonText(list)}
}

// jsonText writes a value that always can be written.
func jsonText(value any) string {
	text, _ := json.Marshal(value)
	return string(text)
}
