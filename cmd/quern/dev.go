package main

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/fsnotify/fsnotify"
	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/quern-project/quern/cmd/quern/build"
)

func newDev(env environment) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run an embedded Redis and a host for development; forgets everything at exit",
		Long: "Runs an embedded Redis on a free port and a node host that watches the plugin directory. Other quern\n" +
			"commands of this user find it without flags. It forgets everything at exit: for production use a real\n" +
			"Redis and `quern serve`.\n\n" +
			"In the folder of a plugin's source, or with --source, it builds that plugin into the plugin directory,\n" +
			"as `quern plugin build --to` does, and again whenever a file in the folder is saved; it does not watch\n" +
			"sources elsewhere, such as imported packages. While the source does not compile, the last version that\n" +
			"did keeps running.",
		Args: arguments(0, 0),
	}
	o := newHostOptions(cmd, "127.0.0.1:0")
	o.admin = newAdminOptions(cmd.Flags(), "127.0.0.1:0")
	folders := cmd.Flags().StringArray("source", nil, "`DIR` with the source of a plugin, to build now and whenever a file in it changes; may be given several times (default the current folder, if it is one)")
	engines := enginesFlag(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("redis") || cmd.Flags().Changed("redis-file") {
			return usagef("dev brings its own Redis: leave --redis and --redis-file out, or use `quern serve`")
		}
		if url, err := redisURL(cmd); err != nil || url != "" {
			fmt.Fprintln(cmd.ErrOrStderr(), "quern: the environment or the configuration file names a Redis: other commands will use that one, not this `quern dev`")
		}
		sources, err := devSources(*folders, func(text string) { fmt.Fprintln(cmd.ErrOrStderr(), "quern: "+text) })
		if err != nil {
			return err
		}
		return runDev(cmd, env, o, sources, *engines)
	}
	return cmd
}

func runDev(cmd *cobra.Command, env environment, o *hostOptions, sources []*build.Source, engines string) error {
	other, ok, err := findDev(cmd.Context(), env)
	if err != nil {
		return err
	}
	if ok {
		return refusedf("a `quern dev` of this user is running already (process %d): use that one, or end it first", other.PID)
	}
	if err := os.MkdirAll(o.plugins.Dir, 0o755); err != nil { // for the first plugin
		return cmp.Or(o.checkPlugins(cmd.Flags()), fmt.Errorf("make plugin directory: %w", err))
	}
	embedded := miniredis.NewMiniRedis()
	embedded.ClockTTL(true) // without it keys never expire
	if err := embedded.StartAddr("127.0.0.1:0"); err != nil {
		return fmt.Errorf("start embedded Redis: %w", err)
	}
	defer embedded.Close()
	url := "redis://" + embedded.Addr() + "/0"

	n, err := newNode(cmd, env, o, url)
	if err != nil {
		return err
	}
	defer n.close()
	forget := func() {}
	defer func() { forget() }()
	builder := newBuilder(env, engines, n.stderr)
	for _, s := range sources {
		r := &rebuilder{dir: s.Dir, name: s.Name, to: o.plugins.Dir, builder: builder, logger: n.logger}
		n.background = append(n.background, r.run)
	}
	return n.run(cmd.Context(), func(http string) {
		n.logger.Info("embedded Redis is running; it forgets everything at exit", "redis", url)
		n.logger.Info("watching for plugins", "plugins", o.plugins.Dir, "try", "quern enqueue QUEUE PARAMETERS --wait")
		remove, err := writeDev(env, devFile{Redis: url, HTTP: http, PID: os.Getpid()})
		if err != nil {
			n.logger.Warn("other commands cannot find this one: give them --redis "+url, "error", err)
			return
		}
		forget = remove
	})
}

