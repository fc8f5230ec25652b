package runtime

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/tetratelabs/wazero"

	"github.com/quern-project/quern/runtime/snapshot"
	"github.com/quern-project/quern/runtime/wasm"
)

// machineCode is the code of a module, several times the size of its file. It may be unloaded while nobody holds it. Modules
// that differ only in the files that they carry, such as those of one interpreter, share it.
type machineCode struct {
	program

	caches   *caches
	modules  int          // that have it; guarded by caches.mu
	metadata int64        // bytes beside the machine code while it is loaded
	used     atomic.Int64 // when a call of a module began or ended last, or one was loaded, in ns of Unix time

	mu       sync.Mutex
	base     *snapshot.Image       // whose pages the snapshots of other pools share; perhaps closed
	holders  int                   // instances, and calls that are about to make one
	compiled wazero.CompiledModule // nil while it is not loaded
	backend  *backend              // that loaded it
	bytes    int64                 // that it takes while it is loaded
}

// code returns the code of a rewritten module, which is not loaded unless another module has it. The caller closes it.
func (c *caches) code(module *wasm.Rewritten, kind Kind) *machineCode {
	key := keyOf(module.Binary)
	if code := c.find(key, nil); code != nil {
		return code
	}
	made := &machineCode{
		program: program{key: key, size: module.Code, extism: kind == Extism, source: newSource(c.main.dir, module.Binary, c.logger)},
		caches:  c, metadata: metadataSize(module),
	}
	code := c.find(key, made)
	if code != made { // another module came first
		_ = made.source.close()
	}
	return code
}

// find returns the code with the key for one module more: made, which may be nil, if there is none yet.
func (c *caches) find(key string, made *machineCode) *machineCode {
	c.mu.Lock()
	defer c.mu.Unlock()
	code, ok := c.codes[key]
	if !ok {
		if made == nil {
			return nil
		}
		code = made
		c.codes[key] = code
	}
	code.modules++
	return code
}

// hold holds the code, after loading it from the cache, and compiling it, if necessary, when it is the module's owner's turn.
// The digest is the module's. Owners that share the code do not wait for each other's turns: each loads it, unless it is
// loaded when its turn has come.
func (c *machineCode) hold(ctx context.Context, owner, digest string) error {
	for !c.tryHold() {
		asked := c.program
		asked.digest = digest
		compiled, cache, err := c.caches.load(ctx, owner, &asked, c.loaded)
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
			c.compiled, c.backend = compiled, cache.backend
			c.bytes = cache.size(c.key) + c.metadata
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

func (c *machineCode) loaded() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.compiled != nil
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

// unload frees the code unless somebody holds it, and returns its bytes. Go's garbage collector unmaps it.
func (c *machineCode) unload(ctx context.Context) (freed int64, err error) {
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
	_, err := c.unload(ctx)
	return errors.Join(err, c.source.close())
}

// take takes a snapshot of a memory. It shares pages with the base, if there is one and it is alike; else it becomes the base,
// unless it is to be replaced soon.
func (c *machineCode) take(contents []byte, lasting bool) (*snapshot.Image, error) {
	c.mu.Lock()
	base := c.base
	c.mu.Unlock()
	image, err := snapshot.Take(contents, base)
	if err == nil && lasting && !image.Shares() {
		c.mu.Lock()
		c.base = image
		c.mu.Unlock()
	}
	return image, err
}
