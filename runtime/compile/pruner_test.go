package compile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// pruned makes a cache of entries, each with its size and the time since it was used, opens it, and returns
// which are left.
func pruned(t *testing.T, entries map[string]struct {
	size   int64
	unused time.Duration
},
) (left []string, log string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "cache")
	makeEntries(t, dir, entries)
	_, buffer := setup(t, Config{Dir: dir})
	for _, path := range entriesOf(t, dir) {
		name := filepath.Base(path)
		left = append(left, name)
		_, err := os.Stat(filepath.Join(dir, sumsDir, "v0-test", name))
		if known := err == nil; known == strings.HasPrefix(name, "fresh") {
			t.Errorf("%s has a sum file: %v", name, known)
		}
	}
	slices.Sort(left)
	return left, buffer.String()
}

// makeEntries puts entries into a cache.
func makeEntries(t *testing.T, dir string, entries map[string]struct {
	size   int64
	unused time.Duration
},
) {
	t.Helper()
	now := time.Now()
	for name, entry := range entries {
		code := filepath.Join("wazero-v0-test", name)
		sum := filepath.Join(dir, sumsDir, "v0-test", name)
		for path, text := range map[string]string{filepath.Join(dir, code): "", sum: code + " 00\n"} {
			if err := os.MkdirAll(filepath.Dir(path), ownerOnly); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(path, now.Add(-entry.unused), now.Add(-entry.unused)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Truncate(filepath.Join(dir, code), entry.size); err != nil { // takes no room on the disk
			t.Fatal(err)
		}
		if err := os.Chtimes(filepath.Join(dir, code), now, now.Add(-2*maxUnused)); err != nil { // the sum file counts
			t.Fatal(err)
		}
		if strings.HasPrefix(name, "orphan") {
			removeFile(t, sum)
		}
		if strings.HasPrefix(name, "fresh") {
			if err := os.Chtimes(filepath.Join(dir, code), now, now); err != nil {
				t.Fatal(err)
			}
			removeFile(t, sum)
		}
	}
}

func TestCachePrune(t *testing.T) {
	t.Parallel()
	type entries = map[string]struct {
		size   int64
		unused time.Duration
	}
	const day = 24 * time.Hour
	for name, test := range map[string]struct {
		entries entries
		want    []string
	}{
		"old":   {entries{"old": {1, maxUnused + day}, "month": {1, maxUnused - day}, "new": {1, 0}}, []string{"month", "new"}},
		"large": {entries{"a": {maxCached / 2, 3 * day}, "b": {maxCached / 2, 2 * day}, "c": {1, day}}, []string{"b", "c"}},
		"fits":  {entries{"a": {maxCached / 2, 3 * day}, "b": {maxCached / 2, 2 * day}}, []string{"a", "b"}},
		"used":  {entries{"a": {maxCached, minUnused / 2}, "b": {maxCached, minUnused / 2}, "c": {maxCached, day}}, []string{"a", "b"}},
		"lost":  {entries{"orphan": {1, 0}, "fresh": {1, 0}}, []string{"fresh"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			left, log := pruned(t, test.entries)
			if !slices.Equal(left, test.want) || strings.Contains(log, "WARN") {
				t.Errorf("left %v, want %v, log:\n%s", left, test.want, log)
			}
		})
	}
}

// TestCachePruneUse: loading an entry is a use.
func TestCachePruneUse(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "cache")
	binary := plain()
	runsFrom(t, dir, binary)
	sums, err := filepath.Glob(filepath.Join(dir, sumsDir, "*", "*"))
	if err != nil || len(sums) != 1 {
		t.Fatalf("sums = %v, %v", sums, err)
	}
	nearly := time.Now().Add(-maxUnused + time.Hour)
	if err := os.Chtimes(sums[0], nearly, nearly); err != nil {
		t.Fatal(err)
	}
	runsFrom(t, dir, binary)
	if used := modified(t, sums[0]); time.Since(used) > time.Hour {
		t.Errorf("used at %v", used)
	}
}

// TestCachePruneWhileServing: the cache is pruned also while it serves. The code of modules stays, however long ago it
// was loaded, and what another process has used lately.
func TestCachePruneWhileServing(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	dir := filepath.Join(t.TempDir(), "cache")
	cache, log := setup(t, Config{Dir: dir})
	code := newCode(cache, plain())
	if err := runs(t.Context(), code); err != nil {
		t.Fatal(err)
	}
	served := filepath.Base(entriesOf(t, dir)[0])
	old := time.Now().Add(-2 * maxUnused)
	if err := os.Chtimes(cache.main.sumFile(code.key), old, old); err != nil {
		t.Fatal(err)
	}
	makeEntries(t, dir, map[string]struct {
		size   int64
		unused time.Duration
	}{
		"old": {1, maxUnused + day}, "large": {maxCached, day}, "used": {1, minUnused / 4}, "orphan": {1, 0},
	})
	left := func() (names []string) {
		for _, path := range entriesOf(t, dir) {
			names = append(names, filepath.Base(path))
		}
		slices.Sort(names)
		return names
	}
	stale := filepath.Join(dir, stagePrefix+"dead")
	if err := errors.Join(os.Mkdir(stale, ownerOnly), os.Chtimes(stale, old, old)); err != nil {
		t.Fatal(err)
	}
	cache.Prune(t.Context(), time.Now())
	if got := left(); len(got) != 5 {
		t.Errorf("left before it is time: %v, want all", got)
	}
	cache.Prune(t.Context(), time.Now().Add(pruneInterval))
	want := []string{served, "used"}
	slices.Sort(want)
	if got := left(); !slices.Equal(got, want) {
		t.Errorf("left %v, want %v", got, want)
	}
	if _, err := os.Stat(stale); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what a dead process has left: %v, want it gone", err)
	}
	if err := errors.Join(runs(t.Context(), code), code.Close(t.Context())); err != nil {
		t.Error(err)
	}
	if text := log.String(); strings.Count(text, "module compiled") != 1 || strings.Contains(text, "WARN") {
		t.Errorf("log:\n%s", text)
	}
}
