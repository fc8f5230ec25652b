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
	scanInterval = time.Second            // between two scans that nothing has asked for
	quietTime    = 100 * time.Millisecond // without an event, before a scan
	busyTime     = 500 * time.Millisecond // from the first event to the scan, however many follow
)

// watcher wakes the reconciler when something may have changed. Where the system cannot tell (network file systems, no
// watches left) it stays silent, and the reconciler's ticker is all there is.
type watcher struct {
	dir    string
	logger hclog.Logger

	notify *fsnotify.Watcher // nil if the system has none to give
	wake   chan struct{}     // capacity 1; never closed

	watched map[string]fs.FileInfo // by path; only the reconciler's goroutine touches it
	entry   atomic.Pointer[string] // the directory's path, if its parent is watched only to tell when it appears or is replaced
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

// gather wakes the reconciler when no event came for a while, so that it does not read what is half
// written; and when events have come for too long, so that one busy file cannot hold up a scan.
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
			if entry == nil || event.Name == *entry || filepath.Dir(event.Name) != filepath.Dir(*entry) { // else it is a neighbor
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

// follow watches the folders in which the scan found files, and the one that holds the directory.
// It reports whether there is a folder that was not watched when the scan was made.
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

// set makes the watches those of the wanted folders. A watch belongs to an inode: where a path has come
// to stand for another folder, or its watch ended with the folder, it is set anew.
func (w *watcher) set(wanted map[string]struct{}) (added bool) {
	alive := w.notify.WatchList()
	for path, info := range w.watched {
		_, keep := wanted[path]
		now, err := os.Stat(path)
		if keep && err == nil && os.SameFile(info, now) && slices.Contains(alive, path) {
			continue
		}
		delete(w.watched, path)
		// It fails if the watch has ended by itself, and then there is nothing left to do.
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
