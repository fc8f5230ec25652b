// Package plugin has the commands of those who write plugins: new, build, check, test, run and schema.
package plugin

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/cmd/quern/pluginfile"
	"github.com/quern-project/quern/cmd/quern/sandbox"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/units"
)

func newPluginCheck(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "check FILE", Short: "Show what a plugin file is and needs, and what is wrong with it",
		Long: "Shows what a plugin file is, what it imports, exports and needs, and what is wrong with it or the manifest\n" +
			"beside it. --grants adds the capabilities that a host with that file grants it in tasks of --tenant.\n\n" +
			"Exit status: 0 a host would serve it, 3 a host would refuse it, 2 there is no such file.",
		Args: cli.Arguments(1, 1),
	}
	output := option.Output(cmd)
	config := sandbox.EngineFlags(cmd.Flags())
	var grants, tenant string
	sandbox.TenantGrantsFlags(cmd.Flags(), &grants, &tenant)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, err := pluginfile.Read(args[0])
		if err != nil {
			return err
		}
		hosts, err := sandbox.LoadTenantGrants(cmd.Flags(), grants, tenant)
		if err != nil {
			return err
		}
		info, err := p.Check(cmd.Context(), env, *config)
		if err != nil {
			return err
		}
		terms := manifest.NewPermissions(&p.Manifest, hosts, tenant, nil)
		if wrong, ok := errors.AsType[*manifest.Error](terms.Undeclared(p.ManifestPath)); ok && !p.Unread {
			p.Refusals = append(p.Refusals, wrong.Refusals()...)
		}
		v := checkView(p, info, terms)
		err = show.Print(cmd, output.JSON(), v, v)
		return errors.Join(err, p.Refusal())
	}
	return cmd
}

// view is the report of `plugin check`: what the plugin is, and what a host with these terms gives it.
func checkView(p *pluginfile.File, info runtime.Info, terms *manifest.Permissions) show.View {
	memory, functions, charges, mode := "", "", "", ""
	if info.Kind != "" {
		functions, charges = strconv.Itoa(info.Functions), strconv.Itoa(info.Charges)
		memory = units.FormatSize(info.MemoryMin)
	}
	if info.MemoryMax > 0 {
		memory += " to " + units.FormatSize(info.MemoryMax)
	}
	if info.ResetMode != "" {
		mode = string(info.ResetMode) + ": " + info.ResetReason
	}
	files, carried := carriedView(info.Files)
	v := show.View{
		{"file", "file", p.Path},
		{"accepted", "accepted", len(p.Refusals) == 0},
		{"kind", "kind", show.Given(info.Kind)},
		{"digest", "digest", show.Given(info.Digest)},
		{"size", "size", show.Size(info.Size)},
		{"files", "", files},
		{"", "files", carried},
		{"functions", "", info.Functions},
		{"", "functions", functions},
		{"charge_points", "", info.Charges},
		{"", "charge points", charges},
		{"", "memory", memory},
		{"reset_mode", "", show.Given(info.ResetMode)},
		{"reset_reason", "", show.Given(info.ResetReason)},
		{"", "reset mode", mode},
	}
	notes := notesOf(p, info, terms)
	if notes != nil {
		v = append(v, show.Field{"notes", "", notes})
	}
	if !p.Unread {
		v = append(v, show.Field{"limits", "limits", limitsView(terms.Limits)})
	}
	asks, grants := p.Manifest.Capabilities.Granted(p.Manifest.Config), terms.Granted()
	asked, granted := strings.Join(asks.Lines(), "\n"), strings.Join(grants.Lines(), "\n")
	if asked == granted {
		asked = ""
	}
	v = append(v, show.View{
		{"asks", "", show.Given(asks)},
		{"", "asks", asked},
		{"grants", "", show.Given(grants)},
		{"", "grants", granted},
		{"imports", "", append([]string{}, info.Imports...)},
		{"", "imports", someOf(info.Imports)},
		{"exports", "", append([]string{}, info.Exports...)},
		{"", "exports", someOf(info.Exports)},
		{"memory_min", "", info.MemoryMin},
		{"memory_max", "", show.Given(info.MemoryMax)},
	}...)
	for _, note := range notes {
		v = append(v, show.Field{"", "note", note})
	}
	refusals := []show.View{}
	for _, r := range p.Refusals {
		refusals = append(refusals, show.View{{"what", "", r.What}, {"where", "", show.Given(r.Where)}, {"remedy", "", r.Remedy}})
		v = append(v, show.Field{"", "refused", r})
	}
	return append(v, show.Field{"refusals", "", refusals})
}

