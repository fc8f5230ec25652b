package manifest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/abi"
	"github.com/quern-project/quern/runtime/service"
)

// importGrants are what functions of quern_v1 need: the line that grants it, and whether it is there.
var importGrants = []struct {
	functions []string
	line      string
	by        func(c *Capabilities) bool
}{
	{[]string{"kv_get", "kv_list"}, "kv: [{bucket: NAME}]", func(c *Capabilities) bool { return len(c.KV) > 0 }},
	{[]string{"kv_set", "kv_delete", "kv_increment", "kv_swap"}, "kv: [{bucket: NAME, access: rw}]", func(c *Capabilities) bool {
		return slices.ContainsFunc(c.KV, func(g KVGrant) bool { return g.Write })
	}},
	{[]string{"http"}, `http: [{host: "https://HOST", methods: [GET]}]`, func(c *Capabilities) bool { return len(c.HTTP) > 0 }},
	{[]string{"secret_get"}, "secrets: [NAME]", func(c *Capabilities) bool { return len(c.Secrets) > 0 }},
	{[]string{"enqueue"}, "enqueue: {queues: [NAME]}", func(c *Capabilities) bool { return c.Enqueue != nil }},
}

// Denied tells which functions that a module imports are denied whatever their arguments, and the line that grants them. That
// is no fault: an SDK may import more than its handler calls.
func (c *Capabilities) Denied(imports []string) (notes []string) {
	for _, g := range importGrants {
		imported := slices.DeleteFunc(slices.Clone(g.functions), func(name string) bool {
			return !slices.Contains(imports, abi.ModuleName+"."+name)
		})
		if len(imported) > 0 && !g.by(c) {
			notes = append(notes, fmt.Sprintf("%s: imported, and denied to each task: %s",
				strings.Join(imported, ", "), (&service.Denial{Add: g.line}).Remedy()))
		}
	}
	return notes
}

// CheckModule returns an *Error if the manifest at path does not fit the module.
func (m *Manifest) CheckModule(path string, info runtime.Info) error {
	if m.Warm.Input == "" || info.Kind == runtime.Handler {
		return nil
	}
	return NewError(path, []Problem{{
		Line: m.Warm.line, Field: "warm",
		What:   fmt.Sprintf("is for handlers, and the module is a %s, which starts anew for every task", info.Kind),
		Remedy: "remove it, or build the module as a handler, which exports quern_handle",
	}})
}
