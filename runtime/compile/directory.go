package compile

import (
	"cmp"
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
	"syscall"
	"time"

	"github.com/tetratelabs/wazero"
)

// directory keeps compiled modules on disk, and lets wazero read only entries that it has checked.
//
// wazero's own cache names its entries by a hash that nobody else can compute. It protects the machine code by a CRC
// but not the table of its entry points, allocates memory by unchecked counts, and always fails on a damaged entry. So
// each module is compiled into a stage: a cache with no other entry. The entry then moves from the stage into the
// directory. A sum file, whose name is the module's key, has the entry's name and SHA-256. If the sum is wrong, the
// entry is deleted and the module is compiled again. The key is the SHA-256 of the rewritten module.
//
//	DIR/wazero-v1.12.0-amd64-linux/ENTRY      machine code, written and read by wazero
//	DIR/sums/v1.12.0-amd64-linux/KEY          "ENTRY SHA256"; modified at the last use
//	DIR/stage-KEY/…                           while a process compiles the module, which has locked the stage
type directory struct {
	dir       string
	sums      string
	temporary bool // close removes it
	backend   *backend
	compiler  *compiler
}

const (
	sumsDir = "sums"
	// wazeroDirs matches the directories in which wazero keeps machine code, one for each version.
	wazeroDirs = "wazero-*"
)

// unknownVersion is returned by Version in a build that does not record wazero's version, such as a test. A cache under
// this version would mix entries of several versions.
const unknownVersion = "dev"

// Version returns wazero's version. It looks where wazero itself looks, since wazero does not export its version.
func Version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == "github.com/tetratelabs/wazero" && module.Version != "" && module.Version != "(devel)" {
				return module.Version
			}
		}
	}
	return unknownVersion
}

// openDirectory opens the cache in dir, or makes a temporary one if dir is empty.
func openDirectory(ctx context.Context, dir string, compiler *compiler) (_ *directory, err error) {
	d := &directory{temporary: dir == "", compiler: compiler}
	if d.temporary {
		if dir, err = os.MkdirTemp("", "quern-compiled-"); err != nil {
			return nil, fmt.Errorf("make temporary cache directory: %w", err)
		}
		defer func() {
			if err != nil {
				err = errors.Join(err, os.RemoveAll(dir))
			}
		}()
	}
	if d.dir, err = filepath.Abs(dir); err != nil {
		return nil, fmt.Errorf("open cache directory %q: %w", dir, err)
	}
	d.sums = filepath.Join(d.dir, sumsDir, compiler.cfg.Version+"-"+goruntime.GOARCH+"-"+goruntime.GOOS)
	if err := d.prepare(); err != nil {
		return nil, err
	}
	cache, err := wazero.NewCompilationCacheWithDir(d.dir)
	if err != nil {
		return nil, fmt.Errorf("open cache directory %q: %w", d.dir, err)
	}
	d.backend = newBackend(ctx, cache)
	return d, nil
}

// prepare makes the directory, or those parts of it that somebody has removed.
func (d *directory) prepare() error {
	if err := makePrivate(d.dir); err != nil {
		return err
	}
	if err := os.MkdirAll(d.sums, ownerOnly); err != nil {
		return fmt.Errorf("make cache directory: %w", err)
	}
	return nil
}

func (d *directory) close(ctx context.Context) error {
	err := d.backend.close(ctx)
	if d.temporary {
		err = errors.Join(err, os.RemoveAll(d.dir))
	}
	return err
}

// maxFills is the maximum number of times that a load compiles a module: another process may prune the entry before it
// is loaded.
const maxFills = 2

// load loads a module from the cache, and before it the kernel if the module needs one. If loaded returns true when the
// turn comes, load returns no module.
func (d *directory) load(ctx context.Context, owner string, m *program,
	loaded func() bool,
) (wazero.CompiledModule, error) {
	hasKernel := func() bool { return d.backend.kernel.Load() != nil }
	if m.extism && !hasKernel() {
		compiled, err := d.loadOne(ctx, owner, kernel(), hasKernel)
		if err != nil {
			return nil, fmt.Errorf("load the kernel of Extism plugins: %w", err)
		}
		if compiled != nil {
			d.backend.kernel.Store(&compiled)
		}
	}
	return d.loadOne(ctx, owner, m, loaded)
}

