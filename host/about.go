package host

import (
	"encoding/json"

	"github.com/quern-project/quern/plugins"
)

// aboutPlugin describes one of the host's plugins; `quern plugin ls` prints these names.
type aboutPlugin struct {
	Tenant    string   `json:"tenant,omitempty"`
	Plugin    string   `json:"plugin"`
	Version   string   `json:"version,omitempty"`
	Digest    string   `json:"digest,omitempty"`
	Queues    []string `json:"queues,omitempty"`
	State     string   `json:"state"`
	Error     string   `json:"error,omitempty"`
	ResetMode string   `json:"reset_mode,omitempty"`
	// Grants are what it may use beyond a task of the tenant.
	Grants *plugins.Granted `json:"grants,omitempty"`
	// Lowered are the limits where the host gives such a task less than the manifest asks for.
	Lowered []plugins.Lowered `json:"lowered,omitempty"`
}

// about describes the host to one tenant, in the node hash: nothing of other tenants.
func (c *catalog) about(tenant string) map[string]string {
	list := []aboutPlugin{}
	for _, s := range c.directory.List() {
		if s.Tenant == "" || s.Tenant == tenant {
			list = append(list, aboutPlugin{s.Tenant, s.Plugin, s.Version, s.Digest, s.Queues, s.State, s.Error, s.ResetMode, s.Granted(tenant), s.Lowered(tenant)})
		}
	}
	queues := []string{}
	for _, binding := range c.bindings() {
		if binding.Tenant == tenant {
			queues = append(queues, binding.Queue)
		}
	}
	return map[string]string{"kind": "quern", "queues": jsonText(queues), "plugins": jsonText(list)}
}

// jsonText writes a value that always can be written.
func jsonText(value any) string {
	text, _ := json.Marshal(value)
	return string(text)
}
