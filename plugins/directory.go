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
		if v.Version.tryRetain() {
			return v.tenants[tenant]
		}
		// The version was swapped and drained since the table was read. A new table is published before the versions
		// that it leaves out are released, so the next read finds a newer table.
	}
}

// Serving is what runs the tasks of a queue of a tenant: the version that serves, and other releases of its plugin. The
// caller of AcquireServing must Release it once.
type Serving struct {
	*TenantVersion
	// Number is the number of the release that serves; 0 if its files are in the plugin directory.
	Number int

	served *served
}

// AcquireServing is Acquire for a caller that decides for each task which release runs it. ok is false if no version
// serves the queue.
func (d *Directory) AcquireServing(tenant, queue string) (s Serving, ok bool) {
	for {
		v := d.public.table.Load().lookup(tenant, queue)
		if v == nil {
			return s, false
		}
		if v.tryRetain() {
			return Serving{v.tenants[tenant], v.release, v}, true
		}
	}
}

// Others lists the numbers of the releases beside the one that serves.
func (s Serving) Others() (numbers []int) {
	for _, one := range s.served.beside {
		numbers = append(numbers, one.number)
	}
	return numbers
}

// Other returns the version of a release beside the one that serves; nil if there is none.
func (s Serving) Other(number int) *TenantVersion {
	for _, one := range s.served.beside {
		if one.number == number {
			return one.version.tenants[s.tasksOf]
		}
	}
	return nil
}

// PendingSnapshot returns the maximum number of bytes of snapshots that the tenant's next task builds.
func (s Serving) PendingSnapshot() int64 {
	pending := s.TenantVersion.PendingSnapshot()
	for _, one := range s.served.beside {
		pending = max(pending, one.version.tenants[s.tasksOf].PendingSnapshot())
	}
	return pending
}

// Release gives back the holds of all versions.
func (s Serving) Release() {
	s.TenantVersion.Release()
	for _, one := range s.served.beside {
		one.version.Release()
	}
}

// tryRetain holds what serves and the releases beside it. It returns false if one of them is gone.
func (s *served) tryRetain() bool {
	if !s.Version.tryRetain() {
		return false
	}
	for i, one := range s.beside {
		if !one.version.tryRetain() {
			s.Version.Release()
			for _, held := range s.beside[:i] {
				held.version.Release()
			}
			return false
		}
	}
	return true
}

// List returns the statuses of all plugins in the directory, sorted by tenant and name. If a plugin has two, the
// serving one comes first. The caller must not change the maps and slices of the statuses.
func (d *Directory) List() []Status { return slices.Clone(d.public.table.Load().statuses) }
