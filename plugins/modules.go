package plugins

import (
	"context"
	"errors"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/quern-project/quern/runtime"
	"github.com/quern-project/quern/runtime/bundle"
)

// modules keeps one compiled module for all plugins and versions whose modules have the same bytes. It compiles each
// module once, and closes it when the last holder releases it.
type modules struct {
	engine *runtime.Engine
	logger hclog.Logger

	mu       sync.Mutex
	byDigest map[string]*module // guarded by mu
}

// module is compiled code with the count of its holders.
type module struct {
	*runtime.Module // nil until the module is compiled, and if err is set

	digest  string
	ready   chan struct{} // closed when the module is compiled and its first user has it, or if it does not compile
	gone    chan struct{} // closed by the last holder, when the module is closed
	err     error         // why compiling failed; valid once ready is closed
	holders int           // number of holders; 0 while the module is being closed; guarded by modules.mu
	// The fingerprint of the last file with this module that was old enough to trust; guarded by modules.mu.
	file fingerprint
	// pools are the pools of instances, by the content of the versions that share them; guarded by modules.mu.
	pools map[identity]*tenantPools
}

// tenantPools are the pools, one for each tenant, that all versions of one content share, even versions of different
// plugins.
type tenantPools struct {
	module   *runtime.Module
	versions int // number of versions that share the pools; guarded by modules.mu

	mu       sync.RWMutex
	byTenant map[string]*runtime.Pool // guarded by mu
}

// of returns the tenant's pool. It makes a new pool with the profile if there is none.
func (t *tenantPools) of(tenant string, profile func() runtime.Profile) *runtime.Pool {
	t.mu.RLock()
	bound := t.byTenant[tenant]
	t.mu.RUnlock()
	if bound != nil {
		return bound
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byTenant[tenant] == nil {
		t.byTenant[tenant] = t.module.Bind(profile())
	}
	return t.byTenant[tenant]
}

// moduleRequest asks for the module of some bytes.
type moduleRequest struct {
	owner   string // owners take turns at compiling
	digest  string
	binary  []byte
	reserve func(bytes int64) bool // takes memory for the files that the module carries; false if there is none
	leave   func()                 // called when the bytes are no longer needed
	// use takes over one hold of the module. It is not called after an error. For the request that compiles the module,
	// it is called before other requests get the module: its version has then reserved the carried files, and other
	// versions of the tenant do not reserve them again.
	use func(*module)
}

// acquire gets the module for the request, and compiles it if no other request has. Requests for the same bytes that
// come meanwhile share the result, even if it is an error.
func (s *modules) acquire(ctx context.Context, r moduleRequest) error {
	for {
		s.mu.Lock()
		m, found := s.byDigest[r.digest]
		if !found {
			m = &module{
				digest: r.digest, ready: make(chan struct{}), gone: make(chan struct{}),
				pools: map[identity]*tenantPools{},
			}
			s.byDigest[r.digest] = m
		}
		closing := found && m.holders == 0
		if !closing {
			m.holders++
		}
		s.mu.Unlock()
		switch {
		case !found:
			return s.compile(ctx, m, r)
		case !closing:
			r.leave()
			if err := wait(ctx, m.ready); err != nil {
				s.release(m)
				return err
			}
			switch {
			case errors.Is(m.err, bundle.ErrNoRoom):
				return errUnstable // another owner had no room: the caller's owner may have, and loads the file again
			case m.err == nil:
				r.use(m)
			}
			return m.err // after an error nobody needs to release the module
		}
		// Two modules with one digest may share code in the engine: wait until the old one is closed.
		if err := wait(ctx, m.gone); err != nil {
			return err
		}
	}
}

// share returns the module with this digest, held once more for the caller. It does not wait: it returns nil if nobody
// holds the module, or it is not compiled yet.
func (s *modules) share(digest string) *module {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, found := s.byDigest[digest]
	if !found || m.holders == 0 {
		return nil
	}
	select {
	case <-m.ready: // without an error: a module that did not compile is no longer in the map
		m.holders++
		return m
	default:
		return nil
	}
}

// note records the file in which a load found the module, unless the file is too young to trust.
func (s *modules) note(m *module, r *loadResult) {
	if f := r.file.fingerprint; !f.young(r.readAt, settleTime) {
		s.mu.Lock()
		m.file = f
		s.mu.Unlock()
	}
}

// digest returns the digest of the module that an earlier load found in this file, or "" if none did. Many plugins may
// link to one file, which is then read once.
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

// compile compiles the module that the caller has put into the map. On an error it removes the module from the map.
func (s *modules) compile(ctx context.Context, m *module, r moduleRequest) error {
	defer close(m.ready)
	var decoded *runtime.Decoded
	decoded, m.err = s.engine.Decode(r.binary, r.reserve)
	r.leave()
	if m.err == nil {
		m.Module, m.err = decoded.Load(ctx, r.owner)
	}
	if m.err == nil {
		r.use(m)
		return nil
	}
	s.mu.Lock()
	delete(s.byDigest, m.digest)
	s.mu.Unlock()
	return m.err
}

// sharePools returns the pools of the versions with this content, and counts one more version. The caller must hold the
// module.
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

// releasePools removes one version from the count, and closes the pools after the last one.
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

// release gives back one hold. After the last hold it closes the module, and waits until that is done.
func (s *modules) release(m *module) {
	s.mu.Lock()
	m.holders--
	last := m.holders == 0
	s.mu.Unlock()
	if !last {
		return
	}
	// The module is compiled: the goroutine that compiles it holds it until then, and never releases it if compiling
	// fails. The code must be freed even if the context of the last holder has ended.
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
