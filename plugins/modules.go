package plugins

import (
	"context"
	"errors"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/bundle"
)

// modules holds every compiled module once, however many plugins and versions share its bytes. It
// compiles, and closes a module when the last one that shares it has released it.
type modules struct {
	engine *runtime.Engine
	logger hclog.Logger

	mu       sync.Mutex
	byDigest map[string]*module // guarded by mu
}

// module is compiled code with the count of its holders.
type module struct {
	*runtime.Module // nil until ready is closed, and if err is set

	digest  string
	ready   chan struct{} // closed by the one who compiles, when that has ended
	gone    chan struct{} // closed by the last holder, when the module is closed
	err     error         // valid after ready
	holders int           // guarded by modules.mu; 0: it is being closed
	file    fingerprint   // of the file in which it was found last, if that could not change unseen; guarded by modules.mu
	// pools are the instances of versions by their content; guarded by modules.mu.
	pools map[identity]*tenantPools
}

// tenantPools are the pools, by tenant, that all versions of one content share, whichever plugins they are of.
type tenantPools struct {
	module   *runtime.Module
	versions int // that share them; guarded by modules.mu

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

// acquire returns the module of these bytes, held once more, and compiles it if nobody did; owners take turns at compiling.
// All who ask for the same bytes meanwhile share the result, be it an error. reserve is asked for the memory of files that the module
// carries. It calls leave when it needs the bytes no more.
func (s *modules) acquire(ctx context.Context, owner, digest string, binary []byte, reserve func(bytes int64) bool, leave func()) (*module, error) {
	for {
		s.mu.Lock()
		m, found := s.byDigest[digest]
		if !found {
			m = &module{digest: digest, ready: make(chan struct{}), gone: make(chan struct{}), pools: map[identity]*tenantPools{}}
			s.byDigest[digest] = m
		}
		closing := found && m.holders == 0
		if !closing {
			m.holders++
		}
		s.mu.Unlock()
		switch {
		case !found:
			return m, s.compile(ctx, m, owner, binary, reserve, leave)
		case !closing:
			leave()
			if err := wait(ctx, m.ready); err != nil {
				s.release(m)
				return nil, err
			}
			if errors.Is(m.err, bundle.ErrNoRoom) {
				return nil, errUnstable // that was another owner's room: it is loaded again
			}
			return m, m.err // after which nobody needs to release it
		}
		// Two modules of one digest may share code in the engine: the old one goes first.
		if err := wait(ctx, m.gone); err != nil {
			return nil, err
		}
	}
}

// share is acquire without bytes and without waiting: nil if nobody holds the module, or it is not compiled yet.
func (s *modules) share(digest string) *module {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, found := s.byDigest[digest]
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

// note notes in which file a load found the module.
func (s *modules) note(m *module, r *loadResult) {
	if f := r.file.fingerprint; !f.young(r.readAt, settleTime) {
		s.mu.Lock()
		m.file = f
		s.mu.Unlock()
	}
}

// digest is that of the module which the file is known to have, since many plugins may link to one file; "" for none.
func (s *modules) digest(f fingerprint) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for digest, m := range s.byDigest {
		if m.file.info != nil && m.file.same(f) {
			return digest
		}
	}
	return ""
}

// compile fills in the module that the caller has put into the map, or else takes it out again.
func (s *modules) compile(ctx context.Context, m *module, owner string, binary []byte, reserve func(bytes int64) bool, leave func()) error {
	var decoded *runtime.Decoded
	decoded, m.err = s.engine.Decode(binary, reserve)
	leave()
	if m.err == nil {
		m.Module, m.err = decoded.Load(ctx, owner)
	}
	if m.err != nil {
		s.mu.Lock()
		delete(s.byDigest, m.digest)
		s.mu.Unlock()
	}
	close(m.ready)
	return m.err
}

// sharePools returns the pools of versions of that content, for one version more. The caller holds the module.
func (s *modules) sharePools(m *module, of identity) *tenantPools {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := m.pools[of]
	if t == nil {
		t = &tenantPools{module: m.Module, byTenant: map[string]*runtime.Pool{}}
		m.pools[of] = t
	}
	t.versions++
	return t
}

// releasePools gives them back. The last version closes them.
func (s *modules) releasePools(m *module, of identity) {
	s.mu.Lock()
	t := m.pools[of]
	t.versions--
	last := t.versions == 0
	if last {
		delete(m.pools, of)
	}
	s.mu.Unlock()
	if last {
		for _, bound := range t.byTenant {
			bound.Close()
		}
	}
}

// release gives back one hold. The last one closes the module, and returns when that is done.
func (s *modules) release(m *module) {
	s.mu.Lock()
	m.holders--
	last := m.holders == 0
	s.mu.Unlock()
	if !last {
		return
	}
	// It is compiled: who compiles is a holder until then, and for good if that goes wrong. The code is
	// freed whatever became of the context of the one who happens to be the last.
	if err := m.Close(context.Background()); err != nil {
		s.logger.Error("cannot close module", "digest", m.digest, "error", err)
	}
	s.mu.Lock()
	delete(s.byDigest, m.digest)
	s.mu.Unlock()
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
