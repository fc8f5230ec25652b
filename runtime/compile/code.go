package compile

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/quern-project/quern/runtime/snapshot"
)

// Code is the machine code of a module, several times the size of the module's file. It may be unloaded while nobody
// holds it. Modules that differ only in the files that they carry, such as plugins for one interpreter, share their
// Code.
type Code struct {
	// Base is a snapshot of a guest's memory whose pages later snapshots share. Nil for none. The snapshot may be
	// closed already.
	Base atomic.Pointer[snapshot.Image]

	program
	cache    *Cache
	modules  int   // how many share the code; guarded by cache.mu
	metadata int64 // bytes beside the machine code while it is loaded

	mu       sync.Mutex
	holders  int                   // instances, and calls that are about to make one
	compiled wazero.CompiledModule // nil while it is not loaded
	backend  *backend              // the backend that loaded the code
	bytes    int64                 // the memory that the code takes while it is loaded
}

// Hold holds the code. If the code is not loaded, Hold loads it from the cache when it is the owner's turn, and
// compiles it first if necessary. digest names the owner's module in the log. Owners that share the code do not wait
// for each other's turns: each owner loads the code, unless it is loaded when the owner's turn comes.
func (c *Code) Hold(ctx context.Context, owner, digest string) error {
	for !c.TryHold() {
		program := c.program
		program.digest = digest
		compiled, dir, err := c.cache.load(ctx, owner, &program, func() bool { return c.Bytes() > 0 })
		if err != nil {
			return err
		}
		if compiled == nil {
			continue // it is loaded
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.holders++
		if c.compiled == nil {
			c.compiled, c.backend = compiled, dir.backend
			c.bytes = dir.size(c.key) + c.metadata
			return nil
		}
		if err := compiled.Close(ctx); err != nil { // another load was faster
			c.holders--
			return err
		}
		return nil
	}
	return nil
}

// TryHold holds the code if it is loaded, and reports whether it did.
func (c *Code) TryHold() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.compiled == nil {
		return false
	}
	c.holders++
	return true
}

// Release ends a hold.
func (c *Code) Release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holders--
}

// Name returns wazero's name for the module. The caller holds the code.
func (c *Code) Name() string { return c.compiled.Name() }

// Instantiate makes an instance of the module. The caller holds the code, for as long as the instance lives.
func (c *Code) Instantiate(ctx context.Context, config wazero.ModuleConfig) (api.Module, error) {
	return c.backend.runtime.InstantiateModule(ctx, c.compiled, config)
}

// InstantiateKernel makes an instance of the kernel that an Extism plugin imports from, like Instantiate.
func (c *Code) InstantiateKernel(ctx context.Context, config wazero.ModuleConfig) (api.Module, error) {
	return c.backend.runtime.InstantiateModule(ctx, *c.backend.kernel.Load(), config)
}

// Unload frees the code unless somebody holds it, and returns how many bytes it freed. Go's garbage collector unmaps
// the code.
func (c *Code) Unload(ctx context.Context) (freed int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holders > 0 || c.compiled == nil {
		return 0, nil
	}
	err = c.compiled.Close(ctx)
	freed = c.bytes
	c.compiled, c.backend, c.bytes = nil, nil, 0
	return freed, err
}

// Bytes returns the memory that the code takes now: 0 if it is not loaded.
func (c *Code) Bytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}

// Close unloads the code for good when the last module closes it. No instance of the module may hold it.
func (c *Code) Close(ctx context.Context) error {
	c.cache.mu.Lock()
	c.modules--
	last := c.modules == 0
	if last {
		delete(c.cache.codes, c.key)
	}
	c.cache.mu.Unlock()
	if !last {
		return nil
	}
	_, err := c.Unload(ctx)
	return errors.Join(err, c.source.close())
}
