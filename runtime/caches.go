package runtime

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/tetratelabs/wazero"
)

// caches are an engine's compile cache, and a temporary one for when that fails.
type caches struct {
	main   *diskCache
	open   func(ctx context.Context, dir string) (*diskCache, error)
	logger hclog.Logger

	mu     sync.Mutex
	spare  *diskCache              // nil until main fails
	codes  map[string]*machineCode // of all modules, by key
	closed bool
}

// openCaches opens the cache in dir, or a temporary one if dir is empty. imports adds to a wazero runtime what guests import.
func openCaches(ctx context.Context, dir, version string, compiler *compiler, imports func(context.Context, wazero.Runtime) error, logger hclog.Logger) (_ *caches, err error) {
	if dir != "" && version == unknownVersion {
		logger.Warn("no compile cache: the version of wazero is unknown in this build", "cache", dir)
		dir = ""
	}
	c := &caches{logger: logger, codes: map[string]*machineCode{}}
	c.open = func(ctx context.Context, dir string) (*diskCache, error) {
		opened, err := openDiskCache(ctx, dir, version, compiler, logger)
		if err != nil {
			return nil, err
		}
		if err := imports(ctx, opened.backend.runtime); err != nil {
			return nil, errors.Join(err, opened.close(ctx))
		}
		return opened, nil
	}
	c.main, err = c.open(ctx, dir)
	if err == nil && !c.main.temporary {
		c.main.prune(ctx, time.Now())
	}
	return c, err
}

// load loads a program when it is the owner's turn, and returns the cache that it is from; or nothing if it is loaded then.
func (c *caches) load(ctx context.Context, owner string, p *program, loaded func() bool) (wazero.CompiledModule, *diskCache, error) {
	started := time.Now()
	cache := c.main
	compiled, err := cache.load(ctx, owner, p, loaded)
	var refused *RefusedError
	if err != nil && !cache.temporary && ctx.Err() == nil && !errors.As(err, &refused) && !errors.Is(err, errNoChild) && !errors.Is(err, ErrClosed) {
		c.logger.Warn("compile cache failed; compiling in a temporary directory", "digest", p.digest, "error", err)
		if cache, err = c.openSpare(ctx); err == nil {
			compiled, err = cache.load(ctx, owner, p, loaded)
		}
	}
	switch {
	case errors.As(err, &refused):
		c.logger.Debug("module does not compile", "digest", p.digest, "error", err)
		return nil, nil, refused
	case err != nil:
		return nil, nil, fmt.Errorf("load module %q: %w", p.digest, err)
	}
	c.logger.Debug("module loaded", "digest", p.digest, "duration", time.Since(started))
	return compiled, cache, nil
}

// openSpare opens the temporary cache, once.
func (c *caches) openSpare(ctx context.Context) (*diskCache, error) {
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

// prune removes entries that were not used for long, except those in use.
func (c *caches) prune(ctx context.Context, now time.Time, inUse []string) {
	c.mu.Lock()
	all := []*diskCache{c.main}
	if c.spare != nil {
		all = append(all, c.spare)
	}
	c.mu.Unlock()
	for _, cache := range all {
		for _, key := range inUse {
			cache.touch(key, now)
		}
		cache.prune(ctx, now)
	}
}

func (c *caches) close(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	err := c.main.close(ctx)
	if c.spare != nil {
		err = errors.Join(err, c.spare.close(ctx))
	}
	return err
}
