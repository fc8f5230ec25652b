package runtime

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

// What the cache keeps.
const (
	maxUnused = 30 * 24 * time.Hour
	maxCached = 1 << 30 // bytes
	// minUnused is how long an entry is kept in any case: another process may be about to load it, or use it, which it
	// records every pruneInterval.
	minUnused     = time.Hour
	pruneInterval = minUnused / 2
)

// cacheEntry is machine code in the cache with its sum file, both by their paths in the cache. Either may be missing.
type cacheEntry struct {
	sum, code string
	used      time.Time
	size      int64
}

// prune removes what nobody needs from the cache: old entries, and the stages of processes that died. It logs what it
// cannot remove, and stops when ctx ends.
func (c *diskCache) prune(ctx context.Context, now time.Time) {
	removed, size, err := c.evict(ctx, now)
	err = errors.Join(err, removeStages(c.dir))
	if removed > 0 {
		c.logger.Debug("compile cache pruned", "removed", removed, "size", size)
	}
	if err != nil && ctx.Err() == nil {
		c.logger.Warn("compile cache was not pruned entirely", "cache", c.dir, "error", err)
	}
}

// evict removes entries, also those of other versions: first those without a sum file and those that were not used for
// maxUnused, then the least recently used ones until the rest is at most maxCached.
func (c *diskCache) evict(ctx context.Context, now time.Time) (removed int, size int64, err error) {
	found, err := c.list(ctx)
	if err != nil {
		return 0, 0, err
	}
	slices.SortFunc(found, func(a, b cacheEntry) int { return a.used.Compare(b.used) })
	for _, entry := range found {
		size += entry.size
	}
	for _, entry := range found {
		unused := now.Sub(entry.used)
		if ctx.Err() != nil || unused < minUnused {
			break
		}
		if entry.sum != "" && unused < maxUnused && size <= maxCached {
			continue
		}
		if gone := errors.Join(c.remove(entry.sum), c.remove(entry.code)); gone != nil {
			err = errors.Join(err, gone)
			continue
		}
		size -= entry.size
		removed++
	}
	return removed, size, err
}

// list finds the entries by their sum files, and the machine code without one.
func (c *diskCache) list(ctx context.Context) (found []cacheEntry, err error) {
	files := os.DirFS(c.dir)
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
			continue // gone meanwhile, none of ours, or found by its sum file
		}
		entry := cacheEntry{code: file, used: info.ModTime()}
		if strings.HasPrefix(file, sumsDir) {
			entry.sum, entry.code = file, ""
			if name, _, err := readSum(filepath.Join(c.dir, file)); err == nil {
				entry.code = filepath.ToSlash(name)
				known[entry.code] = true
			}
			if code, err := fs.Stat(files, entry.code); err == nil {
				entry.size = code.Size()
			}
		}
		found = append(found, entry)
	}
	return found, nil
}

// remove removes a file of the cache. It may be gone, or have no name.
func (c *diskCache) remove(name string) error {
	if name == "" {
		return nil
	}
	if err := os.Remove(filepath.Join(c.dir, filepath.FromSlash(name))); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// removeStages removes the stages of processes that died. Another process may be using a younger one.
func removeStages(dir string) error {
	entries, err := os.ReadDir(dir)
	for _, entry := range entries {
		info, gone := entry.Info()
		if !strings.HasPrefix(entry.Name(), stagePrefix) || gone != nil || time.Since(info.ModTime()) < maxStage {
			continue
		}
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, entry.Name())))
	}
	return err
}
