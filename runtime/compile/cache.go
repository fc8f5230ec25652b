package compile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"

	"github.com/quern-project/quern/runtime/wasm"
)

// Cache keeps the machine code of modules in memory and in a directory. If the directory fails, it uses a temporary
// one.
type Cache struct {
	compiler *compiler
	main     *directory

	mu     sync.Mutex
	spare  *directory       // the temporary directory; nil until main fails
	codes  map[string]*Code // the code of all modules, by key
	pruned time.Time        // when the cache was last pruned
	closed bool
}

// Open checks that the compiler computes correctly, and opens the cache.
func Open(ctx context.Context, cfg Config) (_ *Cache, err error) {
	if err := canary(); err != nil {
		return nil, err
	}
	if cfg.Dir != "" && cfg.Version == unknownVersion {
		cfg.Logger.Warn("no compile cache: the version of wazero is unknown in this build", "cache", cfg.Dir)
		cfg.Dir = ""
	}
	c := &Cache{compiler: newCompiler(cfg), codes: map[string]*Code{}, pruned: time.Now()}
	if c.main, err = c.open(ctx, cfg.Dir); err != nil {
		return nil, err
	}
	if !c.main.temporary {
		c.main.prune(ctx, c.pruned)
	}
	return c, nil
}

func (c *Cache) open(ctx context.Context, dir string) (*directory, error) {
	d, err := openDirectory(ctx, dir, c.compiler)
	if err != nil {
		return nil, err
	}
	rt := d.backend.runtime
	if err = c.compiler.cfg.Imports(ctx, rt); err == nil {
		err = addTick(ctx, rt, c.compiler.cfg.Tick)
	}
	if err != nil {
		return nil, errors.Join(err, d.close(ctx))
	}
	return d, nil
}

// Code returns the code of a rewritten module. The code is not loaded yet, unless another module shares it. If extism
// is true, the module also needs the kernel. The caller closes the code.
func (c *Cache) Code(module *wasm.Rewritten, extism bool) *Code {
	key := keyOf(module.Binary)
	if code := c.share(key, nil); code != nil {
		return code
	}
	created := &Code{
		program: program{
			key: key, size: module.Code, extism: extism,
			source: newSource(c.main.dir, module.Binary, c.compiler.cfg.Logger),
		},
		cache: c, metadata: metadataSize(module),
	}
	code := c.share(key, created)
	if code != created { // another module has added the code first
		_ = created.source.close()
	}
	return code
}

// share returns the code with the key, and counts one more module for it. If there is none, share adds and returns
// created, or returns nil if created is nil.
func (c *Cache) share(key string, created *Code) *Code {
	c.mu.Lock()
	defer c.mu.Unlock()
	code, ok := c.codes[key]
	if !ok {
		if created == nil {
			return nil
		}
		code = created
		c.codes[key] = code
	}
	code.modules++
	return code
}

// LoadTurn waits until it is the owner's turn to load a module of the given size. The caller calls leave after it has
// loaded the module.
func (c *Cache) LoadTurn(ctx context.Context, owner string, bytes int64) (leave func(), err error) {
	return c.compiler.loads.Acquire(ctx, owner, bytes)
}

// load loads a program when it is the owner's turn, and also returns the directory of its entry. When the turn comes,
// load calls loaded. If loaded returns true, another call has loaded the program, and load returns no module.
func (c *Cache) load(ctx context.Context, owner string, p *program,
	loaded func() bool,
) (wazero.CompiledModule, *directory, error) {
	started := time.Now()
	dir := c.main
	compiled, err := dir.load(ctx, owner, p, loaded)
	var refused *Error
	if err != nil && !dir.temporary && ctx.Err() == nil && !errors.As(err, &refused) && !errors.Is(err, errNoChild) &&
		!errors.Is(err, ErrClosed) {
		c.compiler.cfg.Logger.Warn("compile cache failed; compiling in a temporary directory", "digest", p.digest,
			"error", err)
		if dir, err = c.openSpare(ctx); err == nil {
			compiled, err = dir.load(ctx, owner, p, loaded)
		}
	}
	switch {
	case errors.As(err, &refused):
		c.compiler.cfg.Logger.Debug("module does not compile", "digest", p.digest, "error", err)
		return nil, nil, refused
	case err != nil:
		return nil, nil, fmt.Errorf("load module %q: %w", p.digest, err)
	}
	c.compiler.cfg.Logger.Debug("module loaded", "digest", p.digest, "duration", time.Since(started))
	return compiled, dir, nil
}

// openSpare returns the temporary directory, and makes it at the first call.
func (c *Cache) openSpare(ctx context.Context) (*directory, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return nil, ErrClosed // nobody would close it
	case c.spare != nil:
		return c.spare, nil
	}
	var err error
	c.spare, err = c.open(ctx, "")
	return c.spare, err
}

// Prune removes entries that have not been used for long, except the entries of open modules. It does so at most twice
// an hour.
func (c *Cache) Prune(ctx context.Context, now time.Time) {
	c.mu.Lock()
	if now.Sub(c.pruned) < pruneInterval {
		c.mu.Unlock()
		return
	}
	c.pruned = now
	directories, keys := []*directory{c.main}, slices.Collect(maps.Keys(c.codes))
	if c.spare != nil {
		directories = append(directories, c.spare)
	}
	c.mu.Unlock()
	for _, dir := range directories {
		for _, key := range keys {
			dir.touch(key, now)
		}
		dir.prune(ctx, now)
	}
}

// Close closes the cache and all code. Later loads fail.
func (c *Cache) Close(ctx context.Context) error {
	c.compiler.close()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	err := c.main.close(ctx)
	if c.spare != nil {
		err = errors.Join(err, c.spare.close(ctx))
	}
	return err
}
