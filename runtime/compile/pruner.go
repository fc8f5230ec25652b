package compile

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// How much the cache keeps, and for how long.
const (
	maxUnused = 30 * 24 * time.Hour
	maxCached = 1 << 30 // bytes
	// minUnused is the minimum time for which an entry is kept after its last use: another process may be about to load
	// it. A process that uses an entry records the use every pruneInterval.
	minUnused     = time.Hour
	pruneInterval = minUnused / 2
)

// entry is a file of machine code with its sum file, both as paths in the cache. Either file can be missing: then its
// path is "", or names no file.
type entry struct {
	sum, code string
	used      time.Time // last use
	size      int64     // of the machine code, in bytes
}

// prune removes old entries, and the stages of processes that died. It logs an error if it cannot remove some of them,
// and stops when ctx ends.
func (d *directory) prune(ctx context.Context, now time.Time) {
	removed, size, err := d.evict(ctx, now)
	err = errors.Join(err, removeStages(d.dir))
	if removed > 0 {
		d.compiler.cfg.Logger.Debug("compile cache pruned", "removed", removed, "size", size)
	}
	if err != nil && ctx.Err() == nil {
		d.compiler.cfg.Logger.Warn("compile cache was not pruned entirely", "cache", d.dir, "error", err)
	}
}

// evict removes entries, also of other versions: entries without a sum file, entries that were not used for maxUnused,
// and the least recently used entries while the cache exceeds maxCached. It keeps entries that were used within
// minUnused.
func (d *directory) evict(ctx context.Context, now time.Time) (removed int, size int64, err error) {
	entries, err := d.list(ctx)
	if err != nil {
		return 0, 0, err
	}
	slices.SortFunc(entries, func(a, b entry) int { return a.used.Compare(b.used) })
	for _, e := range entries {
		size += e.size
	}
	for _, e := range entries {
		unused := now.Sub(e.used)
		if ctx.Err() != nil || unused < minUnused {
			break
		}
		if e.sum != "" && unused < maxUnused && size <= maxCached {
			continue
		}
		if failure := errors.Join(d.remove(e.sum), d.remove(e.code)); failure != nil {
			err = errors.Join(err, failure)
			continue
		}
		size -= e.size
		removed++
	}
	return removed, size, err
}

// list returns the entries that have a sum file, and the machine code that has none.
func (d *directory) list(ctx context.Context) (entries []entry, err error) {
	files := os.DirFS(d.dir)
	sums, err := fs.Glob(files, path.Join(sumsDir, "*", "*"))
	if err != nil {
		return nil, err
	}
	codes, err := fs.Glob(files, wazeroDirs+"/*")
	if err != nil {
		return nil, err
	}
	known := map[string]bool{}
	for _, file := range append(sums, codes...) {
		info, err := fs.Stat(files, file)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil || info.IsDir() || known[file]:
			continue // gone meanwhile, not an entry, or listed with its sum file
		}
		e := entry{code: file, used: info.ModTime()}
		if strings.HasPrefix(file, sumsDir) {
			e.sum, e.code = file, ""
			if name, _, err := readSum(filepath.Join(d.dir, file)); err == nil {
				e.code = filepath.ToSlash(name)
				known[e.code] = true
			}
			if code, err := fs.Stat(files, e.code); err == nil {
				e.size = code.Size()
			}
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// remove removes a file of the cache. It does nothing if the file is gone or name is empty.
func (d *directory) remove(name string) error {
	if name == "" {
		return nil
	}
	if err := os.Remove(filepath.Join(d.dir, filepath.FromSlash(name))); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// removeStages removes stages that are older than maxStage: their processes have died. Another process may be using a
// younger stage.
func removeStages(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		info, infoErr := entry.Info()
		if !strings.HasPrefix(entry.Name(), stagePrefix) || infoErr != nil || time.Since(info.ModTime()) < maxStage {
			continue
		}
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, entry.Name())))
	}
	return err
}