// loadOne loads a module from the cache. If the module is not there, loadOne compiles it into the cache first. While
// loadOne waits for a turn at compiling or loading, it holds nothing that other calls wait for.
func (d *directory) loadOne(ctx context.Context, owner string, m *program,
	loaded func() bool,
) (wazero.CompiledModule, error) {
	for fills := 0; ; {
		compiled, err := d.cached(ctx, owner, m, loaded)
		if !errors.Is(err, errNotCompiled) || fills == maxFills {
			return compiled, err
		}
		filled, err := d.fill(ctx, owner, m)
		if err != nil {
			return nil, err
		}
		if filled {
			fills++
		}
	}
}

// cached loads a module from its entry. If loaded returns true when the turn comes, cached returns no module. If there
// is no usable entry, the error is errNotCompiled.
func (d *directory) cached(ctx context.Context, owner string, m *program,
	loaded func() bool,
) (wazero.CompiledModule, error) {
	leave, err := d.compiler.loads.Acquire(ctx, owner, m.source.size)
	if err != nil {
		return nil, err
	}
	defer leave()
	if loaded() {
		return nil, nil //nolint:nilnil // as load says
	}
	if err := d.verify(m.key); err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			d.compiler.cfg.Logger.Warn("compile cache entry is damaged, module is compiled again", "digest", m.digest,
				"error", err)
		}
		return nil, errNotCompiled
	}
	binary, err := m.source.read()
	if err != nil {
		return nil, fmt.Errorf("read the module again: %w", err)
	}
	compiled, err := d.backend.load(ctx, m.key, binary)
	if errors.Is(err, errNotCompiled) {
		// Another process has pruned the entry, or the entry was made with other settings.
		_ = os.Remove(d.sumFile(m.key)) // if the sum file stays, the next round fails
	}
	return compiled, err
}

// errDamagedSum is the error of a sum file whose contents are not valid.
var errDamagedSum = errors.New("sum file is damaged")

// verify returns nil if a module's entry is undamaged. It removes damaged files. It also records the use of the entry.
func (d *directory) verify(key string) error {
	d.touch(key, time.Now())
	name, want, err := readSum(d.sumFile(key))
	if errors.Is(err, errDamagedSum) {
		return errors.Join(err, os.Remove(d.sumFile(key)))
	}
	if err != nil {
		return err
	}
	entry := filepath.Join(d.dir, name)
	sum, err := sumOf(entry)
	if err != nil {
		return err
	}
	if sum != want {
		return errors.Join(fmt.Errorf("sum of %s is wrong", name), os.Remove(entry))
	}
	return nil
}

// size returns the size of a module's entry in bytes. The code takes about as much memory.
func (d *directory) size(key string) int64 {
	name, _, err := readSum(d.sumFile(key))
	if err != nil {
		return 0
	}
	info, err := os.Stat(filepath.Join(d.dir, name))
	if err != nil {
		return 0
	}
	return info.Size()
}

// readSum reads a sum file. It returns the path of the entry below the cache directory, and the entry's SHA-256.
func readSum(path string) (name, sum string, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", "", err
	}
	name, sum, ok := strings.Cut(strings.TrimSpace(string(text)), " ")
	if !ok || !filepath.IsLocal(name) {
		return "", "", errDamagedSum
	}
	return name, sum, nil
}

// fill compiles a module into the cache when it is the owner's turn, and reports whether it did. If another call
// compiles the module, fill waits for that call instead.
func (d *directory) fill(ctx context.Context, owner string, m *program) (filled bool, err error) {
	if err := d.compiler.remembered(m.key); err != nil {
		return false, err
	}
	b := d.compiler.cfg.budget(m.size)
	leave, err := d.compiler.turns.Acquire(ctx, owner, b.memory)
	if err != nil {
		return false, err
	}
	defer leave()
	done, other, err := d.compiler.claim(m.key)
	if err != nil {
		return false, err
	}
	if other != nil {
		leave()
		select {
		case <-other:
			return false, nil
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
	defer done()
	if err := d.compiler.remembered(m.key); err != nil {
		return false, err
	}
	if err := d.prepare(); err != nil {
		return false, err
	}
	stage, vacate, err := d.occupy(m.key)
	if errors.Is(err, errOccupied) {
		leave()
		return false, d.awaitVacant(ctx, m.key)
	}
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, vacate()) }()
	if d.verify(m.key) == nil {
		return false, nil
	}
	return true, d.compile(ctx, stage, m, b)
}

