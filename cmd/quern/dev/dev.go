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
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
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
	"github.com/quern-project/quern/sdk/queue"
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

// endedLine describes the end of a task's run in one line, and a failure with the places in the source below it.
func endedLine(s show.Screen, e host.Ended) string {
	line := fmt.Sprintf("%s %s", show.OneLine(e.Queue), shortTime(e.Took))
	if e.Status > 0 && e.Failure == nil { // a failure names the status
		line = fmt.Sprintf("%s %d, %s", show.OneLine(e.Queue), e.Status, shortTime(e.Took))
	}
	return headLine(s, e, line) + frameLines(e.Failure)
}

// maxFrameLines is how many lines of a stack are shown of a failure: `quern task show` has them all.
const maxFrameLines = 10

// frameLines returns the stack of a failure, each line after a line break.
func frameLines(f *queue.Failure) (text string) {
	if f == nil {
		return ""
	}
	frames := f.Backtrace
	if _, more, found := strings.Cut(f.Message, "\n"); found {
		frames = strings.Split(strings.TrimSpace(more), "\n")
	}
	head := f.Headline()
	if !slices.ContainsFunc(frames, func(frame string) bool { return !strings.Contains(head, frame) }) {
		return "" // the line has them all
	}
	for _, frame := range frames[:min(len(frames), maxFrameLines)] {
		text += "\n    " + show.Escape(strings.TrimRight(frame, " \r"))
	}
	if len(frames) > maxFrameLines {
		text += "\n    …"
	}
	return text
}

func headLine(s show.Screen, e host.Ended, line string) string {
	switch {
	case e.Failure == nil:
		return s.Code("32", "✓") + " " + line
	case e.PutOff:
		return fmt.Sprintf("%s %s %s: (put off) %s: it runs again later, without counting an attempt",
			s.Code("33", "↻"), line, show.OneLine(e.ID), show.OneLine(e.Failure.Headline()))
	case e.Again:
		return fmt.Sprintf("%s %s %s: (%s) %s: it will be tried again", s.Code("33", "↻"), line, show.OneLine(e.ID),
			e.Failure.Word(), show.OneLine(e.Failure.Headline()))
	}
	return fmt.Sprintf("%s %s %s: (%s) %s", s.Code("31", "✗"), line, show.OneLine(e.ID), e.Failure.Word(),
		show.OneLine(e.Failure.Headline()))
}

// shortTime formats how long a task took.
func shortTime(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", d.Seconds()*1000)
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
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

const (
	// sourceQuiet is how long the sources must be unchanged before a build, because editors save in several steps.
	sourceQuiet = 50 * time.Millisecond
	// sourceLook is the interval at which sources are polled, because network file systems do not notify.
	sourceLook = 2 * time.Second
	// sourceFolders is the maximum number of folders that are watched. Further folders are only polled.
	sourceFolders = 1000
)

// unbuilt has the plugins whose source could not be built the last time, for the host to publish.
type unbuilt struct {
	mu   sync.Mutex
	list map[string]plugins.Status // by name; guarded by mu
}

// set records how a build ended: why it failed, or "".
func (u *unbuilt) set(name, why string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if delete(u.list, name); why != "" {
		u.list[name] = plugins.Status{Plugin: name, State: plugins.StateUnbuilt, Error: why}
	}
}

// all lists the plugins, sorted by name.
func (u *unbuilt) all() (list []plugins.Status) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(u.list)) {
		list = append(list, u.list[name])
	}
	return list
}

// rebuilder builds a plugin whenever its source changes. A notification only triggers a comparison of the files with
// their state before the last build, so that no change during a build is missed.
type rebuilder struct {
	dir, name, to string
	tests         func() func(path string) bool // see build.Source.Tests
	builder       *build.Builder
	messages      *bytes.Buffer // of the compilers in the last build
	logger        hclog.Logger
	unbuilt       *unbuilt
	built         map[string]build.Stamp // state of the source at the last build; nil before the first one
	broken        bool                   // the last build failed

	checking  sync.WaitGroup     // a check of types that runs
	stopCheck context.CancelFunc // ends the last check of types; nil before the first one
	mistyped  []string           // the type errors that were told last; only the check that runs may use it

	notify *fsnotify.Watcher // nil if the system has no watcher left: then the source is polled
}

// module is the path of the module that is built.
func (r *rebuilder) module() string { return filepath.Join(r.to, r.name+manifest.ModuleSuffix) }

// first builds the plugin before run.
func (r *rebuilder) first(ctx context.Context) {
	r.built = r.look()
	r.build(ctx, false, "")
}

// run builds the plugin at the start and after each change, until ctx ends.
func (r *rebuilder) run(ctx context.Context) {
	var events <-chan fsnotify.Event
	var errs <-chan error
	if notify, err := fsnotify.NewWatcher(); err == nil {
		r.notify, events, errs = notify, notify.Events, notify.Errors
		defer func() { _ = notify.Close() }()
	}
	defer r.endCheck()
	ticker := time.NewTicker(sourceLook)
	defer ticker.Stop()
	quiet := time.NewTimer(0) // first look at the files at once
	defer quiet.Stop()
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
		if r.built != nil && maps.Equal(seen, r.built) {
			continue
		}
		r.build(ctx, r.built != nil, changed(r.built, seen))
		r.built = seen
		quiet.Reset(sourceQuiet) // for changes during the build
	}
}

