package plugins

import (
	"fmt"
	"sync"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime/bundle"
)

// holdings counts the memory that the plugins of each tenant keep as long as they serve: files that modules carry,
// the descriptions of modules, and the files that manifests name. Memory that several plugins of a tenant share
// counts once. Memory that several tenants share counts for each tenant, so that it still counts after one of them
// has left.
type holdings struct {
	hold func(tenant string, bytes int64) (give func())

	mu   sync.Mutex
	held map[holding]*held // guarded by mu
}

// holding identifies one object in memory, by its address, and the tenant that keeps it.
type holding struct {
	tenant string
	of     any
}

type held struct {
	users int
	give  func()
}

func newHoldings(hold func(tenant string, bytes int64) (give func())) *holdings {
	return &holdings{hold: hold, held: make(map[holding]*held)}
}

// reserve adds one user of a holding, and reserves the memory for the first user. It returns false if there is no room.
func (h *holdings) reserve(of holding, bytes int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.held[of]
	if one == nil {
		give := h.hold(of.tenant, bytes)
		if give == nil {
			return false
		}
		one = &held{give: give}
		h.held[of] = one
	}
	one.users++
	return true
}

// reserveVersion reserves all memory that a version keeps. If there is no room, it reserves nothing and returns
// bundle.ErrNoRoom.
func (h *holdings) reserveVersion(tenant string, m *module, c *contents) (all []holding, err error) {
	reserve := func(of any, bytes int64) bool {
		one := holding{tenant, of}
		if !h.reserve(one, bytes) {
			h.release(all)
			return false
		}
		all = append(all, one)
		return true
	}
	for _, files := range m.Carried() {
		if !reserve(files, files.Size()) {
			return nil, bundle.ErrNoRoom
		}
	}
	if code, bytes := m.Names(); !reserve(code, bytes) {
		return nil, bundle.ErrNoRoom
	}
	if !reserve(m, m.Holds()) || c.size() > 0 && !reserve(c, c.size()) {
		return nil, bundle.ErrNoRoom
	}
	return all, nil
}

// release removes one user of each holding, and gives the memory back after the last user.
func (h *holdings) release(all []holding) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, of := range all {
		one := h.held[of]
		if one.users--; one.users == 0 {
			delete(h.held, of)
			one.give()
		}
	}
}

// loading records the memory that a load reserves while it runs. end gives this memory back; the version that the load
// makes then reserves its own.
type loading struct {
	*holdings
	tenant string
	given  []func()
}

func (p *loading) reserve(bytes int64) bool {
	give := p.hold(p.tenant, bytes)
	if give != nil {
		p.given = append(p.given, give)
	}
	return give != nil
}

func (p *loading) end() {
	for _, give := range p.given {
		give()
	}
	p.given = nil
}

// noRoom wraps bundle.ErrNoRoom with what to do about it.
func noRoom(tenant string) error {
	whose := "the plugins of tenant " + manifest.Quote(tenant)
	if tenant == "" {
		whose = "the plugins of all tenants"
	}
	return fmt.Errorf("%w: what %s carry and name takes all the memory that this host gives them: remove some, or give the host more by --memory",
		bundle.ErrNoRoom, whose)
}
