package runtime

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/tetratelabs/wazero"

	"github.com/quern-project/quern/runtime/snapshot"
	"github.com/quern-project/quern/runtime/wasm"
)

// machineCode is the code of a module, several times the size of its file. It may be unloaded while nobody holds it. Modules
// that differ in their custom sections alone, such as those of one interpreter, share it.
type machineCode struct {
	program

	caches   *caches
	modules  int           // that have it; guarded by caches.mu
	metadata int64         // bytes beside the machine code while it is loaded
	loading  chan struct{} // full while the code is being loaded or unloaded
	used     atomic.Int64  // when a call of a module began or ended last, or one was loaded, in ns of Unix time

	mu       sync.Mutex
	image    *snapshot.Image       // the first one, with which others share pages; perhaps closed
	holders  int                   // instances, and calls that are about to make one
	compiled wazero.CompiledModule // nil while it is not loaded
	backend  *backend              // that loaded it
	bytes    int64                 // that it takes while it is loaded
}

// code returns the code of a rewritten module, which is not loaded unless another module has it. The caller closes it.
func (c *caches) code(module *wasm.Rewritten, digest string) *machineCode {
	sum := sha256.Sum256(module.Binary)
	key := hex.EncodeToString(sum[:])
	c.mu.Lock()
	defer c.mu.Unlock()
	code, ok := c.codes[key]
	if !ok {
		code = &machineCode{
			program: program{key: key, digest: digest, size: module.Code, source: newSource(c.main.dir, module.Binary, c.logger)},
			caches:  c, metadata: metadataSize(module), loading: make(chan struct{}, 1),
		}
		c.codes[key] = code
	}
	code.modules++
	return code
}

// hold holds the code, after loading it from the cache, and compiling it, if necessary, when it is the owner's turn.
func (c *machineCode) hold(ctx context.Context, owner string) error {
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
	compiled, cache, err := c.caches.load(ctx, owner, &c.program)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holders++
	c.compiled, c.backend = compiled, cache.backend
	c.bytes = cache.size(c.key) + c.metadata
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

// unload frees the code unless somebody holds or loads it, and returns its bytes. Go's garbage collector unmaps it.
func (c *machineCode) unload(ctx context.Context) (freed int64, err error) {
	select {
	case c.loading <- struct{}{}:
		defer func() { <-c.loading }()
		return c.drop(ctx)
	default:
		return 0, nil
	}
}

// drop does it. The caller has filled loading.
func (c *machineCode) drop(ctx context.Context) (freed int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.holders > 0 || c.compiled == nil {
		return 0, nil
	}
	if err = c.compiled.Close(ctx); err != nil {
		err = fmt.Errorf("unload module %q: %w", c.digest, err)
	}
	freed = c.bytes
	c.compiled, c.backend, c.bytes = nil, nil, 0
	return freed, err
}

// held is the bytes that the code takes now.
func (c *machineCode) held() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}

// close unloads the code for good when the last module closes it. No instance of the module may hold it.
func (c *machineCode) close(ctx context.Context) error {
	c.caches.mu.Lock()
	c.modules--
	last := c.modules == 0
	if last {
		delete(c.caches.codes, c.key)
	}
	c.caches.mu.Unlock()
	if !last {
		return nil
	}
	c.loading <- struct{}{}
	defer func() { <-c.loading }()
	_, err := c.drop(ctx)
	return errors.Join(err, c.source.close())
}

// take takes a snapshot of a memory. It shares pages with the first one that another of these instances has left.
func (c *machineCode) take(contents []byte) (*snapshot.Image, error) {
	c.mu.Lock()
	like := c.image
	c.mu.Unlock()
	image, err := snapshot.Take(contents, like)
	if err == nil && !image.Shares() {
		c.mu.Lock()
		c.image = image
		c.mu.Unlock()
	}
	return image, err
}
