package plugins

import (
	"context"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/hashicorp/go-hclog"
)

// The pace of scans.
const (
	scanInterval = time.Second            // between two scans if nothing wakes the reconciler
	quietTime    = 100 * time.Millisecond // from the last event to the scan
	busyTime     = 500 * time.Millisecond // from the first event to the scan, at most
)

// watcher wakes the reconciler when something may have changed. Where the system reports no changes (network file
// systems, no watches left), only the reconciler's ticker starts scans.
type watcher struct {
	dir    string
	logger hclog.Logger

	notify *fsnotify.Watcher // nil if the system cannot create one
	wake   chan struct{}     // capacity 1; never closed

	watched map[string]fs.FileInfo // by path; only the reconciler's goroutine touches it
	// The directory's path if its parent is watched only to notice that the directory appears or is replaced; else nil.
	entry atomic.Pointer[string]
}

func newWatcher(dir string, logger hclog.Logger) *watcher {
	w := &watcher{dir: dir, logger: logger, wake: make(chan struct{}, 1), watched: map[string]fs.FileInfo{}}
	var err error
	if w.notify, err = fsnotify.NewWatcher(); err != nil {
		logger.Warn("cannot watch for changes, polling instead", "every", scanInterval, "error", err)
	}
	return w
}

// run turns events into wakes until ctx ends.
func (w *watcher) run(ctx context.Context) {
	if w.notify == nil {
		return
	}
	w.gather(ctx, w.notify.Events, w.notify.Errors)
	if err := w.notify.Close(); err != nil {
		w.logger.Debug("cannot close the watcher", "error", err)
	}
}

// gather wakes the reconciler when no event has come for quietTime, so that it does not read half-written files, and
// at the latest busyTime after the first event, so that one busy file cannot hold up a scan.
func (w *watcher) gather(ctx context.Context, events <-chan fsnotify.Event, errs <-chan error) {
	var first time.Time
	var quiet <-chan time.Time
	postpone := func() {
		now := time.Now()
		if first.IsZero() {
			first = now
		}
		quiet = time.After(min(quietTime, busyTime-now.Sub(first)))
	}
	for {
		select {
		case <-ctx.Done():
			return
		case event, open := <-events:
			if !open {
				return
			}
			entry := w.entry.Load()
			// skip events of the directory's neighbors
			if entry == nil || event.Name == *entry || filepath.Dir(event.Name) != filepath.Dir(*entry) {
				postpone()
			}
		case err, open := <-errs:
			if !open {
				return
			}
			w.logger.Debug("change events may have been lost, scanning everything", "error", err)
			postpone()
		case <-quiet:
			first = time.Time{}
			poke(w.wake)
		}
	}
}

// follow watches the folders in which the scan found files, and the directory's parent. It reports whether there is a
// folder that was not watched when the scan was made.
func (w *watcher) follow(s *scan) bool {
	if w.notify == nil {
		return false
	}
	wanted := maps.Clone(s.folders)
	w.entry.Store(nil)
	if abs, err := filepath.Abs(w.dir); err == nil {
		if folder, err := filepath.EvalSymlinks(filepath.Dir(abs)); err == nil {
			if _, inside := wanted[folder]; !inside {
				entry := filepath.Join(folder, filepath.Base(abs))
				w.entry.Store(&entry)
				wanted[folder] = struct{}{}
			}
		}
	}
	return w.set(wanted)
}

// set watches exactly the wanted folders. A watch belongs to an inode: set watches a path again if it now leads to
// another folder, or if the watch ended with its folder.
func (w *watcher) set(wanted map[string]struct{}) (added bool) {
	alive := w.notify.WatchList()
	for path, info := range w.watched {
		_, keep := wanted[path]
		now, err := os.Stat(path)
		if keep && err == nil && os.SameFile(info, now) && slices.Contains(alive, path) {
			continue
		}
		delete(w.watched, path)
		// Remove fails if the watch has ended by itself. Nothing is left to do then.
		_ = w.notify.Remove(path)
	}
	for path := range wanted {
		if _, watched := w.watched[path]; watched {
			continue
		}
		info, err := os.Stat(path)
		if err == nil {
			err = w.notify.Add(path)
		}
		if err != nil {
			w.logger.Debug("cannot watch a folder, polling instead", "folder", path, "error", err)
			continue
		}
		w.watched[path] = info
		added = true
	}
	return added
}
