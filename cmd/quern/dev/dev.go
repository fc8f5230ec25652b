// Package dev implements `quern dev`, which runs an embedded Redis and a host, and rebuilds plugins when their source
// changes.
package dev

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/build"
	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/connect"
	"github.com/quern-project/quern/cmd/quern/hostlog"
	"github.com/quern-project/quern/cmd/quern/nodehost"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/cmd/quern/pluginfile"
	"github.com/quern-project/quern/cmd/quern/show"
	"github.com/quern-project/quern/host"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/plugins/manifest"
)

// Command makes the command `quern dev`.
func Command(env cli.Environment) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run an embedded Redis and a host for development; forgets everything at exit",
		Long: "Runs an embedded Redis on a free port and a host that watches the plugin directory. Other quern\n" +
			"commands of this user find it without flags, by the file quern/dev.json in $XDG_RUNTIME_DIR or else in the\n" +
			"cache folder: it has the URL with the password, for other programs. It forgets everything at exit: for\n" +
			"production use a real Redis and `quern serve`.\n\n" +
			"In the folder of a plugin's source, or with --source, it builds that plugin into the plugin directory,\n" +
			"as `quern plugin build --to` does, and again whenever a file in the folder is saved; it does not watch\n" +
			"sources elsewhere, such as imported packages. While the source does not compile, the last version that\n" +
			"did keeps running. Type errors of TypeScript are warnings in the log, if the plugin's node_modules has tsc.\n" +
			"A folder named secrets, with TENANT/NAME in it, is that of --secrets if there is none other; it may be made\n" +
			"later. Each task and each delivery of a webhook that ends is a line on stdout: ✓ done, ✗ failed, with its\n" +
			"places in the source, ↻ to be tried again.\n\n" +
			"Its log names the address of its page, which is also the URL for programs that enqueue: port 9465 of\n" +
			"this machine, or a free port if that one is in use and --admin is not given.",
		Args: cli.Arguments(0, 0),
	}
	o := nodehost.NewOptions(cmd, "127.0.0.1:0")
	o.Loopback = true
	port := 0
	option.Number(cmd.Flags(), &port, "redis-port", "port of the embedded Redis, to find it at the same URL after each start; 0, the default, for a free one", 0, 65535, "use 1 to 65535, or 0 for a free one")
	o.Admin = nodehost.APIFlags(cmd.Flags(), "127.0.0.1:9465")
	o.Admin.OrFree = true
	folders := cmd.Flags().StringArray("source", nil, "`DIR` with the source of a plugin, to build now and whenever a file in it changes; may be given several times (default the current folder, if it is one)")
	var engines string
	pluginfile.EnginesFlag(cmd.Flags(), &engines)
	nodehost.GroupFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("redis") || cmd.Flags().Changed("redis-file") {
			return cli.Usagef("dev brings its own Redis: leave --redis and --redis-file out, or use `quern serve`")
		}
		if url, err := connect.URL(cmd); err != nil || url != "" {
			cli.Note(cmd, "the environment or the configuration file names a Redis: other commands will use that one, not this `quern dev`")
		}
		sources, err := devSources(*folders, func(text string) { cli.Note(cmd, "%s", text) })
		if err != nil {
			return err
		}
		return runDev(cmd, env, o, sources, engines, port)
	}
	return cmd
}

