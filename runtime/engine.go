package runtime

import (
	"context"
	"errors"
	goruntime "runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/tetratelabs/wazero"

	"github.com/quern-project/quern/runtime/abi"
	"github.com/quern-project/quern/runtime/crash"
	"github.com/quern-project/quern/runtime/turns"
	"github.com/quern-project/quern/runtime/wasm"
)

// entryPoints are the exports that a guest is called by. They make a module what it is.
var entryPoints = map[Kind]string{Handler: "quern_handle", Command: "_start"}

// initialize is the export that a handler runs before its first task, if it has it.
const initialize = "_initialize"

// Config of an Engine. The zero value works.
type Config struct {
	// CacheDir is where compiled modules are kept: executable code, so it is created with mode 0700
	// and refused if anyone else may touch it. What was not used for 30 days, or is over 1 GiB, is removed
	// when an engine opens it, and every half hour; what an engine serves is in use.
	// Default "", which is a temporary folder that Close removes.
	CacheDir string
	// Compiler is the command line of a process that does nothing but call CompileChild: its program and its
	// arguments. Default nil, which compiles in this process, where a hostile module can take any time and
	// all memory.
	Compiler []string
	// CompileTime is the most processor time that a compile child may take, rounded up to seconds. A module is given
	// 4 s and 6 s more for each MiB of its code, up to this. Default 0, which is DefaultCompileTime.
	CompileTime time.Duration
	// CompileMemory is the most address space in bytes that a compile child may take beyond what a new process has. A
	// module is given 512 MiB and 64 MiB more for each MiB of its code, up to this; all children together are given
	// twice as much at most, and modules wait until theirs is free. Default 0, which is
	// DefaultCompileMemory. Linux only.
	CompileMemory int64
	// Guests is how many guests compute at the same time; others wait for their turn. Default: one for each
	// processor that Go uses.
	Guests int
	// ResetMode is the way in which tasks come by pristine instances. Default "", which is the best one that works
	// here; any other has to work, else New fails. Modules that a reset does not reach get New in any case.
	ResetMode ResetMode
	// IdleUnload is how long a module may be idle until its instances and code are unloaded. Default 0, which is 5 minutes;
	// negative means never.
	IdleUnload time.Duration
	// Crash is told which guests compute, so that a monitor can name those of which the process has died. Default nil,
	// which is no monitor.
	Crash *crash.Table
	// Logger receives what happens to the cache and in compilations. Default nil, which logs nothing.
	Logger hclog.Logger
}

// DefaultIdleUnload is the IdleUnload of the zero Config.
const DefaultIdleUnload = 5 * time.Minute

