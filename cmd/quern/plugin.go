package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/quern-project/quern/host"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/sdk/queue"
)

func newPlugin() *cobra.Command {
	cmd := &cobra.Command{Use: "plugin", Short: "Make, check, run and list plugins", Args: cobra.NoArgs, RunE: needsSubcommand}
	cmd.AddCommand(newPluginNew(), newPluginCheck(), newPluginRun(), newPluginLs())
	return cmd
}

// localPlugin is a plugin read from a file, with the manifest beside it.
type localPlugin struct {
	name     string
	binary   []byte
	manifest plugins.Manifest
}

// readPlugin reads FILE and, if there is one, the manifest beside it.
func readPlugin(path string) (*localPlugin, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, usagef("read plugin: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, refusedf("%s is not a regular file (%s): name a .wasm file", path, info.Mode().Type())
	}
	binary, err := os.ReadFile(path)
	if err != nil {
		return nil, usagef("read plugin: %w", err)
	}
	stem := strings.TrimSuffix(path, ".wasm")
	p := &localPlugin{name: filepath.Base(stem), binary: binary}
	p.manifest, err = plugins.LoadManifest(stem + ".yaml")
	if errors.Is(err, fs.ErrNotExist) {
		p.manifest, err = plugins.DefaultManifest(p.name), nil
	}
	if err != nil {
		return nil, &exitError{status: exitRefused, err: err}
	}
	return p, nil
}

// checkView is what `plugin check` says of a file.
type checkView struct {
	File      string        `json:"file"`
	Accepted  bool          `json:"accepted"`
	Kind      runtime.Kind  `json:"kind,omitempty"`
	Digest    string        `json:"digest"`
	Size      int64         `json:"size"`
	Functions int           `json:"functions"`
	Imports   []string      `json:"imports"`
	Exports   []string      `json:"exports"`
	MemoryMin int64         `json:"memory_min"`
	MemoryMax int64         `json:"memory_max,omitempty"`
	Refusals  []refusalView `json:"refusals"`
}

type refusalView struct {
	What   string `json:"what"`
	Where  string `json:"where,omitempty"`
	Remedy string `json:"remedy"`
}

func newPluginCheck() *cobra.Command {
	cmd := &cobra.Command{
		Use: "check FILE", Short: "Say what a plugin file is and needs, and what is wrong with it",
		Long: "Says what a plugin file is, what it imports, exports and needs, and what is wrong with it or with the\n" +
			"manifest beside it. Exit status: 0 a host would serve it, 3 it would be refused, 2 there is no such file.",
		Args: cobra.ExactArgs(1),
	}
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		asJSON, err := asJSON(*output)
		if err != nil {
			return err
		}
		p, err := readPlugin(args[0])
		var manifestErr *exitError
		if errors.As(err, &manifestErr) && manifestErr.status == exitUsage || err != nil && p == nil && !asJSON {
			return err
		}
		view, err := checkPlugin(cmd.Context(), args[0], p, err)
		if err != nil {
			return err
		}
		if asJSON {
			err = writeJSON(cmd.OutOrStdout(), view)
		} else {
			err = view.print(cmd.OutOrStdout())
		}
		if err == nil && !view.Accepted {
			first := view.Refusals[0]
			err = refusedf("%s is refused: %s: %s", args[0], first.What, first.Remedy)
		}
		return err
	}
	return cmd
}

// checkPlugin looks at a plugin as a host would when it loads it.
func checkPlugin(ctx context.Context, path string, p *localPlugin, readErr error) (checkView, error) {
	view := checkView{File: path, Imports: []string{}, Exports: []string{}, Refusals: []refusalView{}}
	if readErr != nil {
		view.Refusals = append(view.Refusals, refusalView{What: oneLine(readErr.Error()), Remedy: "see the manifest's documentation"})
		return view, nil
	}
	engine, err := runtime.New(ctx, runtime.Config{})
	if err != nil {
		return view, err
	}
	defer engine.Close(ctx)
	info, err := engine.Inspect(ctx, p.binary)
	view.Kind, view.Digest, view.Size, view.Functions = info.Kind, info.Digest, info.Size, info.Functions
	view.Imports, view.Exports = append(view.Imports, info.Imports...), append(view.Exports, info.Exports...)
	view.MemoryMin, view.MemoryMax = info.MemoryMin, info.MemoryMax
	if err == nil {
		err = p.admitted(ctx, engine)
	}
	var refused *runtime.RefusedError
	switch {
	case errors.As(err, &refused):
		for _, r := range refused.Refusals {
			view.Refusals = append(view.Refusals, refusalView{r.What, r.Where, r.Remedy})
		}
	case err != nil:
		return view, err
	default:
		view.Accepted = true
	}
	return view, nil
}

// admitted tells whether the module's least memory fits the manifest's limits.
func (p *localPlugin) admitted(ctx context.Context, engine *runtime.Engine) error {
	module, err := engine.Load(ctx, p.binary)
	if err != nil {
		return err
	}
	defer module.Close(ctx)
	return module.Admits(p.manifest.Limits.WithDefaults())
}

func (v checkView) print(w io.Writer) error {
	verdict := "accepted"
	if !v.Accepted {
		verdict = "refused"
	}
	memory := units.FormatSize(v.MemoryMin)
	if v.MemoryMax > 0 {
		memory += " to " + units.FormatSize(v.MemoryMax)
	}
	rows := [][]string{
		{"kind", string(v.Kind)}, {"digest", v.Digest}, {"size", units.FormatSize(v.Size)},
		{"functions", fmt.Sprint(v.Functions)}, {"memory", memory},
		{"imports", strings.Join(v.Imports, " ")}, {"exports", strings.Join(v.Exports, " ")},
	}
	if v.Digest == "" {
		rows = nil
	}
	for _, r := range v.Refusals {
		where := ""
		if r.Where != "" {
			where = " (" + r.Where + ")"
		}
		rows = append(rows, []string{"refused", r.What + where + ": " + r.Remedy})
	}
	return writeTable(w, v.File+" "+verdict, rows)
}

