package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/sdk/queue"
)

// checkView is the report of `plugin check`.
type checkView struct {
	File      string            `json:"file"`
	Accepted  bool              `json:"accepted"`
	Kind      runtime.Kind      `json:"kind,omitempty"`
	Digest    string            `json:"digest,omitempty"`
	Size      int64             `json:"size"`
	Functions int               `json:"functions"`
	Charges   int               `json:"charge_points"`
	ResetMode runtime.ResetMode `json:"reset_mode,omitempty"`
	Reason    string            `json:"reset_reason,omitempty"`
	Notes     []string          `json:"notes,omitempty"`
	// Limits are missing if the manifest cannot be read.
	Limits limitsView `json:"limits,omitzero"`
	// Asks are the capabilities of the manifest, Grants those that the host's grants leave.
	Asks      *manifest.Granted `json:"asks,omitempty"`
	Grants    *manifest.Granted `json:"grants,omitempty"`
	Imports   []string          `json:"imports"`
	Exports   []string          `json:"exports"`
	MemoryMin int64             `json:"memory_min"`
	MemoryMax int64             `json:"memory_max,omitempty"`
	Refusals  []refusalView     `json:"refusals"`
}

// limitsView are the limits of a task: sizes in bytes; 0 is none.
type limitsView struct {
	Memory  int64   `json:"memory"`
	Input   int64   `json:"input"`
	Output  int64   `json:"output"`
	Log     int64   `json:"log"`
	Timeout float64 `json:"timeout_seconds,omitempty"`
	CPU     float64 `json:"cpu_seconds,omitempty"`
}

type refusalView struct {
	What   string `json:"what"`
	Where  string `json:"where,omitempty"`
	Remedy string `json:"remedy"`
}

func newPluginCheck(env environment) *cobra.Command {
	cmd := &cobra.Command{
		Use: "check FILE", Short: "Show what a plugin file is and needs, and what is wrong with it",
		Long: "Shows what a plugin file is, what it imports, exports and needs, and what is wrong with it or the manifest\n" +
			"beside it. --grants adds the capabilities that a host with that file grants it in tasks of --tenant.\n\n" +
			"Exit status: 0 a host would serve it, 3 a host would refuse it, 2 there is no such file.",
		Args: arguments(1, 1),
	}
	output := outputFlag(cmd)
	engineFlags(cmd.Flags())
	var grants, tenant string
	grantsOfTenantFlags(cmd.Flags(), &grants, &tenant)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, err := readPlugin(args[0])
		if err != nil {
			return err
		}
		config, err := engineConfig(cmd.Flags())
		if err != nil {
			return err
		}
		hosts, err := loadGrantsOf(cmd.Flags(), grants, tenant)
		if err != nil {
			return err
		}
		view, err := p.check(cmd.Context(), env, config)
		if err != nil {
			return err
		}
		view.grant(&p.manifest, hosts, tenant)
		if output.json() {
			err = writeJSON(cmd.OutOrStdout(), view)
		} else {
			err = view.print(cmd.OutOrStdout())
		}
		return errors.Join(err, p.refusal(nil))
	}
	return cmd
}

// check checks the plugin as a host does when it loads one.
func (p *localPlugin) check(ctx context.Context, env environment, config runtime.Config) (checkView, error) {
	l := p.manifest.Limits.WithDefaults()
	view := checkView{
		File: p.path, Imports: []string{}, Exports: []string{}, Refusals: []refusalView{},
		Limits: limitsView{l.Memory, l.Input, l.Output, l.Log, l.Timeout.Seconds(), l.CPU.Seconds()},
	}
	if p.unread {
		view.Limits = limitsView{}
	}
	p.checkName()
	if p.binary != nil {
		if err := p.checkModule(ctx, env, config, &view); err != nil {
			return view, err
		}
	}
	for _, r := range p.refusals {
		view.Refusals = append(view.Refusals, refusalView(r))
	}
	view.Accepted = len(p.refusals) == 0
	if view.Accepted && p.manifest.Warm.Input != "" && view.ResetMode == runtime.ResetNew {
		view.Notes = append(view.Notes, "warm has no effect with reset mode new: each task starts a new instance")
	}
	return view, nil
}

// checkName refuses file names that a host ignores, or that are no names of queues.
func (p *localPlugin) checkName() {
	base := filepath.Base(p.path)
	switch {
	case !strings.HasSuffix(base, moduleSuffix):
		p.refuse("a host ignores files that do not end in "+moduleSuffix, p.path, "rename it to NAME"+moduleSuffix)
	case strings.HasPrefix(base, "."):
		p.refuse("a host ignores files that begin with a dot", p.path, "rename it")
	case queue.ValidQueue(p.name) != nil:
		p.refuse("the file's name is no name of a queue", p.path, "rename it, with 1 to 128 printable ASCII characters without spaces")
	}
}

