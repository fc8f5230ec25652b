package plugins

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/quern-project/quern/plugins/manifest"
)

// Binding says that a plugin serves a queue of a tenant.
type Binding struct {
	Tenant, Queue, Plugin string
}

// Status says whether one version of a plugin serves. A plugin whose new files are refused while the last good version
// serves has two statuses.
type Status struct {
	// Tenant is "" for a plugin that serves every tenant.
	Tenant string
	Plugin string
	// Version is the manifest's version; "" if the manifest has none or cannot be read.
	Version string
	// Digest is the module's digest; "" if the module was not read.
	Digest string
	Queues []string
	// Release is the number of the release from which the files are; 0 for files of the plugin directory.
	Release int
	// State is one of the states below.
	State string
	// Error says what is wrong and what to do about it; "" if the plugin serves.
	Error string
	// Unfetched is true if the files of a refused release could not be fetched. The host tries again.
	Unfetched bool
	// Since is when the host began to fetch a release; zero in other states.
	Since time.Time
	// ResetMode says how instances are reset between tasks; "" if the plugin is refused.
	ResetMode string

	// Permissions are what the plugin's tasks are allowed to do, by tenant. They are nil if the plugin is refused.
	Permissions map[string]*manifest.Permissions
}

// The states of a plugin.
const (
	StateServing  = "serving"
	StateRefused  = "refused"
	StateCanary   = "canary"   // a release that runs a share of the tasks
	StatePinned   = "pinned"   // a release that runs only tasks that began on it
	StateFetching = "fetching" // a release whose files a host fetches now; what served before it may serve
	StateUnbuilt  = "unbuilt"  // `quern dev` could not build its source; the version before it may serve
)

// publication has what the reconciler shares with the readers of a Directory.
type publication struct {
	table   atomic.Pointer[table]
	ready   chan struct{} // closed once every plugin of the first scan serves or is refused
	changed chan struct{} // capacity 1; never closed

	released chan struct{} // has a token after releases has changed; capacity 1; never closed
	mu       sync.Mutex
	releases map[string]map[string]Release // by tenant and plugin; replaced, never changed; guarded by mu
}

// poke leaves a token in a channel of capacity 1, unless the channel has one already.
func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// table has the versions that serve at one moment. It never changes once it is published.
type table struct {
	own      map[string]map[string]*served // by tenant, then by queue; has a key for every served tenant
	common   map[string]*served            // by queue
	statuses []Status
}

// served has the version of a plugin that serves, and the releases beside it.
type served struct {
	*Version
	release int // as in plugin.serves
	beside  []besideVersion
}

type besideVersion struct {
	number  int
	version *Version
}

func newTable(tenants []string, plugins []*plugin) *table {
	t := &table{own: make(map[string]map[string]*served, len(tenants)), common: make(map[string]*served, len(plugins))}
	for _, tenant := range tenants {
		t.own[tenant] = nil
	}
	var last *served // what serves under the last name; the releases beside it come next
	var of id
	for _, p := range plugins {
		t.statuses = append(t.statuses, p.statuses()...)
		if p.current == nil {
			continue
		}
		if p.beside > 0 {
			if last != nil && of == (id{tenant: p.tenant, name: p.name}) {
				last.beside = append(last.beside, besideVersion{p.beside, p.current})
			}
			continue
		}
		last, of = &served{Version: p.current, release: p.serves}, p.id
		queues := t.common
		if p.tenant != "" {
			if t.own[p.tenant] == nil {
				t.own[p.tenant] = map[string]*served{}
			}
			queues = t.own[p.tenant]
		}
		for _, queue := range p.current.Manifest.Queues {
			queues[queue] = last
		}
	}
	return t
}

func (p *plugin) statuses() (statuses []Status) {
	state := StateServing
	switch {
	case p.seen.canary:
		state = StateCanary
	case p.beside > 0:
		state = StatePinned
	}
	if v := p.current; v != nil {
		statuses = append(statuses, Status{
			Tenant: p.tenant, Plugin: p.shown(), Version: v.Manifest.Version, Digest: v.Digest,
			Queues: v.Manifest.Queues, Release: p.serves, State: state, ResetMode: string(v.Info().ResetMode),
			Permissions: v.permissions,
		})
	}
	if r := p.refusal; r != nil {
		statuses = append(statuses, Status{
			Tenant: p.tenant, Plugin: p.shown(), Version: r.version, Digest: r.found.module,
			Queues: r.queues, Release: r.release, State: StateRefused, Error: r.err.Error(),
		})
	}
	return statuses
}

// lookup returns the version that serves a queue of a tenant: that of the tenant's own plugin, or else of the common
// plugin; nil if neither serves the queue.
func (t *table) lookup(tenant, queue string) *served {
	own, served := t.own[tenant]
	if !served {
		return nil
	}
	if v, found := own[queue]; found {
		return v
	}
	return t.common[queue]
}

// bindings returns which plugin serves each queue of one tenant, in no particular order.
func (t *table) bindings(tenant string) (bindings []Binding) {
	own, served := t.own[tenant]
	if !served {
		return nil
	}
	for queue, v := range own {
		bindings = append(bindings, Binding{tenant, queue, v.Name})
	}
	for queue, v := range t.common {
		if own[queue] == nil {
			bindings = append(bindings, Binding{tenant, queue, v.Name})
		}
	}
	return bindings
}