// changed names a file of source that differs between two states of the files; "" if none does. It passes over other
// files: if one was the log of `quern dev` itself, a line about it would trigger builds for ever.
func changed(before, now map[string]build.Stamp) string {
	for _, path := range slices.Sorted(maps.Keys(now)) {
		if before[path] != now[path] && slices.Contains(sourceSuffixes, filepath.Ext(path)) {
			return filepath.Base(path)
		}
	}
	return ""
}

// sourceSuffixes are the endings of the files that people write for a plugin.
var sourceSuffixes = []string{
	".go", ".mod", ".c", ".h", ".py", ".js", ".mjs", ".ts", ".json", ".rs", ".toml", ".yaml", ".yml",
}

// build builds the plugin and logs the outcome. again is false for the first build. file is one that has changed since
// the build before, or "".
func (r *rebuilder) build(ctx context.Context, again bool, file string) {
	r.endCheck()
	begun, module := time.Now(), r.module()
	before, _ := os.ReadFile(module)
	if !again {
		r.logger.Info("building " + r.name) // a first build can take a compiler a minute
	} else if file != "" {
		r.logger.Info("rebuilding "+r.name, "changed", file)
	}
	mended := r.broken
	r.messages.Reset()
	s, err := build.Read(r.dir)
	if err == nil && s.Name != r.name {
		err = fmt.Errorf("the manifest names the plugin %s now: restart `quern dev`", s.Name)
	}
	if err == nil {
		_, err = r.builder.Build(ctx, s, r.to)
	}
	if ctx.Err() == nil {
		why := ""
		if err != nil {
			dir, _ := filepath.Abs(r.dir) // others read it elsewhere
			source := &build.Source{Dir: cmp.Or(dir, r.dir)}
			why = fmt.Sprintf("%s: `quern plugin build %s` shows all of it", source.Brief(err, r.messages.String()),
				cli.ShellWord(source.Dir))
		}
		r.unbuilt.set(r.name, why)
		r.broken = err != nil
	}
	same := false // if so nothing is told, else a log in the folder would trigger builds for ever
	if now, _ := os.ReadFile(module); again && err == nil {
		same = bytes.Equal(now, before)
	}
	if err == nil {
		defer r.check(ctx, s, same)
	}
	switch {
	case ctx.Err() != nil:
	case err != nil && again:
		r.logger.Error("cannot rebuild "+r.name+"; the last version keeps running", "error", err)
	case err != nil:
		r.logger.Error("cannot build "+r.name, "error", err)
	case same && mended:
		r.logger.Info(r.name + " builds again, and is as before")
	case same:
		r.logger.Debug(r.name + " is as before")
	case again:
		r.logger.Info(fmt.Sprintf("rebuilt %s in %s", r.name, time.Since(begun).Round(10*time.Millisecond)))
	default:
		r.logger.Info(fmt.Sprintf("built %s in %s", r.name, time.Since(begun).Round(10*time.Millisecond)), "source", r.dir)
	}
}

const (
	// checkTime bounds a check of types.
	checkTime = time.Minute
	// maxTypeErrors is the maximum number of type errors that are told of one check.
	maxTypeErrors = 10
)

// check starts a check of the types of a source in TypeScript, beside what runs, and tells the errors as warnings. If
// the module is the same as before, it tells only other errors than last time.
func (r *rebuilder) check(ctx context.Context, s *build.Source, same bool) {
	ctx, r.stopCheck = context.WithTimeout(ctx, checkTime)
	r.checking.Go(func() {
		found, err := build.TypeErrors(ctx, s)
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			r.logger.Warn(fmt.Sprintf("the types of %s are not checked: tsc took longer than %s", r.name, checkTime))
			return
		case ctx.Err() != nil: // the next build ended it
			return
		case err != nil:
			r.logger.Warn("the types of "+r.name+" are not checked: tsc does not run", "error", err)
			return
		case same && slices.Equal(found, r.mistyped):
			return
		case len(found) == 0 && len(r.mistyped) > 0:
			r.logger.Info("the types of " + r.name + " are right again")
		}
		r.mistyped = found
		for _, text := range found[:min(len(found), maxTypeErrors)] {
			r.logger.Warn(r.name + ": " + text)
		}
		if left := len(found) - maxTypeErrors; left > 0 {
			r.logger.Warn(fmt.Sprintf("%s: %d type errors more: run npx tsc --noEmit in %s", r.name, left, s.Dir))
		}
	})
}

// endCheck ends the check of types that runs.
func (r *rebuilder) endCheck() {
	if r.stopCheck != nil {
		r.stopCheck()
	}
	r.checking.Wait()
}

// look returns the states of the source's files except tests, and watches its folders.
func (r *rebuilder) look() map[string]build.Stamp {
	folders := 0
	files := build.Files(r.dir, r.to, func(path string) {
		if folders++; r.notify != nil && folders <= sourceFolders {
			_ = r.notify.Add(path) // if this fails, polling finds the folder's changes
		}
	})
	isTest := r.tests()
	maps.DeleteFunc(files, func(path string, _ build.Stamp) bool { return isTest(path) })
	return files
}
