package runtime

import (
	"cmp"
	"context"
	"crypto/sha256"
	"maps"
	goruntime "runtime"
	"slices"
	"sync"
	"time"
	"weak"

	"github.com/quern-project/quern/runtime/abi"
	"github.com/quern-project/quern/runtime/compile"
)

// Engine compiles modules, and owns the state that they share.
type Engine struct {
	*host

	version string // wazero's version
	cache   *compile.Cache
	bundles bundles

	resetMode   ResetMode // the mode of modules that a reset can restore
	resetReason string    // why resetMode was chosen
	idleUnload  time.Duration
	stop        func() // ends the housekeeping
	housekeeper sync.WaitGroup

	closeOnce sync.Once

	mu      sync.Mutex
	modules map[*Module]struct{} // the open modules; guarded by mu
}

// New makes an engine, and starts its housekeeping. The caller closes the engine after all its modules.
func New(ctx context.Context, cfg Config) (*Engine, error) {
	return newEngine(ctx, cfg, compile.Version())
}

func newEngine(ctx context.Context, cfg Config, version string) (*Engine, error) {
	cfg = cfg.withDefaults()
	e := &Engine{
		host:    &host{logger: cfg.Logger, gate: &gate{free: cfg.Guests}, started: time.Now(), crash: cfg.Crash},
		version: version, idleUnload: cfg.IdleUnload,
		modules: map[*Module]struct{}{},
		bundles: bundles{shared: map[[sha256.Size]byte]weak.Pointer[Files]{}},
	}
	var err error
	if goruntime.GOARCH == "arm64" {
		e.logger.Warn("the compiler for arm64 has a known fault that computes wrongly: do not serve plugins of tenants whom you do not trust (SECURITY.md)")
	}
	if e.resetMode, e.resetReason, err = chooseResetMode(resetModes(), cfg.ResetMode); err != nil {
		return nil, err
	}
	if e.resetMode != ResetScan {
		e.logger.Info("not the best reset mode", "reset_mode", e.resetMode, "reason", e.resetReason)
	}
	if e.cache, err = compile.Open(ctx, compile.Config{
		Dir: cfg.CacheDir, Version: version, Child: cfg.Compiler, Time: cfg.CompileTime, Memory: cfg.CompileMemory,
		Children: cfg.Guests / 2,
		Imports:  instantiateHost, Tick: tick, Logger: e.logger,
	}); err != nil {
		return nil, err
	}
	housekeeping, stop := context.WithCancel(context.WithoutCancel(ctx))
	e.stop = stop
	e.housekeeper.Go(func() { e.housekeep(housekeeping) })
	return e, nil
}

// Compiler names the compiler for guests, its version and its target, such as "wazero v1.12.0 for amd64".
func (e *Engine) Compiler() string { return "wazero " + e.version + " for " + goruntime.GOARCH }

// HostCalls returns the counters of the calls of quern_v1.
func (e *Engine) HostCalls() *abi.Counters { return &e.counters }

// Close closes the engine and all code that it compiled. Run must not be in progress. Close can be called twice.
func (e *Engine) Close(ctx context.Context) (err error) {
	e.closeOnce.Do(func() {
		e.stop()
		e.housekeeper.Wait()
		err = e.cache.Close(ctx)
	})
	return err
}

// housekeepInterval is the time between two calls of tidy.
const housekeepInterval = 5 * time.Second

func (e *Engine) housekeep(ctx context.Context) {
	ticker := time.NewTicker(housekeepInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			e.tidy(ctx, now)
		}
	}
}

// tidy trims the pools, unloads code whose modules were all idle for too long, and prunes the cache.
func (e *Engine) tidy(ctx context.Context, now time.Time) {
	e.cache.Prune(ctx, now)
	modules, used := e.allModules(), map[*compile.Code]int64{}
	for _, m := range modules {
		for _, p := range m.allPools() {
			p.trim(now, e.idleUnload)
		}
		used[m.code] = max(used[m.code], m.used.Load())
	}
	var unloaded int64
	for _, m := range modules {
		if e.idleUnload > 0 && now.Sub(time.Unix(0, used[m.code])) >= e.idleUnload {
			unloaded += e.unload(ctx, m)
		}
	}
	if unloaded > 0 {
		goruntime.GC() // unmaps the code
	}
}

// Held returns the bytes that modules take: code, snapshots, idle instances and call stacks. It does not count the
// memory that the limits of running calls cover, nor Module.Holds.
func (e *Engine) Held() int64 {
	h := e.Holdings()
	return h.Code + h.Snapshots + h.Instances + h.Stacks
}

// Holdings adds up the memory and the instances of all modules.
func (e *Engine) Holdings() Holdings {
	h := Holdings{Stacks: e.stacks.Load()}
	counted := map[any]bool{} // the code that is counted already: several modules can share it
	for _, m := range e.allModules() {
		if !counted[m.code] {
			counted[m.code] = true
			h.Code += m.code.Bytes()
		}
		for _, p := range m.allPools() {
			p.addTo(&h)
		}
	}
	return h
}

// Relieve frees idle memory, beginning with the least recently used modules, until it has freed the given number of
// bytes or nothing idle is left. It returns the number of freed bytes.
func (e *Engine) Relieve(ctx context.Context, bytes int64) (freed int64) {
	modules, used := e.allModules(), map[*Module]int64{} // a copy for the sort, since calls change m.used meanwhile
	for _, m := range modules {
		used[m] = m.used.Load()
	}
	slices.SortFunc(modules, func(a, b *Module) int { return cmp.Compare(used[a], used[b]) })
	var unloaded int64
	for _, m := range modules {
		if freed+unloaded >= bytes {
			break
		}
		for _, p := range m.allPools() {
			freed += p.shrink(0)
		}
		if freed+unloaded < bytes {
			unloaded += e.unload(ctx, m)
		}
	}
	if unloaded > 0 {
		goruntime.GC()
	}
	return freed + unloaded
}

func (e *Engine) unload(ctx context.Context, m *Module) (freed int64) {
	freed, err := m.code.Unload(ctx)
	if err != nil {
		e.logger.Error("cannot unload code", "digest", m.info.Digest, "error", err)
	}
	return freed
}

func (e *Engine) allModules() []*Module {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Collect(maps.Keys(e.modules))
}
