package dev

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/cmd/quern/build"
	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/plugins/manifest"
)

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
