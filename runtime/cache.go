package runtime

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	goruntime "runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/tetratelabs/wazero"
)

// diskCache keeps compiled modules in a directory, and lets wazero read only what it has checked.
//
// wazero's own cache names its entries by a hash that cannot be computed from outside, guards the
// machine code with a CRC but not the table of its entry points, allocates by counts that it has not
// checked, and fails for ever on an entry that is damaged. So a module that is not in the cache is
// compiled in a stage, a cache of its own with no other entry in it; the entry moves from there into
// the cache; and beside it lies a sum file, named by the module's digest, with the entry's name and
// its SHA-256. An entry is handed to wazero if that is right, else deleted and made again.
//
//	DIR/wazero-v1.12.0-amd64-linux/ENTRY      machine code, written and read by wazero
//	DIR/sums/v1.12.0-amd64-linux/DIGEST       "ENTRY SHA256"
//	DIR/stage-123456/…                        while a module is compiled
type diskCache struct {
	dir     string
	sums    string
	backend *backend
	logger  hclog.Logger
}

const (
	sumsDir     = "sums"
	stagePrefix = "stage-"
	// maxStage is longer than any compilation.
	maxStage = time.Hour
	// ownerOnly is the mode of the directory and of everything in it.
	ownerOnly = 0o700
)

// unknownVersion is what wazero takes for its version where the build does not tell, as in tests.
// Entries of different versions could then not be told apart.
const unknownVersion = "dev"

// wazeroVersion finds out the version as wazero does, which tells it nobody.
func wazeroVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return unknownVersion
	}
	for _, module := range info.Deps {
		if module.Path == "github.com/tetratelabs/wazero" && module.Version != "" && module.Version != "(devel)" {
			return module.Version
		}
	}
	return unknownVersion
}

func openDiskCache(ctx context.Context, dir, version string, c clock, logger hclog.Logger) (*diskCache, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open cache directory %q: %w", dir, err)
	}
	if err := makePrivate(dir); err != nil {
		return nil, err
	}
	if err := removeStages(dir); err != nil {
		return nil, fmt.Errorf("open cache directory %q: %w", dir, err)
	}
	sums := filepath.Join(dir, sumsDir, version+"-"+goruntime.GOARCH+"-"+goruntime.GOOS)
	if err := os.MkdirAll(sums, ownerOnly); err != nil {
		return nil, fmt.Errorf("make cache directory: %w", err)
	}
	cache, err := wazero.NewCompilationCacheWithDir(dir)
	if err != nil {
		return nil, fmt.Errorf("open cache directory %q: %w", dir, err)
	}
	b, err := newBackend(ctx, cache, c)
	if err != nil {
		return nil, err
	}
	return &diskCache{dir: dir, sums: sums, backend: b, logger: logger}, nil
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

// compile loads a module from the cache, after it was put there if it was not. The caller holds the
// lock of the digest.
func (c *diskCache) compile(ctx context.Context, binary []byte, digest string) (wazero.CompiledModule, error) {
	err := c.verify(digest)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		c.logger.Warn("compile cache entry is damaged, module is compiled again", "digest", digest, "error", err)
	}
	if err != nil {
		if err := c.fill(ctx, binary, digest); err != nil {
			return nil, err
		}
	}
	return c.backend.compile(ctx, binary)
}

// verify returns nil if the entry of a module is there and as it was written. Otherwise the entry is
// gone when it returns.
func (c *diskCache) verify(digest string) error {
	text, err := os.ReadFile(c.sumFile(digest))
	if err != nil {
		return err
	}
	name, want, ok := strings.Cut(strings.TrimSpace(string(text)), " ")
	if !ok || !filepath.IsLocal(name) {
		return errors.Join(errors.New("sum file is damaged"), os.Remove(c.sumFile(digest)))
	}
	entry := filepath.Join(c.dir, name)
	sum, err := sumOf(entry)
	if err != nil {
		return err
	}
	if sum != want {
		return errors.Join(fmt.Errorf("sum of %s is wrong", name), os.Remove(entry))
	}
	return nil
}

// fill compiles a module in a stage and moves the entry into the cache.
func (c *diskCache) fill(ctx context.Context, binary []byte, digest string) (err error) {
	stage, err := os.MkdirTemp(c.dir, stagePrefix)
	if err != nil {
		return fmt.Errorf("make stage: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(stage)) }()
	if err := compileIn(ctx, stage, binary); err != nil {
		return err
	}
	entries, err := filepath.Glob(filepath.Join(stage, "*", "*"))
	if err != nil || len(entries) != 1 {
		return fmt.Errorf("find entry in stage: %d files: %w", len(entries), err)
	}
	sum, err := sumOf(entries[0])
	if err != nil {
		return err
	}
	name, err := filepath.Rel(stage, entries[0])
	if err != nil {
		return err
	}
	// The entry first: a sum without its entry, or with an older one, is made again.
	if err := os.Rename(entries[0], filepath.Join(c.dir, name)); err != nil {
		return err
	}
	staged := filepath.Join(stage, "sum")
	if err := os.WriteFile(staged, []byte(name+" "+sum+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(staged, c.sumFile(digest))
}

// compileIn compiles a module for the sake of the entry that wazero writes.
func compileIn(ctx context.Context, stage string, binary []byte) (err error) {
	cache, err := wazero.NewCompilationCacheWithDir(stage)
	if err != nil {
		return err
	}
	b := &backend{cache: cache, runtime: wazero.NewRuntimeWithConfig(ctx, runtimeConfig(cache))}
	defer func() { err = errors.Join(err, b.close(ctx)) }()
	_, err = b.compile(ctx, binary)
	return err
}

func (c *diskCache) sumFile(digest string) string {
	return filepath.Join(c.sums, strings.TrimPrefix(digest, digestPrefix))
}

func sumOf(path string) (sum string, err error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}
