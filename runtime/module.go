package runtime

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quern-project/quern/runtime/units"
	"github.com/quern-project/quern/runtime/wasm"
)

// Kind is how a plugin is called.
type Kind string

// The kinds of plugins, in the order in which they are told apart.
const (
	// Handler exports quern_handle.
	Handler Kind = "handler"
	// Extism imports functions of extism:host/env.
	Extism Kind = "extism"
	// Command exports _start: a WASI preview 1 program.
	Command Kind = "command"
)

// digestPrefix names the hash that a digest is.
const digestPrefix = "sha256:"

// Info says what a module is. What could not be read is left at its zero value.
type Info struct {
	Kind Kind
	// Digest is "sha256:" and the 64 hex digits of the file's bytes.
	Digest string
	// Size is the file's size in bytes.
	Size int64
	// Functions counts the functions that the module defines itself.
	Functions int
	// Imports are written module.name, Exports name, both in the order of the file.
	Imports, Exports []string
	// Charges counts the places in its code where fuel is charged.
	Charges int
	// MemoryMin and MemoryMax are what the module declares, in bytes; MemoryMax 0 means no maximum.
	MemoryMin, MemoryMax int64
	// ResetMode is the way in which its tasks come by pristine instances, ResetReason why it is that one.
	ResetMode   ResetMode
	ResetReason string
}

// Module is a compiled plugin. It may run any number of calls at once, each in an instance that is as if nobody had
// used it before.
type Module struct {
	engine   *Engine
	code     *code
	name     string // by which wazero calls it
	info     Info
	mutable  []wasm.Type // of the globals that the guest can change
	declared uint64      // the most memory that the module itself allows, in bytes
	start    bool        // it has a function to be called before any other
	startup  []string    // what a handler runs before its first task
	lasting  bool        // a reset does not reach all that it changes: each of its tasks makes an instance, and pays for it
	price    int64       // of making an instance, in fuel
	tables   int64       // bytes that those of an instance take at most

	used    atomic.Int64   // when it was used last, in ns of Unix time
	makings sync.WaitGroup // of images

	mu    sync.Mutex
	pools map[poolKey]*pool

	closeOnce sync.Once
	closeErr  error
}

// newModule is a module with what its file says and its code does not.
func (e *Engine) newModule(code *code, info Info, rewritten *wasm.Rewritten) *Module {
	m := &Module{
		engine: e, code: code, name: code.compiled.Name(), info: info,
		mutable: rewritten.Mutable, declared: MaxMemory, start: rewritten.Start,
		lasting: lasting(&rewritten.Outline) != "",
		price:   rewritten.InstancePrice, tables: rewritten.TableMemory,
		pools: map[poolKey]*pool{},
	}
	if info.MemoryMax > 0 || len(rewritten.Memories) > 0 && rewritten.Memories[0].HasMax {
		m.declared = uint64(info.MemoryMax)
	}
	if m.start {
		m.startup = append(m.startup, wasm.StartExport)
	}
	if export, ok := rewritten.Export(initialize); ok && export.Kind == wasm.Function {
		m.startup = append(m.startup, initialize)
	}
	m.touch(time.Now())
	e.mu.Lock()
	defer e.mu.Unlock()
	e.modules[m] = struct{}{}
	return m
}

// Info says what the module is.
func (m *Module) Info() Info { return m.info }

// numbered is a frame with the number that a function without a name has in the file: in the rewritten
// module one more is imported.
func (m *Module) numbered(frame string) string {
	n, err := strconv.Atoi(strings.TrimPrefix(frame, "$"))
	if err != nil || !strings.HasPrefix(frame, "$") || n <= len(m.info.Imports) {
		return frame
	}
	return "$" + strconv.Itoa(n-1)
}

// Admits returns nil if the memory that the module needs from its start fits into the limits, else a
// *RefusedError that names both.
func (m *Module) Admits(l Limits) error {
	limit := l.WithDefaults().Memory
	if m.info.MemoryMin <= limit {
		return nil
	}
	return refuse(
		fmt.Sprintf("the module needs %s of memory from its start, over the memory limit of %s",
			units.FormatSize(m.info.MemoryMin), units.FormatSize(limit)),
		"memory section",
		fmt.Sprintf(manifestRemedy, "memory")+" or build it with a smaller initial memory",
	)
}

// Overhead is what an instance takes beside its memory at most, in bytes: its tables. Those that take less than a page of
// WebAssembly's together, as most programs' do, count for nothing.
func (m *Module) Overhead() int64 {
	if m.tables < wasm.PageSize {
		return 0
	}
	return m.tables
}

// Retire ends the pools of that name: see Call.Pool. Instances that are in use are closed when their calls have
// returned. Calls that name the pool later begin another one.
func (m *Module) Retire(name string) {
	m.mu.Lock()
	var retired []*pool
	for key, p := range m.pools {
		if key.pool == name {
			retired = append(retired, p)
			delete(m.pools, key)
		}
	}
	m.mu.Unlock()
	for _, p := range retired {
		p.retire()
	}
}

// Close gives the module's instances and code back. The caller guarantees that no Run is in flight. It may be
// called twice.
func (m *Module) Close(ctx context.Context) error {
	m.closeOnce.Do(func() {
		m.engine.mu.Lock()
		delete(m.engine.modules, m)
		m.engine.mu.Unlock()
		for _, p := range m.allPools() {
			p.retire()
		}
		m.makings.Wait()
		m.closeErr = m.code.close(ctx)
	})
	return m.closeErr
}

// allPools are the pools that there are now.
func (m *Module) allPools() []*pool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.pools))
}

// forget makes room for another pool in the place of one that was retired.
func (m *Module) forget(p *pool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.pools[p.key] == p {
		delete(m.pools, p.key)
	}
}

// touch notes that the module is used.
func (m *Module) touch(now time.Time) { m.used.Store(now.UnixNano()) }

// unusedFor is how long the module was not used: since a call of it began or ended, or it was loaded.
func (m *Module) unusedFor(now time.Time) time.Duration {
	return now.Sub(time.Unix(0, m.used.Load()))
}
