package runtime

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/quern-project/quern/runtime/wasm"
)

// Load compiles a module and checks that it can be served. What cannot is a *RefusedError with every
// reason that was found. The binary is not kept.
func (e *Engine) Load(ctx context.Context, binary []byte) (*Module, error) {
	m, _, err := e.load(ctx, binary)
	return m, err
}

// Inspect does what Load does without keeping the module. Info is filled as far as the file could be
// read, also beside an error.
func (e *Engine) Inspect(ctx context.Context, binary []byte) (Info, error) {
	m, info, err := e.load(ctx, binary)
	if err != nil {
		return info, err
	}
	return info, m.Close(ctx)
}

// load goes from the cheap checks to the dear ones, and never executes anything of the file.
func (e *Engine) load(ctx context.Context, binary []byte) (*Module, Info, error) {
	sum := sha256.Sum256(binary)
	info := Info{Digest: digestPrefix + hex.EncodeToString(sum[:]), Size: int64(len(binary))}
	if refused := sniff(binary); refused != nil {
		return nil, info, refused
	}
	outline, refused := decode(binary)
	if refused != nil {
		return nil, info, refused
	}
	info.describe(outline)
	info.Kind = kindOf(outline)
	if found := e.plain.refusals(info.Kind, outline); len(found) > 0 {
		return nil, info, &RefusedError{Refusals: found}
	}
	m, err := e.compile(ctx, binary, info)
	if err != nil {
		return nil, info, err
	}
	if err := m.try(ctx, outline); err != nil {
		return nil, info, errors.Join(err, m.Close(ctx))
	}
	return m, info, nil
}

// compile gets the machine code, from the disk if it is there. The disk is only ever a help: when
// something is wrong with it, that is logged and the module is compiled in memory.
func (e *Engine) compile(ctx context.Context, binary []byte, info Info) (*Module, error) {
	unlock, err := e.lock(ctx, info.Digest)
	if err != nil {
		return nil, fmt.Errorf("load module %q: %w", info.Digest, err)
	}
	defer unlock()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("load module %q: %w", info.Digest, context.Cause(ctx))
	}
	started := time.Now()
	var onDisk error
	if e.disk != nil {
		var compiled wazero.CompiledModule
		if compiled, onDisk = e.disk.compile(ctx, binary, info.Digest); onDisk == nil {
			e.logger.Debug("module loaded", "digest", info.Digest, "duration", time.Since(started))
			return &Module{engine: e, backend: e.disk.backend, compiled: compiled, info: info}, nil
		}
	}
	compiled, err := e.plain.compile(ctx, binary)
	if err != nil {
		e.logger.Debug("module does not compile", "digest", info.Digest, "error", err)
		return nil, invalid(err)
	}
	if onDisk != nil {
		e.logger.Warn("compile cache failed, module was compiled in memory", "digest", info.Digest, "error", onDisk)
	}
	e.logger.Debug("module loaded", "digest", info.Digest, "duration", time.Since(started))
	return &Module{engine: e, backend: e.plain, compiled: compiled, info: info}, nil
}

// compile calls wazero, which panics on some modules where it should return an error, and does not
// look at the context while it compiles.
func (b *backend) compile(ctx context.Context, binary []byte) (compiled wazero.CompiledModule, err error) {
	defer func() {
		if p := recover(); p != nil {
			compiled, err = nil, fmt.Errorf("the compiler panicked: %v\n%s", p, debug.Stack())
		}
	}()
	return b.runtime.CompileModule(ctx, binary)
}

// invalid refuses what the compiler did not take. The text is the compiler's, and a part of it may
// be the file's.
func invalid(err error) *RefusedError {
	reason, _, _ := strings.Cut(err.Error(), "\n")
	return refuse("not a valid WebAssembly module: "+label(reason), "",
		"build it again, without proposals beyond WebAssembly 2.0")
}

// try makes an instance and drops it: whether the segments of a module fit into its memory is known
// only then. A module with a start function is not tried, for that would run.
func (m *Module) try(ctx context.Context, outline *wasm.Outline) (err error) {
	if outline.Start {
		return nil
	}
	r := &run{module: m, memory: memory{limit: uint64(max(m.info.MemoryMin, wasm.PageSize))}}
	defer func() { err = errors.Join(err, r.memory.release()) }()
	instance, err := r.instantiate(ctx, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err == nil {
		return instance.Close(ctx)
	}
	if r.memory.err != nil {
		return fmt.Errorf("try module %q: %w", m.info.Digest, r.memory.err)
	}
	reason, _, _ := strings.Cut(err.Error(), "\n")
	return refuse("the module cannot be instantiated: "+label(reason), "", "build it again")
}
