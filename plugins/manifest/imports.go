package manifest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/abi"
	"github.com/quern-project/quern/runtime/service"
)

// importGrants lists the grant that each function of quern_v1 needs: the line that grants it in a manifest, and a
// function that reports whether capabilities have the grant.
var importGrants = []struct {
	functions []string
	line      string
	by        func(c *Capabilities) bool
}{
	{[]string{"kv_get", "kv_list"}, "kv: [{bucket: NAME}]", func(c *Capabilities) bool { return len(c.KV) > 0 }},
	{
		[]string{"kv_set", "kv_delete", "kv_increment", "kv_swap"},
		"kv: [{bucket: NAME, access: rw}]",
		func(c *Capabilities) bool {
			return slices.ContainsFunc(c.KV, func(g KVGrant) bool { return g.Write })
		},
	},
	{
		[]string{"http"},
		`http: [{host: "https://HOST", methods: [GET]}]`,
		func(c *Capabilities) bool { return len(c.HTTP) > 0 },
	},
	{[]string{"secret_get"}, "secrets: [NAME]", func(c *Capabilities) bool { return len(c.Secrets) > 0 }},
	{
		[]string{"sql", "sql_rollback"},
		"sql: [{database: NAME}]",
		func(c *Capabilities) bool { return len(c.SQL) > 0 },
	},
	{
		[]string{"sql_commit", "sql_step"},
		"sql: [{database: NAME, access: rw, commit: call}]",
		func(c *Capabilities) bool {
			return slices.ContainsFunc(c.SQL, func(g SQLGrant) bool { return g.Write && g.AtCall })
		},
	},
	{
		[]string{"enqueue"},
		"enqueue: {queues: [NAME]}",
		func(c *Capabilities) bool { return c.Enqueue != nil || c.Publish != nil },
	},
}

// Denied returns notes on imported functions that are denied whatever their arguments, with the lines that grant
// them. Such imports are not an error: an SDK may import more than its handler calls.
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
	var problems []Problem
	entry := cmp.Or(m.Entry, info.Entry)
	switch {
	case info.Kind != runtime.Extism && m.Entry != "":
		problems = append(problems, Problem{
			Field: "entry", What: fmt.Sprintf("is for Extism plugins, and the module is %s, which is called by %s",
				info.Kind.Noun(), info.Entry),
			Remedy: "remove it",
		})
	case info.Kind == runtime.Extism && !slices.Contains(info.Entries, entry):
		what := "is missing, and the module has several functions that a task could call: "
		if m.Entry != "" {
			what = fmt.Sprintf("is %q; functions that a task could call: ", m.Entry)
		}
		problems = append(problems, Problem{
			Field: "entry", What: what + strings.Join(info.Entries, ", "),
			Remedy: "write entry: " + info.Entries[0],
		})
	}
	if len(m.Capabilities.SQL) > 0 && info.Kind != runtime.Handler {
		problems = append(problems, Problem{
			Line: m.Capabilities.SQL[0].line, Field: "capabilities.sql",
			What:   fmt.Sprintf("is for handlers, and the module is %s", info.Kind.Noun()),
			Remedy: "remove it, or build the module as a handler, which exports quern_handle",
		})
	}
	if m.Warm.Input != "" && (info.Kind == runtime.Command || entry == "_start") {
		what, remedy := fmt.Sprintf("is for handlers, and the module is %s",
			info.Kind.Noun()), "build the module as a handler, which exports quern_handle"
		if info.Kind == runtime.Extism {
			what, remedy = "is for other functions than _start", "export another function, and name it by entry"
			if i := slices.IndexFunc(info.Entries, func(name string) bool { return name != "_start" }); i >= 0 {
				remedy = "write entry: " + info.Entries[i]
			}
		}
		problems = append(problems, Problem{
			Line: m.Warm.line, Field: "warm", What: what + ", which starts anew for every task",
			Remedy: "remove it, or " + remedy,
		})
	}
	return NewError(path, problems)
}