func (p *localPlugin) checkModule(ctx context.Context, env environment, config runtime.Config, view *checkView) error {
	config.Logger = hclog.NewNullLogger()
	engine, _, err := newEngine(ctx, env, config)
	if err != nil {
		return err
	}
	defer engine.Close(context.WithoutCancel(ctx))
	module, err := p.load(ctx, engine)
	if err == nil {
		view.describe(module.Info())
		return module.Close(ctx)
	}
	var refused *runtime.RefusedError
	if !errors.As(err, &refused) {
		return err
	}
	p.refusals = append(p.refusals, refused.Refusals...)
	info, _ := engine.Inspect(ctx, p.binary) // of the readable part
	view.describe(info)
	return nil
}

// grant compares the manifest with a host's grants.
func (v *checkView) grant(m *manifest.Manifest, hosts *manifest.Grants, tenant string) {
	terms := manifest.NewPermissions(m, hosts, tenant, nil)
	if l := terms.Limits; v.Limits != (limitsView{}) {
		v.Limits = limitsView{l.Memory, l.Input, l.Output, l.Log, l.Timeout.Seconds(), l.CPU.Seconds()}
	}
	for _, less := range terms.Lowered {
		v.Notes = append(v.Notes, fmt.Sprintf("%s: the manifest has %s, the host lowers it to %s: see %s", less.Key, less.Manifest, less.Host, less.Place))
	}
	v.Asks, v.Grants = m.Capabilities.Granted(m.Config), terms.Granted()
	for _, key := range terms.Reduced() {
		v.Notes = append(v.Notes, fmt.Sprintf("capabilities.%s: the host grants less than the manifest asks for: see %s", key, terms.Place))
	}
}

func (v *checkView) describe(info runtime.Info) {
	v.Kind, v.Digest, v.Size = info.Kind, info.Digest, info.Size
	v.Functions, v.Charges = info.Functions, info.Charges
	v.Imports, v.Exports = append(v.Imports, info.Imports...), append(v.Exports, info.Exports...)
	v.MemoryMin, v.MemoryMax = info.MemoryMin, info.MemoryMax
	v.ResetMode, v.Reason = info.ResetMode, info.ResetReason
}

func (v checkView) print(w io.Writer) error {
	memory, functions, charges, mode := "", "", "", ""
	if v.Kind != "" {
		functions, charges = strconv.Itoa(v.Functions), strconv.Itoa(v.Charges)
		memory = units.FormatSize(v.MemoryMin)
	}
	if v.MemoryMax > 0 {
		memory += " to " + units.FormatSize(v.MemoryMax)
	}
	if v.ResetMode != "" {
		mode = string(v.ResetMode) + ": " + v.Reason
	}
	limits := ""
	if v.Limits != (limitsView{}) {
		limits = v.Limits.String()
	}
	asks, grants := strings.Join(v.Asks.Lines(), "\n"), strings.Join(v.Grants.Lines(), "\n")
	if asks == grants {
		asks = ""
	}
	fields := []field{
		{"file", v.File},
		{"accepted", yesNo(v.Accepted)},
		{"kind", v.Kind},
		{"digest", v.Digest},
		{"size", units.FormatSize(v.Size)},
		{"functions", functions},
		{"charge points", charges},
		{"memory", memory},
		{"reset mode", mode},
		{"limits", limits},
		{"asks", asks},
		{"grants", grants},
		{"imports", someOf(v.Imports)},
		{"exports", someOf(v.Exports)},
	}
	for _, note := range v.Notes {
		fields = append(fields, field{"note", note})
	}
	for _, r := range v.Refusals {
		fields = append(fields, field{"refused", runtime.Refusal(r)})
	}
	return writeFields(w, fields)
}

func (l limitsView) String() string {
	text := fmt.Sprintf("memory %s, input %s, output %s, log %s", units.FormatSize(l.Memory), units.FormatSize(l.Input),
		units.FormatSize(l.Output), units.FormatSize(l.Log))
	for _, limit := range []struct {
		name    string
		seconds float64
	}{{"timeout", l.Timeout}, {"cpu", l.CPU}} {
		if limit.seconds > 0 {
			text += fmt.Sprintf(", %s %s", limit.name, time.Duration(math.Round(limit.seconds*float64(time.Second))))
		}
	}
	return text
}

// someOf lists names, one a line; not all of the hundred thousand that a module may have.
func someOf(names []string) string {
	const most = 100
	if more := len(names) - most; more > 0 {
		names = append(slices.Clone(names[:most]), fmt.Sprintf("and %d more, see -o json", more))
	}
	return strings.Join(names, "\n")
}
