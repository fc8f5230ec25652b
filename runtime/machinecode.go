package runtime

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"

	"github.com/tetratelabs/wazero"

	"github.com/quern-project/quern/runtime/wasm"
)

// machineCode is the code of a module. It takes several times the size of the module's file. While nobody holds it, it
// may be unloaded; the next hold loads it again from the cache.
type machineCode struct {
	program

	caches   *caches
	metadata int64         // bytes that it takes beside the machine code while it is loaded
	loading  chan struct{} // full while the code is being loaded or unloaded

	mu       sync.Mutex
	holders  int                   // instances, and calls that are about to make one
	compiled wazero.CompiledModule // nil while it is not loaded
	backend  *backend              // that loaded it
	bytes    int64                 // that it takes while it is loaded
}

// newCode is the code of a rewritten module: not loaded yet, and held once.
func (c *caches) newCode(module *wasm.Rewritten, digest string) *machineCode {
	sum := sha256.Sum256(module.Binary)
	return &machineCode{
		program: program{
			key: hex.EncodeToString(sum[:]), digest: digest, size: module.Code, source: newSource(c.main.dir, module.Binary, c.logger),
		},
		caches: c, metadata: metadataSize(module), loading: make(chan struct{}, 1), holders: 1,
	}
}

// hold holds the code, after loading it if necessary.
func (c *machineCode) hold(ctx context.Context) error {
	if c.tryHold() {
		return nil
	}
	select {
	case c.loading <- struct{}{}:
		defer func() { <-c.loading }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if c.tryHold() {
		return nil
	}
	if err := c.load(ctx); err != nil {
		return err
	}
	c.mu.Lock()
	c.holders++
	c.mu.Unlock()
	return nil
}

func (c *machineCode) tryHold() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.compiled == nil {
		return false
	}
	c.holders++
	return true
}

// release gives a hold back.
func (c *machineCode) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holders--
}

// load loads the code from the cache, after compiling it if necessary.
func (c *machineCode) load(ctx context.Context) error {
	compiled, cache, err := c.caches.load(ctx, &c.program)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.compiled, c.backend = compiled, cache.backend
	c.bytes = cache.size(c.key) + c.metadata
	return nil
}

// unload frees the code unless somebody holds or loads it, and reports whether it did. wazero unmaps it when Go's garbage
// collector finds it.
func (c *machineCode) unload(ctx context.Context) (bool, error) {
	select {
	case c.loading <- struct{}{}:
		defer func() { <-c.loading }()
		return c.drop(ctx)
	default:
		return false, nil
	}
}

// drop does it. The caller has filled loading.
func (c *machineCode) drop(ctx context.Context) (bool, error) {
	c.mu.Lock()
	if c.holders > 0 || c.compiled == nil {
		c.mu.Unlock()
		return false, nil
	}
	compiled := c.compiled
	c.compiled, c.backend, c.bytes = nil, nil, 0
	c.mu.Unlock()
	if err := compiled.Close(ctx); err != nil {
		return true, fmt.Errorf("unload module %q: %w", c.digest, err)
	}
	return true, nil
}

// held is what the code takes now, in bytes.
func (c *machineCode) held() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}

// close unloads the code for good. Nobody may hold it.
func (c *machineCode) close(ctx context.Context) error {
	c.loading <- struct{}{}
	defer func() { <-c.loading }()
	_, err := c.drop(ctx)
	return errors.Join(err, c.source.close())
}
