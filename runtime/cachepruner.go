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
	// minUnused is how long an entry is kept in any case: another process may be about to load it, or serves it and
	// says so every pruneInterval.
	minUnused     = time.Hour
	pruneInterval = minUnused / 2
)

// cacheEntry is an entry of the cache with its sum file, both by their paths in the cache.
type cacheEntry struct {
	sum, entry string
	used       time.Time
	size       int64
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

// evict removes entries, also those of other versions: first those that were not used for maxUnused, then the least
// recently used ones until the rest is at most maxCached.
func (c *diskCache) evict(ctx context.Context, now time.Time) (removed int, size int64, err error) {
	found, err := c.list(ctx)
	if err != nil {
		return 0, 0, err
	}
	slices.SortFunc(found, func(a, b cacheEntry) int { return a.used.Compare(b.used) })
	known := make(map[string]bool, len(found))
	for _, entry := range found {
		size += entry.size
		known[entry.entry] = true
	}
	for _, entry := range found {
		unused := now.Sub(entry.used)
		if ctx.Err() != nil || unused < minUnused || unused < maxUnused && size <= maxCached {
			break
		}
		if gone := errors.Join(c.remove(entry.sum), c.remove(entry.entry)); gone != nil {
			err = errors.Join(err, gone)
			continue
		}
		size -= entry.size
		removed++
	}
	return removed, size, errors.Join(err, c.removeOrphans(ctx, known, now))
}

// list finds the entries by their sum files. One whose sum file is damaged has no entry and no size.
func (c *diskCache) list(ctx context.Context) ([]cacheEntry, error) {
	files := os.DirFS(c.dir)
	sums, err := fs.Glob(files, path.Join(sumsDir, "*", "*"))
	if err != nil {
		return nil, err
	}
	var found []cacheEntry
	for _, sum := range sums {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		info, err := fs.Stat(files, sum)
		if err != nil || info.IsDir() {
			continue // gone meanwhile, or none of ours
		}
		entry := cacheEntry{sum: sum, used: info.ModTime()}
		text, _ := fs.ReadFile(files, sum)
		if name, _, ok := parseSum(text); ok {
			entry.entry = filepath.ToSlash(name)
			if code, err := fs.Stat(files, entry.entry); err == nil {
				entry.size = code.Size()
			}
		}
		found = append(found, entry)
	}
	return found, nil
}

// removeOrphans removes machine code without a sum file, and what wazero has not finished.
func (c *diskCache) removeOrphans(ctx context.Context, known map[string]bool, now time.Time) error {
	files := os.DirFS(c.dir)
	codes, err := fs.Glob(files, wazeroDirs+"/*")
	for _, code := range codes {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if known[code] {
			continue
		}
		if info, gone := fs.Stat(files, code); gone == nil && !info.IsDir() && now.Sub(info.ModTime()) >= minUnused {
			err = errors.Join(err, c.remove(code))
		}
	}
	return err
}

// remove removes a file of the cache that may be gone, or unknown.
func (c *diskCache) remove(name string) error {
	if name == "" {
		return nil
	}
	if err := os.Remove(filepath.Join(c.dir, filepath.FromSlash(name))); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// removeStages removes what processes left behind that died while they compiled. Younger stages may
// be in use by another process.
func removeStages(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), stagePrefix) {
			continue
		}
		info, err := entry.Info()
		if err != nil || time.Since(info.ModTime()) < maxStage {
			continue // gone meanwhile, or young
		}
		if err := os.RemoveAll(filepath.Join(dir, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}
