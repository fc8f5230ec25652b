package runtime

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"
)

// What the cache keeps.
const (
	maxUnused = 30 * 24 * time.Hour
	maxCached = 1 << 30 // bytes
	// wazeroDirs matches the folders in which wazero keeps machine code, one for each version.
	wazeroDirs = "wazero-*"
	// minUnused is how long an entry is kept in any case: another process may be about to load it.
	minUnused = time.Hour
)

// cached is an entry of the cache with its sum file, both by their paths in the cache.
type cached struct {
	sum, entry string
	used       time.Time
	size       int64
}

// prune removes from the cache, and from what other versions have left in it, the entries that have not been
// used for long, and then the oldest until the rest is small enough. What cannot be removed is logged.
func (c *diskCache) prune(now time.Time) {
	found, err := c.list()
	slices.SortFunc(found, func(a, b cached) int { return a.used.Compare(b.used) })
	total, removed := int64(0), 0
	for _, entry := range found {
		total += entry.size
	}
	for _, entry := range found {
		unused := now.Sub(entry.used)
		if unused < minUnused || unused < maxUnused && total <= maxCached {
			break
		}
		if gone := errors.Join(c.remove(entry.sum), c.remove(entry.entry)); gone != nil {
			err = errors.Join(err, gone)
			continue
		}
		total -= entry.size
		removed++
	}
	err = errors.Join(err, c.removeOrphans(found, now))
	if removed > 0 {
		c.logger.Debug("compile cache pruned", "removed", removed, "size", total)
	}
	if err != nil {
		c.logger.Warn("compile cache was not pruned entirely", "cache", c.dir, "error", err)
	}
}

// list finds the entries by their sum files. One whose sum file is damaged has no entry and no size.
func (c *diskCache) list() ([]cached, error) {
	files := os.DirFS(c.dir)
	sums, err := fs.Glob(files, path.Join(sumsDir, "*", "*"))
	if err != nil {
		return nil, err
	}
	var found []cached
	for _, sum := range sums {
		info, err := fs.Stat(files, sum)
		if err != nil || info.IsDir() {
			continue // gone meanwhile, or none of ours
		}
		entry := cached{sum: sum, used: info.ModTime()}
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
func (c *diskCache) removeOrphans(found []cached, now time.Time) error {
	files := os.DirFS(c.dir)
	codes, err := fs.Glob(files, wazeroDirs+"/*")
	for _, code := range codes {
		if slices.ContainsFunc(found, func(entry cached) bool { return entry.entry == code }) {
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