func newPluginRun() *cobra.Command {
	cmd := &cobra.Command{
		Use: "run FILE", Short: "Run a plugin on this machine, without Redis: stdin is the parameters, stdout the result",
		Long: "Runs a plugin once with the manifest beside it, within the limits and to the outcome that it would have\n" +
			"on a host. Exit status: 0 it completed, 1 it failed, 3 it is refused, 2 there is no such file.",
		Args: cobra.ExactArgs(1),
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		p, err := readPlugin(args[0])
		if err != nil {
			return err
		}
		parameters, err := readParameters([]string{"-"}, cmd.InOrStdin())
		if err != nil {
			return err
		}
		return runPlugin(cmd, p, parameters)
	}
	return cmd
}

// localID is the task's ID in a run without Redis.
const localID = "local"

func runPlugin(cmd *cobra.Command, p *localPlugin, parameters []byte) error {
	ctx := cmd.Context()
	engine, err := runtime.New(ctx, runtime.Config{CacheDir: hostOptions{}.cacheDir(hclog.NewNullLogger())})
	if err != nil {
		return err
	}
	defer engine.Close(context.WithoutCancel(ctx))
	module, err := engine.Load(ctx, p.binary)
	if err != nil {
		return &exitError{status: exitRefused, err: fmt.Errorf("%s.wasm is refused: %w", p.name, err)}
	}
	defer module.Close(context.WithoutCancel(ctx))
	limits := p.manifest.Limits.WithDefaults()
	if err := module.Admits(limits); err != nil {
		return &exitError{status: exitRefused, err: fmt.Errorf("%s.wasm is refused: %w", p.name, err)}
	}
	outcome := module.Run(ctx, runtime.Call{
		TaskID: localID, Queue: p.manifest.Queues[0], Tenant: queue.DefaultTenant, Plugin: p.name, Attempt: 1,
		Input: parameters, Env: p.manifest.Capabilities.Env, Limits: limits,
		Log: func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) },
	})
	if outcome.Kind == runtime.HostFault {
		return fmt.Errorf("internal error: %w", outcome.Err)
	}
	if failure := host.Failure(outcome); failure != nil {
		return taskFailed(localID, failure)
	}
	_, err = cmd.OutOrStdout().Write(outcome.Output)
	return err
}

// pluginView is a plugin as live hosts say that they have it.
type pluginView struct {
	Tenant  string   `json:"tenant,omitempty"`
	Plugin  string   `json:"plugin"`
	Version string   `json:"version,omitempty"`
	Digest  string   `json:"digest,omitempty"`
	Queues  []string `json:"queues,omitempty"`
	State   string   `json:"state"`
	Error   string   `json:"error,omitempty"`
	Nodes   []string `json:"nodes"`
}

func newPluginLs() *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Short: "List the plugins of live hosts, and what they refuse", Args: cobra.NoArgs}
	clientFlags(cmd)
	output := outputFlag(cmd)
	cmd.RunE = withClient(output, func(cmd *cobra.Command, client *queue.Client, _ []string, json bool) error {
		views, err := listPlugins(cmd.Context(), client)
		if err != nil {
			return err
		}
		if json {
			return writeJSON(cmd.OutOrStdout(), views)
		}
		rows := make([][]string, len(views))
		for i, v := range views {
			digest := v.Digest
			if len(digest) > 19 {
				digest = digest[:19] // sha256: and twelve digits
			}
			rows[i] = []string{
				v.Tenant, v.Plugin, v.Version, digest, strings.Join(v.Queues, ","), v.State, fmt.Sprint(len(v.Nodes)), escape(v.Error),
			}
		}
		return writeTable(cmd.OutOrStdout(), "TENANT PLUGIN VERSION DIGEST QUEUES STATE NODES ERROR", rows)
	})
	return cmd
}

// listPlugins reads what live hosts published, the same on several hosts as one row.
func listPlugins(ctx context.Context, client *queue.Client) ([]pluginView, error) {
	nodes, err := client.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	now, err := client.Clock(ctx)
	if err != nil {
		return nil, err
	}
	views := []pluginView{}
	for _, node := range nodes {
		if node.LeaseEnd.Before(now) {
			continue
		}
		var published []pluginView
		if json.Unmarshal([]byte(node.About["plugins"]), &published) != nil {
			continue // a listener of another kind, without plugins
		}
		for _, p := range published {
			if p.Tenant != "" && p.Tenant != client.Tenant() {
				continue // a host of several tenants has those of others too
			}
			same := func(v pluginView) bool {
				return v.Tenant == p.Tenant && v.Plugin == p.Plugin && v.Version == p.Version && v.Digest == p.Digest &&
					v.State == p.State && v.Error == p.Error && slices.Equal(v.Queues, p.Queues)
			}
			i := slices.IndexFunc(views, same)
			if i < 0 {
				views = append(views, p)
				i = len(views) - 1
			}
			views[i].Nodes = append(views[i].Nodes, node.ID)
		}
	}
	slices.SortStableFunc(views, func(a, b pluginView) int {
		return strings.Compare(a.Tenant+"\x00"+a.Plugin+"\x00"+a.State, b.Tenant+"\x00"+b.Plugin+"\x00"+b.State)
	})
	return views, nil
}