// devSources reads the folders of sources, by default the current one if it is a plugin's. It tells why that cannot be built.
func devSources(folders []string, tell func(string)) ([]*build.Source, error) {
	if len(folders) == 0 {
		s, err := build.Read(".")
		switch {
		case err == nil && isNamed(s):
			return []*build.Source{s}, nil
		case err != nil:
			manifests, _ := filepath.Glob("*" + manifestSuffix)
			for _, manifest := range manifests {
				if isNamed(&build.Source{Name: strings.TrimSuffix(manifest, manifestSuffix), Manifest: manifest}) {
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
			return nil, unbuilt(err)
		}
		if i := slices.IndexFunc(sources, func(other *build.Source) bool { return other.Name == s.Name }); i >= 0 {
			return nil, usagef("--source %q: %s is the plugin %s, too: name each once", folder, sources[i].Dir, s.Name)
		}
		sources = append(sources, s)
	}
	return sources, nil
}

// isNamed reports whether the manifest names the plugin: other folders may have Go and YAML files, too.
func isNamed(s *build.Source) bool {
	manifest, err := os.ReadFile(s.Manifest)
	return err == nil && regexp.MustCompile(`(?m)^name:\s*["']?`+regexp.QuoteMeta(s.Name)+`\b`).Match(manifest)
}

const (
	// sourceQuiet is how long the sources must not change before a build: an editor saves in several steps.
	sourceQuiet = 50 * time.Millisecond
	// sourceLook is the poll interval: network file systems do not notify.
	sourceLook = 2 * time.Second
	// sourceFolders bounds the watched folders; others are polled.
	sourceFolders = 1000
)

// rebuilder builds one plugin whenever its source changes. A notification only triggers a look, which compares the files
// with those of the last build: so a change during a build is not missed.
type rebuilder struct {
	dir, name, to string
	builder       *build.Builder
	logger        hclog.Logger

	notify *fsnotify.Watcher // nil if the system has no more
}

// run builds until ctx ends.
func (r *rebuilder) run(ctx context.Context) {
	var events <-chan fsnotify.Event
	var errs <-chan error
	if notify, err := fsnotify.NewWatcher(); err == nil {
		r.notify, events, errs = notify, notify.Events, notify.Errors
		defer func() { _ = notify.Close() }()
	}
	ticker := time.NewTicker(sourceLook)
	defer ticker.Stop()
	quiet := time.NewTimer(0) // the first look is at once
	defer quiet.Stop()
	var built map[string]stamp
	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
			quiet.Reset(sourceQuiet)
			continue
		case err := <-errs:
			r.logger.Debug("lost file events; polling the sources", "error", err)
			quiet.Reset(sourceQuiet)
			continue
		case <-quiet.C:
		case <-ticker.C:
		}
		seen := r.look()
		if built != nil && maps.Equal(seen, built) {
			continue
		}
		r.build(ctx, built != nil)
		built = seen
		quiet.Reset(sourceQuiet) // for changes during the build
	}
}

// build builds the plugin, and logs the outcome.
func (r *rebuilder) build(ctx context.Context, again bool) {
	begun := time.Now()
	s, err := build.Read(r.dir)
	if err == nil && s.Name != r.name {
		err = fmt.Errorf("the manifest names the plugin %s now: restart `quern dev`", s.Name)
	}
	if err == nil {
		_, err = r.builder.Build(ctx, s, r.to)
	}
	switch {
	case ctx.Err() != nil:
	case err != nil && again:
		r.logger.Error("cannot rebuild "+r.name+"; the last version keeps running", "error", err)
	case err != nil:
		r.logger.Error("cannot build "+r.name, "error", err)
	case again:
		r.logger.Info(fmt.Sprintf("rebuilt %s in %s", r.name, time.Since(begun).Round(10*time.Millisecond)))
	default:
		r.logger.Info(fmt.Sprintf("built %s in %s", r.name, time.Since(begun).Round(10*time.Millisecond)), "source", r.dir)
	}
}

// stamp identifies a state of a file.
type stamp struct {
	size     int64
	modified time.Time
}

// look lists the files of a source, without those that cannot be read, and watches its folders.
func (r *rebuilder) look() map[string]stamp {
	seen := map[string]stamp{}
	folders := 0
	_ = filepath.WalkDir(r.dir, func(path string, entry fs.DirEntry, err error) error {
		switch name := filepath.Base(path); {
		case err != nil:
			return nil //nolint:nilerr // as the comment above says
		case entry.IsDir() && path != r.dir && build.Foreign(path, r.to):
			return filepath.SkipDir // it has no source of the author's
		case entry.IsDir():
			if folders++; r.notify != nil && folders <= sourceFolders {
				_ = r.notify.Add(path) // on an error the ticker finds its changes
			}
			return nil
		case strings.HasPrefix(name, ".") || strings.HasPrefix(name, "#") || strings.HasSuffix(name, "~") ||
			strings.HasSuffix(name, moduleSuffix) || name == "4913": // vim's test file
			return nil // editors or builds made it
		}
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			seen[path] = stamp{info.Size(), info.ModTime()}
		}
		return nil
	})
	return seen
}
