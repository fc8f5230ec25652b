package compile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/quern-project/quern/runtime/runtimetest"
)

func TestCache(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "not", "there", "yet")
	binary := plain()
	runsFrom(t, dir, binary)
	entries := entriesOf(t, dir)
	if len(entries) != 1 {
		t.Fatalf("entries = %v, want 1", entries)
	}
	before := modified(t, entries[0])
	if log := runsFrom(t, dir, binary); strings.Contains(log, "WARN") {
		t.Errorf("the second cache warns:\n%s", log)
	}
	if again := entriesOf(t, dir); len(again) != 1 || !modified(t, again[0]).Equal(before) {
		t.Errorf("the second cache compiled again: %v", again)
	}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		if strings.HasPrefix(entry.Name(), stagePrefix) {
			t.Errorf("%s was left behind", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestCacheDamage: whatever happens to an entry, the module is compiled again and the cache is well.
func TestCacheDamage(t *testing.T) {
	t.Parallel()
	binary := plain()
	flip := func(at func(size int) int) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			t.Helper()
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			b[at(len(b))] ^= 0x40
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	truncate := func(size int64) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			t.Helper()
			if err := os.Truncate(path, size); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, test := range map[string]struct {
		file   string // below the cache
		damage func(*testing.T, string)
		silent bool
	}{
		"empty":       {file: "wazero-*/*", damage: truncate(0)},
		"cut":         {file: "wazero-*/*", damage: truncate(100)},
		"magic":       {file: "wazero-*/*", damage: flip(func(int) int { return 0 })},
		"function":    {file: "wazero-*/*", damage: flip(func(int) int { return 17 })}, // an entry point, which wazero does not check
		"code":        {file: "wazero-*/*", damage: flip(func(size int) int { return size / 2 })},
		"missing":     {file: "wazero-*/*", damage: func(t *testing.T, path string) { removeFile(t, path) }, silent: true},
		"sum":         {file: "sums/*/*", damage: flip(func(size int) int { return size - 2 })},
		"sum empty":   {file: "sums/*/*", damage: truncate(0)},
		"sum missing": {file: "sums/*/*", damage: func(t *testing.T, path string) { removeFile(t, path) }, silent: true},
		"sum outside": {file: "sums/*/*", damage: func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte("../../etc/passwd 00\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "cache")
			runsFrom(t, dir, binary)
			found, err := filepath.Glob(filepath.Join(dir, filepath.FromSlash(test.file)))
			if err != nil || len(found) != 1 {
				t.Fatalf("found %v, %v", found, err)
			}
			test.damage(t, found[0])
			if log := runsFrom(t, dir, binary); strings.Contains(log, "damaged") == test.silent {
				t.Errorf("log:\n%s", log)
			}
			if log := runsFrom(t, dir, binary); strings.Contains(log, "damaged") {
				t.Errorf("the cache is still damaged:\n%s", log)
			}
			if entries := entriesOf(t, dir); len(entries) != 1 {
				t.Errorf("entries = %v, want 1", entries)
			}
		})
	}
}

// TestCacheUnusable: a disk that fails is a warning, and the module runs from another.
func TestCacheUnusable(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "cache")
	cache, log := setup(t, Config{Dir: dir})
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // not even root can write below a file
		t.Fatal(err)
	}
	code := newCode(cache, plain())
	if err := errors.Join(runs(t.Context(), code), code.Close(t.Context())); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "compile cache failed; compiling in a temporary directory") {
		t.Errorf("log:\n%s", log)
	}
	if err := cache.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(cache.spare.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the temporary folder is still there: %v", err)
	}
}

// TestCacheRefusal: what does not compile is refused with a cache as without, and leaves no entry.
func TestCacheRefusal(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "cache")
	cache, log := setup(t, Config{Dir: dir})
	err := compileInto(t.Context(), cache, runtimetest.Locals(1, []byte{0xff}), "digest")
	var refused *Error
	if !errors.As(err, &refused) {
		t.Errorf("Load = %v, want a refusal", err)
	}
	if strings.Contains(log.String(), "WARN") || len(entriesOf(t, dir)) != 0 {
		t.Errorf("entries = %v, log:\n%s", entriesOf(t, dir), log)
	}
}

