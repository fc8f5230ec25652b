package plugins

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quern-project/quern/runtime"
)

// drainNotice is how long closing the modules takes before a log line says that running tasks delay it.
const drainNotice = 100 * time.Millisecond

// Directory keeps the plugins that a host runs in step with a directory of files. Run does the work. All other methods
// can be called from any goroutine at any time; they never wait for Run.
type Directory struct {
	cfg     Config
	loader  *loader
	started atomic.Bool
	public  publication
}

// New makes a Directory. The engine compiles and runs the modules, and must stay open until Run has returned.
func New(engine *runtime.Engine, cfg Config) (*Directory, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	d := &Directory{cfg: cfg, loader: newLoader(engine, cfg)}
	d.public.ready, d.public.changed = make(chan struct{}), make(chan struct{}, 1)
	d.public.released = make(chan struct{}, 1)
	d.public.table.Store(newTable(cfg.Tenants, nil))
	return d, nil
}

// Run loads the plugins in the directory, and follows changes until ctx ends. Then nothing is served any more, and Run
// returns nil once every version is released and every module closed. If Run was called before, it returns an error at
// once.
func (d *Directory) Run(ctx context.Context) error {
	if !d.started.CompareAndSwap(false, true) {
		return errors.New("the plugin directory is already being watched")
	}
	watch := newWatcher(d.cfg.Dir, d.cfg.Logger)
	// The watcher's events are read until the reconciler has returned: otherwise setting a watch could block.
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	var children sync.WaitGroup
	children.Go(func() { watch.run(watching) })
	newReconciler(d.cfg, d.loader, &d.public, watch).run(ctx)
	stop()
	children.Wait()
	notice := time.AfterFunc(drainNotice, func() { d.cfg.Logger.Info("waiting for the tasks that still run on a plugin") })
	d.loader.open.Wait()
	notice.Stop()
	return nil
}

// Ready returns a channel that is closed once every plugin of the first scan serves or is refused. It is also closed if
// that scan found no directory.
func (d *Directory) Ready() <-chan struct{} { return d.public.ready }

// Changed returns a channel for one consumer. It receives a token after the set of serving versions has changed, and is
// never closed.
func (d *Directory) Changed() <-chan struct{} { return d.public.changed }

// Bindings returns which plugin serves each queue of each tenant now, sorted by tenant and queue.
func (d *Directory) Bindings() (bindings []Binding) {
	t := d.public.table.Load()
	for tenant := range t.own {
		bindings = append(bindings, t.bindings(tenant)...)
	}
	slices.SortFunc(bindings, func(a, b Binding) int {
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Queue, b.Queue))
	})
	return bindings
}

// BindingsOf returns which plugin serves each queue of one tenant now, in no particular order. It does not look at
// other tenants.
func (d *Directory) BindingsOf(tenant string) []Binding {
	return d.public.table.Load().bindings(tenant)
}

// Acquire returns the version that serves a tenant's queue now, held for the caller, who must Release it once. It
// returns nil if no version does. Acquire takes no lock and allocates nothing.
func (d *Directory) Acquire(tenant, queue string) *TenantVersion {
	for {
		v := d.public.table.Load().lookup(tenant, queue)
		if v == nil {
			return nil
		}
		if v.tryRetain() {
			return v.tenants[tenant]
		}
		// The version was swapped and drained since the table was read. A new table is published before the versions
		// that it leaves out are released, so the next read finds a newer table.
	}
}

// List returns the statuses of all plugins in the directory, sorted by tenant and name. If a plugin has two, the
// serving one comes first. The caller must not change the maps and slices of the statuses.
func (d *Directory) List() []Status { return slices.Clone(d.public.table.Load().statuses) }
