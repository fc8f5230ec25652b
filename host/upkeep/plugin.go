package upkeep

import (
	"context"
	"encoding/json"

	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/sdk/queue"
	"github.com/quern-project/quern/sdk/queue/listen"
)

// PluginInfo is what a host publishes about one of its plugins. `quern plugin ls -o json` prints the fields under their
// JSON names.
type PluginInfo struct {
	Tenant  string   `json:"tenant,omitempty"`
	Plugin  string   `json:"plugin"`
	Version string   `json:"version,omitempty"`
	Digest  string   `json:"digest,omitempty"`
	Queues  []string `json:"queues,omitempty"`
	// Release is the number of the release that the host fetched; 0 for files of its plugin directory.
	Release int `json:"release,omitempty"`
	// LeftOut has the queues that the host's setting --queues leaves out.
	LeftOut []string `json:"left_out,omitempty"`
	State   string   `json:"state"`
	Error   string   `json:"error,omitempty"`
	// Unfetched is true if the files of a refused release could not be fetched. The host tries again.
	Unfetched bool `json:"unfetched,omitempty"`
	// Since is when the host began to fetch the release, for the state fetching.
	Since     float64 `json:"since,omitempty"`
	ResetMode string  `json:"reset_mode,omitempty"`
	// Subscriptions has the IDs of the subscriptions that the plugin's manifest declares for the tenant.
	Subscriptions []string `json:"subscriptions,omitempty"`
	// Schedules has the IDs of the schedules that the plugin's manifest declares for the tenant.
	Schedules []string `json:"schedules,omitempty"`
	// Grants has the capabilities of the plugin in tasks of the tenant.
	Grants *manifest.Granted `json:"grants,omitempty"`
	// Lowered has the limits that the host sets lower for these tasks than the manifest asks for.
	Lowered []manifest.Lowered `json:"lowered,omitempty"`
}

// Ready reports whether the host has the plugin ready: it neither refuses nor fetches it.
func (p *PluginInfo) Ready() bool {
	return p.State != plugins.StateRefused && p.State != plugins.StateFetching
}

// PublishedPlugins calls visit for each plugin that a live host publishes.
func PublishedPlugins(ctx context.Context, client *queue.Client, visit func(host string, p PluginInfo)) error {
	nodes, err := LiveNodes(ctx, client)
	if err != nil {
		return err
	}
	return listen.NewFleet(client).Published(ctx, nodes, "plugins", func(node *listen.NodeInfo, text string) {
		var published []PluginInfo
		if json.Unmarshal([]byte(text), &published) != nil {
			return // a listener without plugins
		}
		for _, p := range published {
			visit(node.ID, p)
		}
	})
}
