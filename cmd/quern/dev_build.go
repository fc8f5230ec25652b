package main

import (
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

	"github.com/fsnotify/fsnotify"
	"github.com/hashicorp/go-hclog"
)

// devSources are the folders that a `quern dev` builds plugins from. Where the current one is some other folder, or that
// of a plugin that cannot be built, it is none of them; tell is told of the latter.
func devSources(folders []string, tell func(string)) ([]source, error) {
	if len(folders) == 0 {
		s, err := readSource(".")
		switch {
		case err == nil && s.says():
			return []source{s}, nil
		case err != nil && saysPlugin("."):
			tell("the current folder is not built: " + err.Error())
		}
		return nil, nil
	}
	var sources []source
	for _, folder := range folders {
		s, err := readSource(folder)
		if err != nil {
			return nil, err
		}
		if i := slices.IndexFunc(sources, func(other source) bool { return other.name == s.name }); i >= 0 {
			return nil, usagef("--source %q: %s has the plugin %s as well: name each once", folder, sources[i].dir, s.name)
		}
		sources = append(sources, s)
	}
	return sources, nil
}

// says tells whether the folder says itself that it holds a plugin: there may be Go files and a YAML file in any.
func (s *source) says() bool {
	manifest, err := os.ReadFile(s.manifest)
	return err == nil && regexp.MustCompile(`(?m)^name:\s*["']?`+regexp.QuoteMeta(s.name)+`\b`).Match(manifest)
}

// saysPlugin tells whether any manifest of a folder says itself that it is one.
func saysPlugin(dir string) bool {
	manifests, err := filepath.Glob(filepath.Join(escapeGlob(dir), "*"+manifestSuffix))
	return err == nil && slices.ContainsFunc(manifests, func(path string) bool {
		s := source{name: strings.TrimSuffix(filepath.Base(path), manifestSuffix), manifest: path}
		return s.says()
	})
}

const (
	// sourceQuiet is how long nothing has to change until a plugin is built: an editor saves a file in several steps, and
	// several files at once.
	sourceQuiet = 50 * time.Millisecond
	// sourceLook is how often source is looked at without a word of the system's, which has none of network file systems.
	sourceLook = 2 * time.Second
	// sourceFolders bounds how many folders are watched; those behind are looked at.
	sourceFolders = 1000
)

// rebuilder builds one plugin whenever its source changes. What the system says of changes is only when to look: what was
// built is compared with what is there, so that no change is missed that comes while a compiler runs.
type rebuilder struct {
	dir, name, to string
	builder       *builder
	logger        hclog.Logger

	notify *fsnotify.Watcher // nil if the system has none to give
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
	quiet := time.NewTimer(0) // so that the first look is at once
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
			r.logger.Debug("events may have been lost, looking at everything", "error", err)
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
		quiet.Reset(sourceQuiet) // for what was saved meanwhile
	}
}

// build builds the plugin, and says what became of it.
func (r *rebuilder) build(ctx context.Context, again bool) {
	begun := time.Now()
	s, err := readSource(r.dir)
	if err == nil && s.name != r.name {
		err = fmt.Errorf("the manifest names the plugin %s now: start `quern dev` anew", s.name)
	}
	if err == nil {
		_, err = r.builder.build(ctx, s, r.to)
	}
	switch {
	case ctx.Err() != nil:
	case err != nil && again:
		r.logger.Error("cannot rebuild "+r.name+", the last version goes on", "error", err)
	case err != nil:
		r.logger.Error("cannot build "+r.name, "error", err)
	case again:
		r.logger.Info(fmt.Sprintf("rebuilt %s in %s", r.name, time.Since(begun).Round(10*time.Millisecond)))
	default:
		r.logger.Info(fmt.Sprintf("built %s in %s", r.name, time.Since(begun).Round(10*time.Millisecond)), "source", r.dir)
	}
}

// stamp tells one state of a file from another.
type stamp struct {
	size     int64
	modified time.Time
}

// look finds the files that a plugin may be built from, and has its folders watched. What cannot be read is not there.
func (r *rebuilder) look() map[string]stamp {
	seen := map[string]stamp{}
	folders := 0
	_ = filepath.WalkDir(r.dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil //nolint:nilerr // as the comment above says
		case entry.IsDir() && path != r.dir && r.passesOver(path):
			return filepath.SkipDir
		case entry.IsDir():
			if folders++; r.notify != nil && folders <= sourceFolders {
				_ = r.notify.Add(path) // else the ticker finds what changes in it
			}
			return nil
		case isLeftover(entry.Name()):
			return nil
		}
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			seen[path] = stamp{info.Size(), info.ModTime()}
		}
		return nil
	})
	return seen
}

// passesOver tells folders that hold no source of the author's.
func (r *rebuilder) passesOver(folder string) bool {
	name := filepath.Base(folder)
	return strings.HasPrefix(name, ".") || name == "vendor" || name == "node_modules" || sameFolder(folder, r.to)
}

// isLeftover tells what editors and builds put beside source.
func isLeftover(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "#") || strings.HasSuffix(name, "~") ||
		strings.HasSuffix(name, moduleSuffix) || name == "4913" // with which vim tries whether it may write
}
