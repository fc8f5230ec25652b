package runtime

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
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
	rewritten, damaged := decode(binary)
	outline := &rewritten.Outline
	info.describe(rewritten)
	if damaged != nil {
		return nil, info, &RefusedError{Refusals: append(e.cache.backend.foreign(outline), damaged.Refusals...)}
	}
	info.Kind = kindOf(outline)
	if found := e.cache.backend.refusals(info.Kind, outline); len(found) > 0 {
		return nil, info, &RefusedError{Refusals: found}
	}
	info.Rung, info.RungReason = e.rung, e.rungReason
	if why := lasting(outline); why != "" {
		info.Rung, info.RungReason = RungNew, why
	}
	code, err := e.newCode(ctx, rewritten.Binary, info.Digest)
	if err != nil {
		return nil, info, err
	}
	m := e.newModule(code, info, rewritten)
	if err := m.try(); err != nil {
		return nil, info, errors.Join(err, m.Close(ctx))
	}
	return m, info, nil
}

// compile gets the machine code of a module as it was written anew, from the cache that it returns.
func (e *Engine) compile(ctx context.Context, binary []byte, key, digest string) (wazero.CompiledModule, *diskCache, error) {
	unlock, err := e.lock(ctx, key)
	if err != nil {
		return nil, nil, fmt.Errorf("load module %q: %w", digest, err)
	}
	defer unlock()
	if ctx.Err() != nil {
		return nil, nil, fmt.Errorf("load module %q: %w", digest, context.Cause(ctx))
	}
	started := time.Now()
	cache := e.cache
	compiled, err := cache.load(ctx, binary, key, digest)
	var refused *RefusedError
	if err != nil && !cache.temporary && ctx.Err() == nil && !errors.As(err, &refused) && !errors.Is(err, errNoChild) {
		e.logger.Warn("compile cache failed, module is compiled in a temporary folder", "digest", digest, "error", err)
		if cache, err = e.spareCache(ctx); err == nil {
			compiled, err = cache.load(ctx, binary, key, digest)
		}
	}
	switch {
	case errors.As(err, &refused):
		e.logger.Debug("module does not compile", "digest", digest, "error", err)
		return nil, nil, refused
	case err != nil:
		return nil, nil, fmt.Errorf("load module %q: %w", digest, err)
	}
	e.logger.Debug("module loaded", "digest", digest, "duration", time.Since(started))
	return compiled, cache, nil
}

// invalid refuses what the compiler did not take. The text is the compiler's, and a part of it may
// be the file's.
func invalid(text string) *RefusedError {
	reason, _, _ := strings.Cut(text, "\n")
	return refuse("not a valid WebAssembly module: "+label(reason), "",
		"build it again, without proposals beyond WebAssembly 2.0")
}

// try makes an instance and drops it: whether the segments of a module fit into its memory is known
// only then. Nothing of the module runs. The hold that the code began with goes with the instance.
func (m *Module) try() error {
	i, err := m.instantiate(max(m.info.MemoryMin, wasm.PageSize))
	if err == nil {
		return i.close()
	}
	var fault *faultError
	if errors.As(err, &fault) {
		return fmt.Errorf("try module %q: %w", m.info.Digest, fault.err)
	}
	reason, _, _ := strings.Cut(err.Error(), "\n")
	return refuse("the module cannot be instantiated: "+label(reason), "", "build it again")
}