func TestCacheStages(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "cache")
	old, young := filepath.Join(dir, stagePrefix+"1"), filepath.Join(dir, stagePrefix+"2")
	for _, stage := range []string{old, young} {
		if err := os.MkdirAll(stage, ownerOnly); err != nil {
			t.Fatal(err)
		}
	}
	past := time.Now().Add(-2 * maxStage)
	if err := os.Chtimes(old, past, past); err != nil {
		t.Fatal(err)
	}
	setup(t, Config{Dir: dir})
	if _, err := os.Stat(old); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the old stage is still there: %v", err)
	}
	if _, err := os.Stat(young); err != nil {
		t.Errorf("the young stage is gone: %v", err)
	}
}

// TestCacheOccupied: while another process compiles a module, hosts with the same cache wait for it. When it dies, one of
// them compiles, and what the dead one left in the stage is gone.
func TestCacheOccupied(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "cache")
	binary := plain()
	first, log := setup(t, Config{Dir: dir})
	second, secondLog := setup(t, Config{Dir: dir})
	key := keyOf(binary)
	stage := filepath.Join(dir, stagePrefix+key)
	if err := os.MkdirAll(filepath.Join(stage, "left"), ownerOnly); err != nil {
		t.Fatal(err)
	}
	third, err := os.Open(stage) // stands in for a host that compiles and dies
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(third.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if _, _, err := first.main.occupy(key); !errors.Is(err, errOccupied) {
		t.Errorf("occupy = %v, want %v", err, errOccupied)
	}
	gone, cancel := context.WithCancelCause(t.Context())
	errGone := errors.New("gone")
	cancel(errGone)
	if err := second.main.awaitVacant(gone, key); !errors.Is(err, errGone) {
		t.Errorf("wait = %v, want %v", err, errGone)
	}
	ended := make(chan error, 2)
	for i, cache := range []*Cache{first, second} {
		go func() { ended <- compileInto(t.Context(), cache, binary, fmt.Sprint("host ", i)) }()
	}
	if err := third.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if n := strings.Count(log.String()+secondLog.String(), "module compiled"); n != 1 {
		t.Errorf("compiled %d times, want once:\n%s%s", n, log, secondLog)
	}
	if stages, err := filepath.Glob(filepath.Join(dir, stagePrefix+"*")); err != nil || len(stages) > 0 {
		t.Errorf("stages left: %v, %v", stages, err)
	}
}

// TestCacheVersion: where wazero's version is unknown there is no cache on disk, and New says so.
func TestCacheVersion(t *testing.T) {
	t.Parallel()
	if got := Version(); got != unknownVersion {
		t.Fatalf("version = %s in a test; TestCache can use the real one", got)
	}
	dir := filepath.Join(t.TempDir(), "cache")
	cache, log := setup(t, Config{Dir: dir, Version: unknownVersion})
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) || !cache.main.temporary {
		t.Errorf("there is a cache: %v", err)
	}
	if !strings.Contains(log.String(), "no compile cache") {
		t.Errorf("log:\n%s", log)
	}
}

func TestCacheDirectory(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		make func(t *testing.T, path string)
		want string // with DIR for the path, "" if it is accepted
	}{
		"new":     {func(*testing.T, string) {}, ""},
		"private": {func(t *testing.T, path string) { mkdir(t, path, 0o700) }, ""},
		"group": {
			func(t *testing.T, path string) { mkdir(t, path, 0o750) },
			`cache directory refused: "DIR" is open to group or others (mode 0750): ` +
				`it holds code that is executed; if nobody else has used it, run chmod 700 DIR`,
		},
		"others": {
			func(t *testing.T, path string) { mkdir(t, path, 0o701) },
			`cache directory refused: "DIR" is open to group or others (mode 0701): ` +
				`it holds code that is executed; if nobody else has used it, run chmod 700 DIR`,
		},
		"file": {
			func(t *testing.T, path string) {
				if err := os.WriteFile(path, nil, 0o600); err != nil {
					t.Fatal(err)
				}
			},
			`cache directory refused: "DIR" is not a directory: name another directory, or none to compile without a cache`,
		},
		"link": {
			func(t *testing.T, path string) {
				if err := os.Symlink(t.TempDir(), path); err != nil {
					t.Fatal(err)
				}
			},
			`cache directory refused: "DIR" is a symbolic link: name the directory that it points to`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "cache")
			test.make(t, dir)
			cache, err := open(t.Context(), Config{Dir: dir})
			if err == nil {
				err = cache.Close(t.Context())
			}
			if test.want == "" {
				if err != nil {
					t.Errorf("New: %v", err)
				}
				return
			}
			if want := strings.ReplaceAll(test.want, "DIR", dir); !errors.Is(err, ErrDirectory) || err.Error() != want {
				t.Errorf("New =\n%v\nwant\n%s", err, want)
			}
		})
	}
	t.Run("ErrOwner", func(t *testing.T) {
		t.Parallel()
		dir := "/usr" // root's
		if os.Geteuid() == 0 {
			dir = filepath.Join(t.TempDir(), "cache")
			mkdir(t, dir, 0o700)
			if err := os.Chown(dir, 12345, -1); err != nil {
				t.Fatal(err)
			}
		}
		_, err := open(t.Context(), Config{Dir: dir})
		if !errors.Is(err, ErrDirectory) || !strings.Contains(err.Error(), "belongs to another user") {
			t.Errorf("New = %v, want a refusal", err)
		}
	})
}

