package plugins

import (
	"context"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/runtime"
)

// pool holds every compiled module once, however many plugins and versions share its bytes. It
// compiles, and closes a module when the last one that shares it has released it.
type pool struct {
	engine *runtime.Engine
	logger hclog.Logger

	mu      sync.Mutex
	modules map[string]*module // by digest; guarded by mu
}

// module is compiled code with the count of its holders.
type module struct {
	*runtime.Module // nil until ready is closed, and if err is set

	digest  string
	ready   chan struct{} // closed by the one who compiles, when that has ended
	gone    chan struct{} // closed by the last holder, when the module is closed
	err     error         // valid after ready
	holders int           // guarded by pool.mu; 0: it is being closed
	// pools are the instances of versions by their content; guarded by pool.mu.
	pools map[identity]*tenantPools
}

// tenantPools are the instances of a module for one manifest and its files, a pool for each tenant. All versions of that
// content share them, whichever plugins they are of.
type tenantPools struct {
	module   *runtime.Module
	versions int // that share them; guarded by pool.mu

	mu       sync.RWMutex
	byTenant map[string]*runtime.Pool
}

// of is the tenant's pool, bound with the profile if it is new.
func (t *tenantPools) of(tenant string, profile func(tenant string) runtime.Profile) *runtime.Pool {
	t.mu.RLock()
	bound := t.byTenant[tenant]
	t.mu.RUnlock()
	if bound != nil {
		return bound
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byTenant[tenant] == nil {
		t.byTenant[tenant] = t.module.Bind(profile(tenant))
	}
	return t.byTenant[tenant]
}

func newPool(engine *runtime.Engine, logger hclog.Logger) *pool {
	return &pool{engine: engine, logger: logger, modules: map[string]*module{}}
}

// acquire returns the module of these bytes, held once more, and compiles it if nobody did. All who
// ask for the same bytes meanwhile share the one result, be it an error. Before it waits for anybody it calls leave,
// for it needs the bytes no more; owner is who takes turns with others at compiling.
func (p *pool) acquire(ctx context.Context, owner, digest string, binary []byte, leave func()) (*module, error) {
	for {
		p.mu.Lock()
		m, found := p.modules[digest]
		if !found {
			m = &module{
				digest: digest, ready: make(chan struct{}), gone: make(chan struct{}), holders: 1, pools: map[identity]*tenantPools{},
			}
			p.modules[digest] = m
			p.mu.Unlock()
			return p.compile(ctx, m, owner, binary, leave)
		}
		closing := m.holders == 0
		if !closing {
			m.holders++
		}
		p.mu.Unlock()
		if closing {
			// Two modules of one digest may share code in the engine: the old one goes first.
			if err := wait(ctx, m.gone); err != nil {
				return nil, err
			}
			continue
		}
		leave()
		return p.join(ctx, m)
	}
}

// share is acquire for who has no bytes at hand, and does not wait: nil if the module is not held by anybody, or is
// not compiled yet.
func (p *pool) share(digest string) *module {
	p.mu.Lock()
	defer p.mu.Unlock()
	m, found := p.modules[digest]
	if !found || m.holders == 0 {
		return nil
	}
	select {
	case <-m.ready: // without an error, for which it would be in the map no more
		m.holders++
		return m
	default:
		return nil
	}
}

// compile fills in the module that the caller has put into the map.
func (p *pool) compile(ctx context.Context, m *module, owner string, binary []byte, leave func()) (*module, error) {
	var decoded *runtime.Decoded
	decoded, m.err = p.engine.Decode(binary)
	leave()
	if m.err == nil {
		m.Module, m.err = decoded.Load(ctx, owner)
	}
	if m.err != nil {
		p.mu.Lock()
		delete(p.modules, m.digest)
		p.mu.Unlock()
	}
	close(m.ready)
	if m.err != nil {
		return nil, m.err
	}
	return m, nil
}

// join waits until the module that the caller holds is compiled.
func (p *pool) join(ctx context.Context, m *module) (*module, error) {
	if err := wait(ctx, m.ready); err != nil {
		p.release(m)
		return nil, err
	}
	if m.err != nil {
		return nil, m.err // nobody needs to release what was never compiled
	}
	return m, nil
}

// sharePools returns the pools of versions of that content, for one version more. The caller holds the module.
func (p *pool) sharePools(m *module, of identity) *tenantPools {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := m.pools[of]
	if t == nil {
		t = &tenantPools{module: m.Module, byTenant: map[string]*runtime.Pool{}}
		m.pools[of] = t
	}
	t.versions++
	return t
}

// releasePools gives them back. The last version closes them.
func (p *pool) releasePools(m *module, of identity) {
	p.mu.Lock()
	t := m.pools[of]
	t.versions--
	last := t.versions == 0
	if last {
		delete(m.pools, of)
	}
	p.mu.Unlock()
	if !last {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, bound := range t.byTenant {
		bound.Close()
	}
}

// release gives back one hold. The last one closes the module, and returns when that is done.
func (p *pool) release(m *module) {
	p.mu.Lock()
	m.holders--
	last := m.holders == 0
	p.mu.Unlock()
	if !last {
		return
	}
	// It is compiled: who compiles is a holder until then, and for good if that goes wrong. The code is
	// freed whatever became of the context of the one who happens to be the last.
	if err := m.Close(context.Background()); err != nil {
		p.logger.Error("cannot close module", "digest", m.digest, "error", err)
	}
	p.mu.Lock()
	delete(p.modules, m.digest)
	p.mu.Unlock()
	close(m.gone)
}

func wait(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