// compile compiles a module in its stage and moves the entry into the cache.
func (d *directory) compile(ctx context.Context, stage string, m *program, b budget) error {
	if err := d.compiler.compile(ctx, stage, m, b); err != nil {
		return err
	}
	entries, err := fs.Glob(os.DirFS(stage), wazeroDirs+"/*")
	if err != nil {
		return err
	}
	if len(entries) != 1 {
		return fmt.Errorf("find entry in stage: %d files", len(entries))
	}
	name := filepath.FromSlash(entries[0])
	sum, err := sumOf(filepath.Join(stage, name))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(d.dir, filepath.Dir(name)), ownerOnly); err != nil {
		return err
	}
	// The entry moves first: if the sum file is missing or does not match the entry, the module is compiled again.
	if err := os.Rename(filepath.Join(stage, name), filepath.Join(d.dir, name)); err != nil {
		return err
	}
	staged := filepath.Join(stage, "sum")
	if err := os.WriteFile(staged, []byte(name+" "+sum+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(staged, d.sumFile(m.key))
}

// errOccupied is the error of a stage that another process has locked.
var errOccupied = errors.New("another process compiles the module")

// occupy makes an empty stage for a module and locks it. The lock ends with vacate, which removes the stage, or with
// the process.
func (d *directory) occupy(key string) (stage string, vacate func() error, err error) {
	stage = filepath.Join(d.dir, stagePrefix+key)
	if err := os.Mkdir(stage, ownerOnly); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", nil, fmt.Errorf("make stage: %w", err)
	}
	lock, err := os.Open(stage)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil, errOccupied // its process has just removed it
	}
	if err != nil {
		return "", nil, fmt.Errorf("open stage: %w", err)
	}
	defer func() {
		if err != nil {
			_ = lock.Close()
		}
	}()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return "", nil, errOccupied
		}
		return "", nil, fmt.Errorf("lock %s: %w", stage, err)
	}
	locked, err := lock.Stat()
	if err != nil {
		return "", nil, err
	}
	if present, err := os.Stat(stage); err != nil || !os.SameFile(locked, present) {
		return "", nil, errOccupied // the locked folder is one that its process has removed
	}
	left, err := lock.ReadDir(-1) // by a process that died
	for _, entry := range left {
		err = errors.Join(err, os.RemoveAll(filepath.Join(stage, entry.Name())))
	}
	if err != nil {
		return "", nil, fmt.Errorf("empty stage: %w", err)
	}
	return stage, func() error { return errors.Join(os.RemoveAll(stage), lock.Close()) }, nil
}

// awaitVacant waits until no other process compiles a module.
func (d *directory) awaitVacant(ctx context.Context, key string) error {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
		_, vacate, err := d.occupy(key)
		if err == nil {
			return vacate()
		}
		if !errors.Is(err, errOccupied) {
			return err
		}
	}
}

// touch records that a module's entry is in use, if there is an entry.
func (d *directory) touch(key string, now time.Time) { _ = os.Chtimes(d.sumFile(key), now, now) }

func (d *directory) sumFile(key string) string { return filepath.Join(d.sums, key) }

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

// ownerOnly is the mode of the cache directory and of the directories in it.
const ownerOnly = 0o700

// makePrivate makes the cache directory if it does not exist. It refuses a directory that others own or can access,
// since this process executes the code in the directory.
func makePrivate(dir string) error {
	mkdirErr := os.MkdirAll(dir, ownerOnly)
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("make cache directory %q: %w", dir, cmp.Or(mkdirErr, err))
	}
	var what string
	stat, ok := info.Sys().(*syscall.Stat_t)
	remedy := "name another directory, or none to compile without a cache"
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		what, remedy = "is a symbolic link", "name the directory that it points to"
	case !info.IsDir():
		what = "is not a directory"
	case !ok || int(stat.Uid) != os.Geteuid():
		what = "belongs to another user"
	case info.Mode().Perm()&0o077 != 0:
		what = fmt.Sprintf("is open to group or others (mode %04o)", info.Mode().Perm())
		remedy = "it holds code that is executed; if nobody else has used it, run chmod 700 " + dir
	default:
		return nil
	}
	return fmt.Errorf("%w: %q %s: %s", ErrDirectory, dir, what, remedy)
}
