package manifest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/service"
)

// importGrant is what imports with a prefix need: the key of capabilities, how it is written, and whether they have it.
type importGrant struct {
	prefix, key, example string
	by                   func(c Capabilities) bool
}

// importGrants are those of all functions that need one. The first whose prefix fits holds.
var importGrants = []importGrant{
	{"quern_v1.kv_get", "kv", "kv: [{bucket: NAME}]", anyBucket},
	{"quern_v1.kv_list", "kv", "kv: [{bucket: NAME}]", anyBucket},
	{"quern_v1.kv_", "kv", "kv: [{bucket: NAME, access: rw}]", func(c Capabilities) bool {
		return slices.ContainsFunc(c.KV, func(g KVGrant) bool { return g.Write })
	}},
	{"quern_v1.http", "http", `http: [{host: "https://HOST", methods: [GET]}]`, func(c Capabilities) bool { return len(c.HTTP) > 0 }},
	{"quern_v1.secret_get", "secrets", "secrets: [NAME]", func(c Capabilities) bool { return len(c.Secrets) > 0 }},
	{"quern_v1.enqueue", "enqueue", "enqueue: {queues: [NAME]}", func(c Capabilities) bool { return c.Enqueue != nil }},
}

func anyBucket(c Capabilities) bool { return len(c.KV) > 0 }

// missing lists the imports of a module that lack their grant; what is a format for the import's name.
func missing(info runtime.Info, lacks func(g importGrant) bool, what string, remedy func(g importGrant) string) (problems []Problem) {
	for _, name := range info.Imports {
		i := slices.IndexFunc(importGrants, func(g importGrant) bool { return strings.HasPrefix(name, g.prefix) })
		if i < 0 || !lacks(importGrants[i]) {
			continue
		}
		g := importGrants[i]
		problems = append(problems, Problem{Field: "capabilities." + g.key, What: fmt.Sprintf(what, name), Remedy: remedy(g)})
	}
	return problems
}

// CheckModule returns an *Error if the manifest at path does not fit the module, or does not grant what it imports.
func (m *Manifest) CheckModule(path string, info runtime.Info) error {
	problems := missing(
		info, func(g importGrant) bool { return !g.by(m.Capabilities) }, "does not grant what the module imports, %s",
		func(g importGrant) string {
			return (&service.Denial{Add: g.example}).Remedy() + ", or build the module without it"
		},
	)
	if m.Warm.Input != "" && info.Kind != runtime.Handler {
		problems = append(problems, Problem{
			Line: m.Warm.line, Field: "warm",
			What:   fmt.Sprintf("is for handlers, and the module is a %s, which starts anew for every task", info.Kind),
			Remedy: "remove it, or build the module as a handler, which exports quern_handle",
		})
	}
	return NewError(path, problems)
}

// CheckModule returns an *Error if the module imports what the manifest at path grants and the host does not.
func (p *Permissions) CheckModule(path string, info runtime.Info) error {
	return NewError(path, missing(
		info, func(g importGrant) bool { return g.by(p.asked) && !g.by(p.Capabilities) },
		"grants what the module imports, %s, and the host does not",
		func(g importGrant) string {
			if g.key == "enqueue" && p.asked.Enqueue.AfterCall() {
				g.example = `enqueue: {queues: [NAME], after: call}`
			}
			return p.denial(g.example).Remedy()
		},
	))
}
