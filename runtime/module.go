package runtime

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/tetratelabs/wazero"

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
}

// Module is a compiled plugin. It may run any number of calls at once, each in an instance of its
// own.
type Module struct {
	engine   *Engine
	backend  *backend // which compiled it
	compiled wazero.CompiledModule
	info     Info
	declared uint64 // the most memory that the module itself allows, in bytes
	start    bool   // it has a function to be called before any other
	price    int64  // of an instance, in fuel

	closeOnce sync.Once
	closeErr  error
}

// declare notes what the file says and the rewritten module does not.
func (m *Module) declare(rewritten *wasm.Rewritten) {
	m.start, m.price, m.declared = rewritten.Start, rewritten.InstancePrice, MaxMemory
	if m.info.MemoryMax > 0 || len(rewritten.Memories) > 0 && rewritten.Memories[0].HasMax {
		m.declared = uint64(m.info.MemoryMax)
	}
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

// Close gives the module's code back. The caller guarantees that no Run is in flight. It may be
// called twice.
func (m *Module) Close(ctx context.Context) error {
	m.closeOnce.Do(func() {
		if err := m.compiled.Close(ctx); err != nil {
			m.closeErr = fmt.Errorf("close module %q: %w", m.info.Digest, err)
		}
	})
	return m.closeErr
}