func (c Config) withDefaults() Config {
	if c.Guests <= 0 {
		c.Guests = goruntime.GOMAXPROCS(0)
	}
	if c.IdleUnload == 0 {
		c.IdleUnload = DefaultIdleUnload
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	return c
}

// Engine compiles modules and owns all that they share.
type Engine struct {
	logger   hclog.Logger
	gate     *gate
	started  time.Time // the zero of the monotonic clock of all guests
	compiler *compiler
	loads    *turns.Turns // at loading modules from the cache
	version  string       // wazero's
	cache    *diskCache

	counters abi.Counters // of what guests call in quern_v1
	crash    *crash.Table
	bare     sync.Once    // warns of memories without guards
	stacks   atomic.Int64 // bytes of the call stacks of guests that run

	resetMode   ResetMode // the best one for modules that a reset reaches
	resetReason string
	idleUnload  time.Duration
	tidied      chan struct{} // closed when the housekeeping has ended
	stop        func()        // ends it

	spareMu sync.Mutex
	spare   *diskCache // nil until cache fails

	mu        sync.Mutex
	closed    bool
	pruned    time.Time                // when the caches were
	compiling map[string]chan struct{} // by key; whoever made the channel closes it
	modules   map[*Module]struct{}
}

// maxLoading bounds the bytes of modules that are loaded from the cache at once.
const maxLoading = 256 << 20

// New makes an engine, and begins its housekeeping. Who makes it closes it, after every module that it loaded.
func New(ctx context.Context, cfg Config) (*Engine, error) {
	return newEngine(ctx, cfg, wazeroVersion())
}

func newEngine(ctx context.Context, cfg Config, version string) (*Engine, error) {
	cfg = cfg.withDefaults()
	e := &Engine{
		logger:    cfg.Logger,
		gate:      newGate(cfg.Guests),
		started:   time.Now(),
		crash:     cfg.Crash,
		pruned:    time.Now(),
		compiler:  newCompiler(cfg),
		loads:     turns.New(turns.Config{Places: max(2, goruntime.GOMAXPROCS(0)), Room: maxLoading}),
		version:   version,
		compiling: map[string]chan struct{}{},
		modules:   map[*Module]struct{}{},
		tidied:    make(chan struct{}),

		idleUnload: cfg.IdleUnload,
	}
	err := canary()
	if err != nil {
		return nil, err
	}
	if goruntime.GOARCH == "arm64" {
		e.logger.Warn("the compiler for arm64 has a known fault that computes wrongly: do not serve plugins of tenants whom you do not trust (SECURITY.md)")
	}
	if e.resetMode, e.resetReason, err = chooseResetMode(resetModes(), cfg.ResetMode); err != nil {
		return nil, err
	}
	if e.resetMode != ResetScan {
		e.logger.Info("how tasks come by pristine instances", "reset_mode", e.resetMode, "reason", e.resetReason)
	}
	dir := cfg.CacheDir
	if dir != "" && version == unknownVersion {
		e.logger.Warn("no compile cache: the version of wazero is unknown in this build", "cache", dir)
		dir = ""
	}
	if e.cache, err = openDiskCache(ctx, dir, version, e.compiler, e.logger); err != nil {
		return nil, err
	}
	tidying, stop := context.WithCancel(context.WithoutCancel(ctx))
	e.stop = stop
	go e.housekeep(tidying)
	return e, nil
}

// Compiler names what compiles the guests, such as "wazero v1.12.0 for amd64". Nothing else runs them: see ErrEngine.
func (e *Engine) Compiler() string { return "wazero " + e.version + " for " + goruntime.GOARCH }

// HostCalls counts what the engine's guests have called in quern_v1.
func (e *Engine) HostCalls() *abi.Counters { return &e.counters }

// spareCache is a temporary one that stands in where the cache directory fails.
func (e *Engine) spareCache(ctx context.Context) (*diskCache, error) {
	e.spareMu.Lock()
	defer e.spareMu.Unlock()
	if e.spare != nil {
		return e.spare, nil
	}
	e.mu.Lock()
	closed := e.closed
	e.mu.Unlock()
	if closed {
		return nil, ErrClosed // nobody would close it
	}
	var err error
	e.spare, err = openDiskCache(ctx, "", e.version, e.compiler, e.logger)
	return e.spare, err
}

// Close closes the engine and all code that it compiled. No Run may be in flight. It may be called
// twice.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	closed := e.closed
	e.closed = true
	e.mu.Unlock()
	if closed {
		return nil
	}
	e.stop()
	<-e.tidied
	e.spareMu.Lock()
	defer e.spareMu.Unlock()
	err := e.cache.close(ctx)
	if e.spare != nil {
		err = errors.Join(err, e.spare.close(ctx))
	}
	return err
}

// claim claims the compilation of a module for one call, which calls done when it has ended. If another call has it,
// claim returns what is closed when that one has ended.
func (e *Engine) claim(key string) (done func(), other <-chan struct{}, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, nil, ErrClosed
	}
	if other, busy := e.compiling[key]; busy {
		return nil, other, nil
	}
	ended := make(chan struct{})
	e.compiling[key] = ended
	return func() {
		e.mu.Lock()
		delete(e.compiling, key)
		e.mu.Unlock()
		close(ended)
	}, nil, nil
}

// backend is one wazero runtime with WASI in it.
type backend struct {
	runtime wazero.Runtime
	cache   wazero.CompilationCache
	wasi    map[string]wasm.Signature
	abi     map[string]wasm.Signature
}

func newBackend(ctx context.Context, cache wazero.CompilationCache) (*backend, error) {
	b := &backend{cache: cache, runtime: wazero.NewRuntimeWithConfig(ctx, runtimeConfig(cache))}
	var err error
	if b.wasi, b.abi, err = instantiateHost(ctx, b.runtime); err != nil {
		return nil, errors.Join(err, b.close(ctx))
	}
	return b, nil
}

// runtimeConfig is the same for all runtimes: what they compile is interchangeable only so. Nothing of
// wazero stops a guest: its fuel does.
func runtimeConfig(cache wazero.CompilationCache) wazero.RuntimeConfig {
	return wazero.NewRuntimeConfigCompiler(). // never the interpreter, for want of executable memory: see canary
							WithCompilationCache(cache).
							WithDebugInfoEnabled(false)
}

func (b *backend) close(ctx context.Context) error {
	return errors.Join(b.runtime.Close(ctx), b.cache.Close(ctx))
}
