package plugins

import (
	"fmt"
	"sync"

	"github.com/quern-project/quern/plugins/manifest"
	"github.com/quern-project/quern/runtime/bundle"
)

// holdings is the memory that the plugins of each tenant hold as long as they serve: files that modules carry, the
// descriptions of modules, and what manifests name. What several plugins of a tenant share counts once; what several
// tenants share counts for each of them, so that it stays paid for when one of them leaves.
type holdings struct {
	hold func(tenant string, bytes int64) (give func())

	mu   sync.Mutex
	held map[holding]*held // guarded by mu
}

// holding is a thing that a tenant holds: the address of what is in memory.
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

// reserve holds a thing once more for a tenant. It returns false if there is no room for it.
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

// reserveVersion holds all that a version needs, or nothing: then it returns an error that more room would end.
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

// release gives things back.
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

// loading is the memory reserved by a load, until a version holds it.
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

// noRoom tells people what to do about bundle.ErrNoRoom.
func noRoom(tenant string) error {
	whose := "the plugins of tenant " + manifest.Quote(tenant)
	if tenant == "" {
		whose = "the plugins of all tenants"
	}
	return fmt.Errorf("%w: what %s carry and name takes all the memory that this host gives them: remove some, or give the host more by --memory",
		bundle.ErrNoRoom, whose)
}
