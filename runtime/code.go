package runtime

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/tetratelabs/wazero"

	"github.com/quern-project/quern/runtime/wasm"
)

// code is the machine code of a module. It takes several times the size of the module's file, so while nobody
// holds it, it may be unloaded, and is loaded again from the cache on disk when somebody does.
type code struct {
	engine *Engine
	owner  string // who takes turns with others at loading and compiling
	key    string // in the cache
	digest string // of the module's file
	size   int    // of the code section in the file, in bytes
	beside int64  // bytes that it takes beside the machine code while it is loaded
	source source

	loading chan struct{} // holds one while the code is loaded or unloaded

	mu       sync.Mutex
	holders  int                   // instances, and calls that are about to make one
	compiled wazero.CompiledModule // nil while it is not loaded
	backend  *backend              // which loaded it
	bytes    int64                 // that it takes while it is loaded
}

// newCode makes the code of a module as it was written anew. It is not loaded yet, and held once.
func (e *Engine) newCode(module *wasm.Rewritten, digest string) *code {
	sum := sha256.Sum256(module.Binary)
	return &code{
		engine: e, key: hex.EncodeToString(sum[:]), digest: digest, size: module.Code, beside: kept(module),
		source: e.keep(module.Binary), loading: make(chan struct{}, 1), holders: 1,
	}
}

// hold loads the code if it is not, and holds it.
func (c *code) hold(ctx context.Context) error {
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

func (c *code) tryHold() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.compiled == nil {
		return false
	}
	c.holders++
	return true
}

// release gives a hold back.
func (c *code) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.holders--
}

// load gets the code from the cache, after it was compiled into it if it was not.
func (c *code) load(ctx context.Context) error {
	compiled, cache, err := c.engine.compile(ctx, c)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.compiled, c.backend = compiled, cache.backend
	c.bytes = cache.size(c.key) + c.beside
	return nil
}

// unload gives the memory of the code back if nobody holds or loads it, and tells whether it did. wazero unmaps it
// when Go's collector finds that it is gone.
func (c *code) unload(ctx context.Context) (bool, error) {
	select {
	case c.loading <- struct{}{}:
		defer func() { <-c.loading }()
		return c.drop(ctx)
	default:
		return false, nil
	}
}

// drop does it for who has the slot.
func (c *code) drop(ctx context.Context) (bool, error) {
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
func (c *code) held() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}

// close unloads the code for good. Nobody may hold it.
func (c *code) close(ctx context.Context) error {
	c.loading <- struct{}{} // who has the slot gives it back soon
	defer func() { <-c.loading }()
	_, err := c.drop(ctx)
	return errors.Join(err, c.source.close())
}

// source is what code is compiled of. It lies in a file that has no name any more, so that nothing big stays in memory
// while a module waits for its turn, or is idle; so that it is there whoever changes the plugin's file or tidies the
// cache; and so that it goes with the process. Where there can be no such file it stays in memory.
type source struct {
	file   *os.File
	binary []byte
	size   int64
}

// keep makes the source of a module.
func (e *Engine) keep(binary []byte) source {
	size := int64(len(binary))
	file, err := os.CreateTemp(e.cache.dir, stagePrefix+"source-") // so that one that a crash leaves goes as stages do
	if err == nil {
		_, err = file.Write(binary)
		err = errors.Join(err, os.Remove(file.Name()))
		if err == nil {
			return source{file: file, size: size}
		}
		err = errors.Join(err, file.Close())
	}
	e.logger.Warn("a module stays in memory: no file for it in the compile cache", "error", err)
	return source{binary: binary, size: size}
}

// reader reads the source from its beginning.
func (s source) reader() io.Reader {
	if s.file == nil {
		return bytes.NewReader(s.binary)
	}
	return io.NewSectionReader(s.file, 0, s.size)
}

func (s source) read() ([]byte, error) {
	if s.file == nil {
		return s.binary, nil
	}
	binary := make([]byte, s.size)
	_, err := io.ReadFull(s.reader(), binary)
	return binary, err
}

func (s source) close() error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}

// What wazero keeps of a module in bytes, as measured, beside the contents of its sections.
const (
	perLocal   = 8
	perElement = 48
	perEntry   = 170 // of a section: a global, which is exported too; a type takes 136, a function 100, an export 94
)

// kept is the most that wazero keeps of a module beside the machine code, in bytes. An eighth is for how Go rounds sizes up.
func kept(module *wasm.Rewritten) int64 {
	contents := int64(len(module.Binary)) + perLocal*int64(module.Locals)
	return contents + contents/8 + perElement*int64(module.Elements) + perEntry*int64(module.Entries)
}
