package runtime

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	goruntime "runtime"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/sys"

	"github.com/quern-project/quern/runtime/wasm"
)

// entryPoint is the export that makes a module a command.
const entryPoint = "_start"

// Config of an Engine. The zero value works.
type Config struct {
	// CacheDir is where compiled modules are kept: executable code, so it is created with mode 0700
	// and refused if anyone else may touch it. Default "", which is no cache on disk.
	CacheDir string
	// Logger receives what happens to the cache. Default nil, which logs nothing.
	Logger hclog.Logger
}

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	return c
}

// Engine compiles modules and owns all that they share.
type Engine struct {
	logger hclog.Logger
	base   wazero.ModuleConfig // what is the same for every instance
	plain  *backend            // compiles in memory
	disk   *diskCache          // nil without a cache on disk

	mu        sync.Mutex
	closed    bool
	compiling map[string]chan struct{} // by digest; whoever made the channel closes it
}

// New makes an engine. Who makes it closes it, after every module that it loaded.
func New(ctx context.Context, cfg Config) (*Engine, error) {
	return newEngine(ctx, cfg, wazeroVersion())
}

func newEngine(ctx context.Context, cfg Config, version string) (*Engine, error) {
	cfg = cfg.withDefaults()
	c := clock{started: time.Now()}
	e := &Engine{
		logger:    cfg.Logger,
		compiling: map[string]chan struct{}{},
		base: wazero.NewModuleConfig().
			WithName(""). // anonymous: any number of instances at once
			WithStartFunctions().
			WithRandSource(rand.Reader).
			WithWalltime(c.walltime, sys.ClockResolution(time.Microsecond)).
			WithNanotime(c.nanotime, sys.ClockResolution(time.Nanosecond)).
			WithOsyield(goruntime.Gosched),
	}
	var err error
	if e.plain, err = newBackend(ctx, wazero.NewCompilationCache(), c); err != nil {
		return nil, err
	}
	switch {
	case cfg.CacheDir == "":
	case version == unknownVersion:
		e.logger.Warn("no compile cache: the version of wazero is unknown in this build", "cache", cfg.CacheDir)
	default:
		if e.disk, err = openDiskCache(ctx, cfg.CacheDir, version, c, e.logger); err != nil {
			return nil, errors.Join(err, e.Close(ctx))
		}
	}
	return e, nil
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
	err := e.plain.close(ctx)
	if e.disk != nil {
		err = errors.Join(err, e.disk.backend.close(ctx))
	}
	return err
}

// lock waits until no other call compiles the same file, and returns what ends that for this one.
func (e *Engine) lock(ctx context.Context, digest string) (unlock func(), err error) {
	for {
		e.mu.Lock()
		other, busy := e.compiling[digest]
		if e.closed {
			e.mu.Unlock()
			return nil, ErrClosed
		}
		if !busy {
			done := make(chan struct{})
			e.compiling[digest] = done
			e.mu.Unlock()
			return func() {
				e.mu.Lock()
				delete(e.compiling, digest)
				e.mu.Unlock()
				close(done)
			}, nil
		}
		e.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// moduleConfig is the configuration of one instance.
func (e *Engine) moduleConfig(r *run, c Call) wazero.ModuleConfig {
	config := e.base.
		WithStdin(bytes.NewReader(c.Input)).
		WithStdout(&r.output).
		WithStderr(&r.logs).
		WithArgs(c.Plugin)
	// Last, because every step copies the names of the environment so far.
	for _, v := range c.environment() {
		config = config.WithEnv(v[0], v[1])
	}
	return config
}

// backend is one wazero runtime with WASI in it.
type backend struct {
	runtime wazero.Runtime
	cache   wazero.CompilationCache
	wasi    map[string]wasm.Signature
}

func newBackend(ctx context.Context, cache wazero.CompilationCache, c clock) (*backend, error) {
	b := &backend{cache: cache, runtime: wazero.NewRuntimeWithConfig(ctx, runtimeConfig(cache))}
	var err error
	if b.wasi, err = instantiateWASI(ctx, b.runtime, c); err != nil {
		return nil, errors.Join(err, b.close(ctx))
	}
	return b, nil
}

// runtimeConfig is the same for all runtimes: what they compile is interchangeable only so.
// WithCloseOnContextDone makes loops look at the context, at a price, and is what stops a guest.
func runtimeConfig(cache wazero.CompilationCache) wazero.RuntimeConfig {
	return wazero.NewRuntimeConfig().
		WithCompilationCache(cache).
		WithCloseOnContextDone(true).
		WithDebugInfoEnabled(false)
}

func (b *backend) close(ctx context.Context) error {
	return errors.Join(b.runtime.Close(ctx), b.cache.Close(ctx))
}