func runDev(cmd *cobra.Command, env cli.Environment, o *nodehost.Options, sources []*build.Source, engines string,
	port int,
) error {
	other, ok, err := connect.FindDev(cmd.Context(), env)
	if err != nil {
		return err
	}
	if ok {
		return cli.Refusedf("a `quern dev` of this user is running already (process %d): use that one, or end it first",
			other.PID)
	}
	if o.Plugins.Dir == plugins.NoDir {
		return cli.WrongValue(cmd.Flag("plugins"), o.Plugins.Dir, errors.New("quern dev needs a plugin directory: name another, or ./none"))
	}
	if err := os.MkdirAll(o.Plugins.Dir, 0o755); err != nil { // so that a first plugin can be copied there
		return cmp.Or(o.CheckPlugins(cmd.Flags()), fmt.Errorf("make plugin directory: %w", err))
	}
	folder, err := filepath.Abs(secretsFolder)
	if err != nil {
		return fmt.Errorf("find the folder of secrets: %w", err)
	}
	secrets := o.SecretsOf(folder)
	password := devPassword(env)
	embedded, err := startRedis(port, password)
	if err != nil {
		return cli.Refusedf("start embedded Redis: %w: choose another --redis-port, or 0 for a free one", err)
	}
	defer embedded.close()
	ctx, stop := context.WithCancel(cmd.Context())
	defer stop()
	go expire(ctx, embedded.Miniredis)
	url := "redis://default:" + password + "@" + embedded.addr() + "/0" // else redis-cli would send an empty user name

	stdout := hostlog.StartSink(cmd.OutOrStdout(), func(int) {}, hclog.NewNullLogger()) // a slow reader delays no task
	defer stdout.Close()
	color := show.ScreenOf(cmd)
	o.Host.Ended = func(e host.Ended) {
		if !e.Quiet {
			fmt.Fprintln(stdout, endedLine(color, e))
		}
	}
	unbuilt := &unbuilt{list: map[string]plugins.Status{}}
	o.Host.Unbuilt = unbuilt.all
	n, err := nodehost.New(cmd, env, o, url)
	if err != nil {
		return err
	}
	defer n.Close()
	forget := func() {}
	defer func() { forget() }()
	for _, s := range sources {
		messages := new(bytes.Buffer)
		r := &rebuilder{
			dir: s.Dir, name: s.Name, to: o.Plugins.Dir, tests: s.Tests, logger: n.Logger, unbuilt: unbuilt,
			builder:  pluginfile.NewBuilder(env, engines, io.MultiWriter(n.Stderr, messages)),
			messages: messages,
		}
		if _, err := os.Stat(r.module()); err == nil { // else an outdated module would serve first
			r.first(cmd.Context())
		}
		n.Background = append(n.Background, r.run)
	}
	n.Background = append(n.Background, func(ctx context.Context) {
		n.WarnUnserved(ctx, func(queue string) bool { // a build logs how it ends
			return slices.ContainsFunc(sources, func(s *build.Source) bool { return s.Name == queue })
		})
	})
	if secrets {
		n.Logger.Info("taking secrets from the folder " + secretsFolder + ", as no --secrets is given")
	}
	if others := withoutSource(o.Plugins.Dir, sources); len(others) > 0 {
		n.Logger.Info("served as they are, without a source: remove what is not wanted", "plugins", o.Plugins.Dir,
			"files", others)
	}
	return n.Run(cmd.Context(), func(http, admin string) {
		path, remove, err := connect.WriteDev(env, connect.Dev{
			Redis: url, HTTP: http, Admin: admin, PID: os.Getpid(), Secrets: o.Secrets(),
		})
		if err != nil { // then the log has to give the URL with the password
			n.Logger.Warn("other commands cannot find this one: give them --redis "+url, "error", err)
		} else {
			forget = remove
		}
		n.Logger.Info("embedded Redis is running; it forgets everything at exit", "redis", connect.WithoutPassword(url),
			"password_in", cmp.Or(path, "the line before"))
		n.Logger.Info("watching for plugins", "plugins", o.Plugins.Dir, "try", "quern enqueue QUEUE PARAMETERS --wait")
	})
}

// secretsFolder is the folder of secrets if --secrets is not given. Builds leave it out.
const secretsFolder = "secrets"

// withoutSource lists the modules in a plugin directory that none of the sources makes, such as those of former
// plugins. Without sources it lists none, because all modules come from elsewhere then.
func withoutSource(dir string, sources []*build.Source) (files []string) {
	if len(sources) == 0 {
		return nil
	}
	entries, _ := os.ReadDir(dir) // the host reports a directory that cannot be read
	for _, entry := range entries {
		name, is := strings.CutSuffix(entry.Name(), manifest.ModuleSuffix)
		if is && !slices.ContainsFunc(sources, func(s *build.Source) bool { return s.Name == name }) {
			files = append(files, entry.Name())
		}
	}
	return files
}

// devSources reads the sources in the folders. Without folders it reads the current one if that is a plugin's. If the
// current folder is a plugin's but cannot be built, devSources calls tell with the reason.
func devSources(folders []string, tell func(string)) ([]*build.Source, error) {
	if len(folders) == 0 {
		s, err := build.Read(".")
		switch {
		case err == nil && isNamed(s):
			return []*build.Source{s}, nil
		case err != nil:
			manifests, _ := filepath.Glob("*" + manifest.Suffix)
			for _, path := range manifests {
				if isNamed(&build.Source{Name: strings.TrimSuffix(path, manifest.Suffix), Manifest: path}) {
					tell("the current folder is not built: " + err.Error())
					break
				}
			}
		}
		return nil, nil
	}
	var sources []*build.Source
	for _, folder := range folders {
		s, err := build.Read(folder)
		if err != nil {
			return nil, pluginfile.BuildError(err)
		}
		if i := slices.IndexFunc(sources, func(other *build.Source) bool { return other.Name == s.Name }); i >= 0 {
			return nil, cli.Usagef("--source %q: %s is the plugin %s, too: name each once", folder, sources[i].Dir, s.Name)
		}
		sources = append(sources, s)
	}
	return sources, nil
}

// isNamed reports whether the manifest gives the plugin's name. Only then is a folder taken for a plugin's: other
// folders can have Go and YAML files, too.
func isNamed(s *build.Source) bool {
	text, err := os.ReadFile(s.Manifest)
	return err == nil && regexp.MustCompile(`(?m)^name:\s*["']?`+regexp.QuoteMeta(s.Name)+`\b`).Match(text)
}
