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

// Code is the machine code of a module, several times the size of the module's file. It can be unloaded while nobody
// holds it. Modules that differ only in the files that they carry, such as plugins for one interpreter, share their
// Code.
type Code struct {
	// Base is a snapshot of a guest's memory; later snapshots share its pages. It is nil if there is none. The snapshot
	// may be closed already.
	Base atomic.Pointer[snapshot.Image]

	program
	cache    *Cache
	modules  int   // number of modules that share the code; guarded by cache.mu
	metadata int64 // bytes that wazero keeps in addition to the machine code while the code is loaded

	mu       sync.Mutex
	holders  int                   // number of instances, and of calls that are about to make one
	compiled wazero.CompiledModule // nil while the code is not loaded
	backend  *backend              // the backend that loaded the code
	bytes    int64                 // memory that the loaded code takes; 0 while the code is not loaded
}

// Hold keeps the code in memory until Release. If the code is not loaded, Hold loads it from the cache when it is the
// owner's turn, and compiles it first if necessary. digest names the owner's module in the log. Owners that share the
// code do not wait for each other's turns: each owner loads the code, unless it is loaded when the owner's turn comes.
func (c *Code) Hold(ctx context.Context, owner, digest string) error {
	for !c.TryHold() {
		program := c.program
		program.digest = digest
		compiled, dir, err := c.cache.load(ctx, owner, &program, func() bool { return c.Bytes() > 0 })
		if err != nil {
			return err
		}
		if compiled == nil {
			continue // another call has loaded the code
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.holders++
		if c.compiled == nil {
			c.compiled, c.backend = compiled, dir.backend
			c.bytes = dir.size(c.key) + c.metadata
			return nil
		}
		if err := compiled.Close(ctx); err != nil { // another call has loaded the code first
			c.holders--
			return err
		}
		return nil
	}
	return nil
}

// TryHold holds the code if it is loaded, and reports whether it is.
func (c *Code) TryHold() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.compiled == nil {
		return false
	}
	c.holders++
	return true
}

// Release ends one Hold or TryHold.
func (c *Code) Release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holders--
}

// Name returns wazero's name for the module. The caller holds the code.
func (c *Code) Name() string { return c.compiled.Name() }

// Instantiate makes an instance of the module. The caller must hold the code as long as the instance lives.
func (c *Code) Instantiate(ctx context.Context, config wazero.ModuleConfig) (api.Module, error) {
	return c.backend.runtime.InstantiateModule(ctx, c.compiled, config)
}

// InstantiateKernel makes an instance of the kernel that an Extism plugin imports from. The caller must hold the code
// as long as the instance lives.
func (c *Code) InstantiateKernel(ctx context.Context, config wazero.ModuleConfig) (api.Module, error) {
	return c.backend.runtime.InstantiateModule(ctx, *c.backend.kernel.Load(), config)
}

// Unload frees the code unless somebody holds it, and returns the number of freed bytes. Go's garbage collector unmaps
// the code later.
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

// Bytes returns the memory that the code takes now, in bytes. It returns 0 if the code is not loaded.
func (c *Code) Bytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}

// Close ends the use of the code by one module. When the last module closes the code, it is unloaded for good. No
// instance of the module must be left.
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
