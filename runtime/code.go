package runtime

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/tetratelabs/wazero"
)

// code is the machine code of a module. It takes several times the size of the module's file, so while nobody
// holds it, it may be unloaded, and is loaded again from the cache on disk when somebody does.
type code struct {
	engine *Engine
	key    string // in the cache
	digest string // of the module's file
	source source

	loading chan struct{} // holds one while the code is loaded or unloaded

	mu       sync.Mutex
	holders  int                   // instances, and calls that are about to make one
	compiled wazero.CompiledModule // nil while it is not loaded
	backend  *backend              // which loaded it
	bytes    int64                 // that it takes while it is loaded
}

// newCode makes the code of a module as it was written anew, and loads it. It is held once.
func (e *Engine) newCode(ctx context.Context, binary []byte, digest string) (*code, error) {
	sum := sha256.Sum256(binary)
	c := &code{engine: e, key: hex.EncodeToString(sum[:]), digest: digest, loading: make(chan struct{}, 1), holders: 1}
	if err := c.load(ctx, binary); err != nil {
		return nil, err
	}
	c.source = e.keep(binary)
	return c, nil
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
	binary, err := c.source.read()
	if err != nil {
		return fmt.Errorf("load module %q again: %w", c.digest, err)
	}
	if err := c.load(ctx, binary); err != nil {
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
func (c *code) load(ctx context.Context, binary []byte) error {
	compiled, cache, err := c.engine.compile(ctx, binary, c.key, c.digest)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.compiled, c.backend = compiled, cache.backend
	c.bytes = cache.size(c.key) + int64(len(binary))
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

// source is what code was compiled of. It lies in a file that has no name any more, so that it is there whoever
// changes the plugin's file or tidies the cache, and goes with the process. Where there can be no such file it
// stays in memory.
type source struct {
	file   *os.File
	binary []byte
}

// keep makes the source of a module.
func (e *Engine) keep(binary []byte) source {
	file, err := os.CreateTemp(e.cache.dir, stagePrefix+"source-") // so that one that a crash leaves goes as stages do
	if err == nil {
		_, err = file.Write(binary)
		err = errors.Join(err, os.Remove(file.Name()))
		if err == nil {
			return source{file: file}
		}
		err = errors.Join(err, file.Close())
	}
	e.logger.Warn("a module stays in memory: no file for it in the compile cache", "error", err)
	return source{binary: binary}
}

func (s source) read() ([]byte, error) {
	if s.file == nil {
		return s.binary, nil
	}
	info, err := s.file.Stat()
	if err != nil {
		return nil, err
	}
	binary := make([]byte, info.Size())
	if _, err := s.file.ReadAt(binary, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return binary, nil
}

func (s source) close() error {
	if s.file == nil {
		return nil
	}
	return s.file.Close()
}