// carriedView lists the files that a module carries, and sums them up for people.
func carriedView(files []runtime.CarriedFile) (list []show.View, sum string) {
	list, total := []show.View{}, int64(0)
	for _, file := range files {
		list = append(list, show.View{{"path", "", file.Path}, {"size", "", file.Size}})
		total += file.Size
	}
	if len(files) > 0 {
		sum = fmt.Sprintf("%d with %s, see -o json", len(files), units.FormatSize(total))
	}
	return list, sum
}

// notes are what an author should know about an accepted plugin.
func notesOf(p *pluginfile.File, info runtime.Info, terms *manifest.Permissions) (notes []string) {
	if len(p.Refusals) == 0 && p.Manifest.Warm.Input != "" && info.ResetMode == runtime.ResetNew {
		notes = append(notes, "warm has no effect with reset mode new: each task starts a new instance")
	}
	for _, less := range terms.Lowered {
		notes = append(notes, fmt.Sprintf("%s: the manifest has %s, the host lowers it to %s: see %s", less.Key, less.Manifest, less.Host, less.Where))
	}
	for _, key := range terms.Reduced() {
		notes = append(notes, fmt.Sprintf("capabilities.%s: the host grants less than the manifest asks for: see %s", key, terms.Where))
	}
	if !p.Unread && len(info.Files) == 0 { // an interpreter imports all functions: that says nothing of its handler
		notes = append(notes, p.Manifest.Capabilities.Denied(info.Imports)...)
	}
	return notes
}

func limitsView(l runtime.Limits) show.View {
	return show.View{
		{"memory", "memory", show.Size(l.Memory)},
		{"input", "input", show.Size(l.Input)},
		{"output", "output", show.Size(l.Output)},
		{"log", "log", show.Size(l.Log)},
		{"timeout_seconds", "timeout", show.Given(show.Span(l.Timeout))},
		{"cpu_seconds", "cpu", show.Given(show.Span(l.CPU))},
	}
}

// someOf lists names, one a line, and at most 100 of them.
func someOf(names []string) string {
	const most = 100
	if more := len(names) - most; more > 0 {
		names = append(slices.Clone(names[:most]), fmt.Sprintf("and %d more, see -o json", more))
	}
	return strings.Join(names, "\n")
}

func newPluginSchema() *cobra.Command {
	return &cobra.Command{
		Use: "schema", Short: "Print the JSON Schema of manifests, for editors",
		Long: "Prints the JSON Schema (draft 7) of manifests. Editors with the YAML language server use it to complete and\n" +
			"check a manifest that begins with the line\n\n" +
			"  # yaml-language-server: $schema=quern.schema.json\n\n" +
			"which names a file beside it, as in the folder that `quern plugin new` makes. `quern plugin check` also\n" +
			"checks keys against each other, and that files exist.",
		Example: "  quern plugin schema > quern.schema.json",
		Args:    cli.Arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := cmd.OutOrStdout().Write(manifest.Schema())
			return err
		},
	}
}

// Commands are the commands of `quern plugin` that work on this machine alone.
func Commands(env cli.Environment) []*cobra.Command {
	return []*cobra.Command{newPluginNew(), newPluginBuild(env), newPluginCheck(env), newPluginTest(env), newPluginRun(env), newPluginSchema()}
}
