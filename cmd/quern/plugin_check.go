package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/sdk/queue"
)

func newPluginCheck(env environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "check FILE", Short: "Show what a plugin file is and needs, and what is wrong with it",
		Long: "Shows what a plugin file is, what it imports, exports and needs, and what is wrong with it or the manifest\n" +
			"beside it. --grants adds the capabilities that a host with that file grants it in tasks of --tenant.\n\n" +
			"Exit status: 0 a host would serve it, 3 a host would refuse it, 2 there is no such file.",
		Args: arguments(1, 1),
	}
	output := outputFlag(cmd)
	config := engineFlags(cmd.Flags())
	var grants, tenant string
	grantsOfTenantFlags(cmd.Flags(), &grants, &tenant)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, err := readPlugin(args[0])
		if err != nil {
			return err
		}
		hosts, err := loadGrantsOf(cmd.Flags(), grants, tenant)
		if err != nil {
			return err
		}
		info, err := p.check(cmd.Context(), env, *config)
		if err != nil {
			return err
		}
		terms := manifest.NewPermissions(&p.manifest, hosts, tenant, nil)
		if wrong, ok := errors.AsType[*manifest.Error](terms.Undeclared(p.manifestPath)); ok && !p.unread {
			p.refusals = append(p.refusals, wrong.Refusals()...)
		}
		err = show(cmd, output.json(), p.view(info, terms))
		return errors.Join(err, p.refusal())
	}
	return cmd
}

// check checks the plugin as a host does when it loads one: faults become refusals.
func (p *localPlugin) check(ctx context.Context, env environment, config runtime.Config) (info runtime.Info, err error) {
	base := filepath.Base(p.path)
	switch {
	case !strings.HasSuffix(base, manifest.ModuleSuffix):
		p.refuse("a host ignores files that do not end in "+manifest.ModuleSuffix, p.path, "rename it to NAME"+manifest.ModuleSuffix)
	case strings.HasPrefix(base, "."):
		p.refuse("a host ignores files that begin with a dot", p.path, "rename it")
	case queue.ValidQueue(p.name) != nil:
		p.refuse("the file's name is no name of a queue", p.path, "rename it, with 1 to 128 printable ASCII characters without spaces")
	}
	if p.binary == nil {
		return info, nil
	}
	config.Logger = hclog.NewNullLogger()
	engine, _, err := newEngine(ctx, env, config)
	if err != nil {
		return info, err
	}
	defer engine.Close(context.WithoutCancel(ctx))
	module, err := p.load(ctx, engine)
	if err == nil {
		return module.Info(), module.Close(ctx)
	}
	refused, ok := errors.AsType[*runtime.RefusedError](err)
	if !ok {
		return info, err
	}
	p.refusals = append(p.refusals, refused.Refusals...)
	info, _ = engine.Inspect(ctx, p.binary) // of the readable part
	return info, nil
}

// view is the report of `plugin check`: what the plugin is, and what a host with these terms gives it.
func (p *localPlugin) view(info runtime.Info, terms *manifest.Permissions) view {
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
	v := view{
		{"file", "file", p.path},
		{"accepted", "accepted", len(p.refusals) == 0},
		{"kind", "kind", given(info.Kind)},
		{"digest", "digest", given(info.Digest)},
		{"size", "size", size(info.Size)},
		{"files", "", files},
		{"", "files", carried},
		{"functions", "", info.Functions},
		{"", "functions", functions},
		{"charge_points", "", info.Charges},
		{"", "charge points", charges},
		{"", "memory", memory},
		{"reset_mode", "", given(info.ResetMode)},
		{"reset_reason", "", given(info.ResetReason)},
		{"", "reset mode", mode},
	}
	notes := p.notes(info, terms)
	if notes != nil {
		v = append(v, field{"notes", "", notes})
	}
	if !p.unread {
		v = append(v, field{"limits", "limits", limitsView(terms.Limits)})
	}
	asks, grants := p.manifest.Capabilities.Granted(p.manifest.Config), terms.Granted()
	asked, granted := strings.Join(asks.Lines(), "\n"), strings.Join(grants.Lines(), "\n")
	if asked == granted {
		asked = ""
	}
	v = append(v, view{
		{"asks", "", given(asks)},
		{"", "asks", asked},
		{"grants", "", given(grants)},
		{"", "grants", granted},
		{"imports", "", append([]string{}, info.Imports...)},
		{"", "imports", someOf(info.Imports)},
		{"exports", "", append([]string{}, info.Exports...)},
		{"", "exports", someOf(info.Exports)},
		{"memory_min", "", info.MemoryMin},
		{"memory_max", "", given(info.MemoryMax)},
	}...)
	for _, note := range notes {
		v = append(v, field{"", "note", note})
	}
	refusals := []view{}
	for _, r := range p.refusals {
		refusals = append(refusals, view{{"what", "", r.What}, {"where", "", given(r.Where)}, {"remedy", "", r.Remedy}})
		v = append(v, field{"", "refused", r})
	}
	return append(v, field{"refusals", "", refusals})
}

// carriedView lists the files that a module carries, and sums them up for people.
func carriedView(files []runtime.CarriedFile) (list []view, sum string) {
	list, total := []view{}, int64(0)
	for _, file := range files {
		list = append(list, view{{"path", "", file.Path}, {"size", "", file.Size}})
		total += file.Size
	}
	if len(files) > 0 {
		sum = fmt.Sprintf("%d with %s, see -o json", len(files), units.FormatSize(total))
	}
	return list, sum
}

// notes are what an author should know about an accepted plugin.
func (p *localPlugin) notes(info runtime.Info, terms *manifest.Permissions) (notes []string) {
	if len(p.refusals) == 0 && p.manifest.Warm.Input != "" && info.ResetMode == runtime.ResetNew {
		notes = append(notes, "warm has no effect with reset mode new: each task starts a new instance")
	}
	for _, less := range terms.Lowered {
		notes = append(notes, fmt.Sprintf("%s: the manifest has %s, the host lowers it to %s: see %s", less.Key, less.Manifest, less.Host, less.Where))
	}
	for _, key := range terms.Reduced() {
		notes = append(notes, fmt.Sprintf("capabilities.%s: the host grants less than the manifest asks for: see %s", key, terms.Where))
	}
	if !p.unread && len(info.Files) == 0 { // an interpreter imports all functions: that says nothing of its handler
		notes = append(notes, p.manifest.Capabilities.Denied(info.Imports)...)
	}
	return notes
}

func limitsView(l runtime.Limits) view {
	return view{
		{"memory", "memory", size(l.Memory)},
		{"input", "input", size(l.Input)},
		{"output", "output", size(l.Output)},
		{"log", "log", size(l.Log)},
		{"timeout_seconds", "timeout", given(span(l.Timeout))},
		{"cpu_seconds", "cpu", given(span(l.CPU))},
	}
}

// someOf lists names, one a line; not all of the hundred thousand that a module may have.
func someOf(names []string) string {
	const most = 100
	if more := len(names) - most; more > 0 {
		names = append(slices.Clone(names[:most]), fmt.Sprintf("and %d more, see -o json", more))
	}
	return strings.Join(names, "\n")
}
