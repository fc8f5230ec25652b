package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/sdk/queue"
)

func newPlugin(env environment) *cobra.Command {
	cmd := &cobra.Command{Use: "plugin", Short: "Make, build, check, test, run, list and release plugins", Args: onlyCommands, RunE: needsCommand}
	cmd.AddCommand(
		newPluginNew(), newPluginBuild(env), newPluginCheck(env), newPluginTest(env), newPluginRun(env), newPluginSchema(), newPluginLs(env), newPluginRelease(env),
	)
	return cmd
}

// localPlugin is a plugin read from a file, with the manifest beside it.
type localPlugin struct {
	path, name   string
	binary       []byte
	manifestPath string
	manifest     manifest.Manifest
	unread       bool           // the manifest cannot be read: nothing is known of what it says
	files        *runtime.Files // that the manifest grants
	// refusals are what is wrong with the two files, before the module is looked into.
	refusals []runtime.Refusal
}

const (
	moduleSuffix   = ".wasm"
	manifestSuffix = ".yaml"
)

// readPlugin reads FILE and, if there is one, the manifest beside it. It fails where there is no file
// to read; what is wrong with the files goes into the refusals.
func readPlugin(path string) (*localPlugin, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, usagef("no such file %q: name a %s file", path, moduleSuffix)
	}
	if err != nil {
		return nil, usagef("read plugin: %w", err)
	}
	stem := strings.TrimSuffix(path, moduleSuffix)
	beside := stem + manifestSuffix
	p := &localPlugin{path: path, name: filepath.Base(stem), manifestPath: beside}
	switch {
	case !info.Mode().IsRegular():
		p.refuse("it is not a regular file", path, "put a "+moduleSuffix+" file in its place")
	case info.Size() > runtime.MaxModule:
		p.refuse(fmt.Sprintf("it has %d bytes, more than %s", info.Size(), units.FormatSize(runtime.MaxModule)), path, "build it without debug information, or take it apart")
	default:
		p.binary, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, usagef("read plugin: %w", err)
	}
	p.manifest, err = plugins.LoadManifest(beside)
	if errors.Is(err, fs.ErrNotExist) {
		p.manifest, err = manifest.Default(p.name), nil
	}
	p.unread = err != nil
	if err == nil {
		p.files, _, err = plugins.LoadFiles(beside, p.manifest) // without a pool there is no warm call
	}
	var wrong *manifest.Error
	switch {
	case errors.As(err, &wrong):
		p.refusals = append(p.refusals, wrong.Refusals()...)
	case err != nil:
		p.refuse(err.Error(), beside, "make it a YAML file that can be read, or remove it")
	}
	return p, nil
}

func (p *localPlugin) refuse(what, where, remedy string) {
	p.refusals = append(p.refusals, runtime.Refusal{What: what, Where: where, Remedy: remedy})
}

// refusal is the error of a plugin that is refused; nil if nothing is wrong.
func (p *localPlugin) refusal(err error) error {
	if len(p.refusals) > 0 {
		err = &runtime.RefusedError{Refusals: p.refusals}
	}
	if err == nil {
		return nil
	}
	return refusedf("%s is refused: %w", p.path, err)
}

// load compiles the module and sees that the manifest fits it.
func (p *localPlugin) load(ctx context.Context, engine *runtime.Engine) (*runtime.Module, error) {
	module, err := engine.Load(ctx, p.binary)
	if err != nil || p.unread {
		return module, err
	}
	err = module.Admits(p.manifest.Limits.WithDefaults())
	if err == nil {
		err = p.manifest.CheckModule(p.manifestPath, module.Info())
	}
	var wrong *manifest.Error
	if errors.As(err, &wrong) {
		err = &runtime.RefusedError{Refusals: wrong.Refusals()}
	}
	if err != nil {
		return nil, errors.Join(err, module.Close(ctx))
	}
	return module, nil
}

// pluginView is a plugin as live hosts say that they have it.
type pluginView struct {
	Tenant    string   `json:"tenant,omitempty"`
	Plugin    string   `json:"plugin"`
	Version   string   `json:"version,omitempty"`
	Digest    string   `json:"digest,omitempty"`
	Queues    []string `json:"queues,omitempty"`
	State     string   `json:"state"`
	Error     string   `json:"error,omitempty"`
	ResetMode string   `json:"reset_mode,omitempty"`
	// Grants are what it may use beyond a task of the tenant that is asked about.
	Grants *manifest.Granted `json:"grants,omitempty"`
	// Lowered are the limits of which the hosts give such a task less than the manifest asks for.
	Lowered []manifest.Lowered `json:"lowered,omitempty"`
	Nodes   []string           `json:"nodes"`
}

// shortDigest is how much of a digest people are shown: sha256: and twelve digits.
const shortDigest = 19

func newPluginLs(env environment) *cobra.Command {
	cmd := &cobra.Command{Use: "ls", Short: "List the plugins of live hosts, and what they refuse", Args: arguments(0, 0)}
	clientFlags(cmd)
	output := outputFlag(cmd)
	cmd.RunE = withClient(env, output, func(cmd *cobra.Command, client *queue.Client, _ []string, json bool) error {
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
			if len(digest) > shortDigest {
				digest = digest[:shortDigest]
			}
			rows[i] = []string{
				v.Tenant, v.Plugin, v.Version, digest, strings.Join(v.Queues, ","), v.State, v.ResetMode, fmt.Sprint(len(v.Nodes)), escape(v.Error),
			}
		}
		return writeTable(cmd.OutOrStdout(), "TENANT PLUGIN VERSION DIGEST QUEUES STATE RESET NODES ERROR", rows)
	})
	return cmd
}

// listPlugins reads what live hosts published, the same on several hosts as one row.
func listPlugins(ctx context.Context, client *queue.Client) ([]pluginView, error) {
	nodes, err := client.Fleet().Nodes(ctx)
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
			same := func(v pluginView) bool {
				return v.Tenant == p.Tenant && v.Plugin == p.Plugin && v.Version == p.Version && v.Digest == p.Digest &&
					v.State == p.State && v.Error == p.Error && v.ResetMode == p.ResetMode && slices.Equal(v.Queues, p.Queues) &&
					reflect.DeepEqual(v.Grants, p.Grants) && slices.Equal(v.Lowered, p.Lowered)
			}
			i := slices.IndexFunc(views, same)
			if i < 0 {
				views = append(views, p)
				i = len(views) - 1
			}
			views[i].Nodes = append(views[i].Nodes, node.ID)
		}
	}
	if err := markQuarantined(ctx, client, views); err != nil {
		return nil, err
	}
	slices.SortStableFunc(views, func(a, b pluginView) int {
		return strings.Compare(a.Tenant+"\x00"+a.Plugin+"\x00"+a.State, b.Tenant+"\x00"+b.Plugin+"\x00"+b.State)
	})
	return views, nil
}
