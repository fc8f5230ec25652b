package host

import (
	"encoding/json"
	"strconv"

	"github.com/quern-project/quern/plugins/manifest"
)

// aboutPlugin is what a host says of one of its plugins; `quern plugin ls` prints these names.
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
	Grants *manifest.Granted `json:"grants,omitempty"`
	// Lowered are the limits of which the host gives such a task less than the manifest asks for.
	Lowered []manifest.Lowered `json:"lowered,omitempty"`
}

// about is what the host says of itself to one tenant, in the node hash: nothing of other tenants.
func (h *Host) about(tenant string) map[string]string {
	list := []aboutPlugin{}
	for _, s := range h.directory.List() {
		if s.Tenant == "" || s.Tenant == tenant {
			list = append(list, aboutPlugin{s.Tenant, s.Plugin, s.Version, s.Digest, s.Queues, s.State, s.Error, s.ResetMode, s.Granted(tenant), s.Lowered(tenant)})
		}
	}
	queues := []string{}
	for _, binding := range h.directory.Bindings() {
		if binding.Tenant == tenant && h.config.serves(binding.Queue) {
			queues = append(queues, binding.Queue)
		}
	}
	return map[string]string{
		"kind": "quern", "version": h.config.Version, "draining": strconv.FormatBool(h.tenants[tenant].draining()),
		"slots": strconv.Itoa(h.config.Concurrency), "slots_in_use": strconv.Itoa(h.scheduler.used()),
		"queues": jsonText(queues), "plugins": jsonText(list),
	}
}

// jsonText writes a value that always can be written.
func jsonText(value any) string {
	text, _ := json.Marshal(value)
	return string(text)
}