func mkdir(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Mkdir(path, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil { // whatever the umask is
		t.Fatal(err)
	}
}

// TestCacheShared: caches that share a directory, as two processes do, do not get in each other's way.
func TestCacheShared(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "cache")
	binary := plain()
	var group sync.WaitGroup
	for range 4 {
		cache, log := setup(t, Config{Dir: dir})
		group.Go(func() {
			code := newCode(cache, binary)
			err := errors.Join(runs(context.Background(), code), code.Close(context.Background()))
			if err != nil || strings.Contains(log.String(), "compile cache failed") {
				t.Errorf("run: %v, log:\n%s", err, log)
			}
		})
	}
	group.Wait()
	if log := runsFrom(t, dir, binary); strings.Contains(log, "WARN") || len(entriesOf(t, dir)) != 1 {
		t.Errorf("entries = %v, log:\n%s", entriesOf(t, dir), log)
	}
}

// TestCacheTemporary: without a directory there is one of the cache's own, made again if it is tidied away,
// and gone with the cache.
func TestCacheTemporary(t *testing.T) {
	t.Parallel()
	cache, _ := setup(t, Config{})
	for range 2 {
		if err := compileInto(t.Context(), cache, plain(), "digest"); err != nil {
			t.Fatal(err)
		}
		if entries := entriesOf(t, cache.main.dir); len(entries) != 1 {
			t.Errorf("entries = %v, want 1", entries)
		}
		if err := os.RemoveAll(cache.main.dir); err != nil {
			t.Fatal(err)
		}
	}
	if err := compileInto(t.Context(), cache, plain(), "digest"); err != nil {
		t.Error(err)
	}
	if err := cache.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(cache.main.dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the temporary folder is still there: %v", err)
	}
}

// TestCacheWithoutCompiler: what is not in the cache when wazero looks for it is not compiled by the host on
// the way, but by a compiler.
func TestCacheWithoutCompiler(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "cache")
	binary := plain()
	cache, _ := setup(t, Config{Dir: dir})
	if _, err := cache.main.backend.compile(withoutCompiler{t.Context()}, binary); !errors.Is(err, errNotCompiled) {
		t.Fatalf("compile = %v, want an error", err)
	}
	runsFrom(t, dir, binary)
	// An entry of other settings: whole, and known to the sum file, but not by the name that wazero wants.
	entry := entriesOf(t, dir)[0]
	if err := os.Rename(entry, entry+"0"); err != nil {
		t.Fatal(err)
	}
	sums, err := filepath.Glob(filepath.Join(dir, sumsDir, "*", "*"))
	if err != nil || len(sums) != 1 {
		t.Fatalf("sums = %v, %v", sums, err)
	}
	text, err := os.ReadFile(sums[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(sums[0], bytes.Replace(text, []byte(" "), []byte("0 "), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if log := runsFrom(t, dir, binary); strings.Count(log, "module compiled") != 1 || strings.Contains(log, "damaged") {
		t.Errorf("log:\n%s", log)
	}
	if log := runsFrom(t, dir, binary); strings.Contains(log, "module compiled") {
		t.Errorf("the entry is not in the cache:\n%s", log)
	}
}
