// Package plugin has the commands of those who write plugins: new, build, check, test, run and schema.
package plugin

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/build"
	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/cmd/quern/pluginfile"
	"github.com/quern-project/quern/cmd/quern/sandbox"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/units"
)

func newPluginBuild(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "build [DIR]", Short: "Build a plugin from a folder of source",
		Long: "Builds NAME.wasm beside the manifest NAME.yaml. DIR is the current folder by default. The language is that\n" +
			"of the files in it:\n\n" +
			"  *.go                       Go, by its toolchain\n" +
			"  handler.py                 Python: with the folder's modules, packages and data, and what\n" +
			"                             requirements.txt lists, by pip\n" +
			"  handler.ts, handler.js     TypeScript, JavaScript (also .tsx, .mjs): bundled with what they import\n" +
			"  Cargo.toml                 Rust, by cargo; for the target in .cargo/config.toml if that names one\n" +
			"  asconfig.json              AssemblyScript, by asc with the target release of that file\n" +
			"  *.c                        C, by a clang that targets WebAssembly; it needs no copy of quern.h\n\n" +
			"Messages of compilers go to stderr. What exports quern_handle becomes a handler, anything else a command.\n" +
			"The module is checked as by quern plugin check; what a host would refuse does not replace the file from before.\n" +
			"A handler in Python or JavaScript is started once, in the sandbox and without services, and runs an empty\n" +
			"task, for 10 s at most: so an import that fails is told now.\n\n" +
			"Exit status: 0 built, 1 the source is wrong, 2 there is no such source, 3 a compiler or an engine is\n" +
			"missing, or the manifest is wrong.",
		Args: cli.Arguments(0, 1),
	}
	to := cmd.Flags().String("to", "", "`DIR` for NAME.wasm, the manifest and its files, such as a plugin directory (default DIR)")
	var engines string
	pluginfile.EnginesFlag(cmd.Flags(), &engines)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := build.Read(append(args, ".")[0])
		if err != nil {
			return pluginfile.BuildError(err)
		}
		file, err := pluginfile.Build(cmd, env, engines, s, *to)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), file)
		return err
	}
	return cmd
}

func newPluginCheck(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "check [FILE|DIR]", Short: "Show what a plugin file is and needs, and what is wrong with it",
		Long: "Shows what a plugin file is, what it imports, exports and needs, and what is wrong with it or the manifest\n" +
			"beside it. A folder, by default the current one, stands for the .wasm file in it. --grants adds the\n" +
			"capabilities that a host with that file grants it in tasks of --tenant.\n\n" +
			"Exit status: 0 a host would serve it, 3 a host would refuse it, 2 there is no such file.",
		Args: cli.Arguments(0, 1),
	}
	output := option.Output(cmd)
	config := sandbox.EngineFlags(cmd.Flags())
	var grants, tenant string
	sandbox.TenantGrantsFlags(cmd.Flags(), &grants, &tenant)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		file, err := pluginfile.ModuleIn(append(args, ".")[0])
		if err != nil {
			return err
		}
		p, err := pluginfile.Read(file)
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

// checkView returns the report of `quern plugin check`: what the plugin is, and what a host with the permissions in
// terms gives it.
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
		refusals = append(refusals, show.Object("what", r.What, "where", show.Given(r.Where), "remedy", r.Remedy))
		v = append(v, show.Field{"", "refused", r})
	}
	return append(v, show.Field{"refusals", "", refusals})
}

// carriedView returns the list of the files that a module carries, and a summary for people.
func carriedView(files []runtime.CarriedFile) (list []show.View, sum string) {
	list, total := []show.View{}, int64(0)
	for _, file := range files {
		list = append(list, show.Object("path", file.Path, "size", file.Size))
		total += file.Size
	}
	if len(files) > 0 {
		sum = fmt.Sprintf("%d with %s, see -o json", len(files), units.FormatSize(total))
	}
	return list, sum
}

// notesOf returns remarks for the author that are no reasons to refuse the plugin.
func notesOf(p *pluginfile.File, info runtime.Info, terms *manifest.Permissions) (notes []string) {
	if len(p.Refusals) == 0 && p.Manifest.Warm.Input != "" && info.ResetMode == runtime.ResetNew {
		notes = append(notes, "warm has no effect with reset mode new: each task starts a new instance")
	}
	for _, less := range terms.Lowered {
		notes = append(notes, fmt.Sprintf("%s: the manifest has %s, the host lowers it to %s: see %s", less.Key,
			less.Manifest, less.Host, less.Where))
	}
	for _, key := range terms.Reduced() {
		notes = append(notes, fmt.Sprintf("capabilities.%s: the host grants less than the manifest asks for: see %s", key,
			terms.Where))
	}
	if !p.Unread && len(info.Files) == 0 { // an interpreter imports all functions, whatever its handler needs
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

// someOf returns the names, one on a line, or only their number if they are many.
func someOf(names []string) string {
	const most = 10
	if len(names) > most {
		return fmt.Sprintf("%d, see -o json", len(names))
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

// Commands returns the commands of `quern plugin` that need neither Redis nor a server.
func Commands(env cli.Environment) []*cobra.Command {
	return []*cobra.Command{
		newPluginNew(env), newPluginBuild(env), newPluginCheck(env), newPluginTest(env),
		newPluginRun(env), newPluginSchema(), newPluginSign(), newPluginVerify(),
	}
}
