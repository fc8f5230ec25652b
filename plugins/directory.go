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

// drainNotice is how long closing the modules may take before it is said that tasks hold it up.
const drainNotice = 100 * time.Millisecond

// Directory keeps what a host may run in step with a folder of files. Run does the work; what it
// publishes may be read by any goroutine at any time, and never waits for it.
type Directory struct {
	cfg     Config
	loader  *loader
	started atomic.Bool
	public  publication
}

// New makes a Directory whose modules the engine compiles and runs; it must stay open until Run has returned.
func New(engine *runtime.Engine, cfg Config) (*Directory, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	d := &Directory{cfg: cfg, loader: newLoader(engine, cfg)}
	d.public.ready, d.public.changed = make(chan struct{}), make(chan struct{}, 1)
	d.public.table.Store(newTable(cfg.Tenants, nil))
	return d, nil
}

// Run loads what is in the directory, and then follows its changes until ctx ends. From then on
// nothing is served; Run returns when the last holder has released its version, so that every module
// is closed. It returns an error if it was called before, else nil.
func (d *Directory) Run(ctx context.Context) error {
	if !d.started.CompareAndSwap(false, true) {
		return errors.New("the plugin directory is already being watched")
	}
	watch := newWatcher(d.cfg.Dir, d.cfg.Logger)
	// The watcher is emptied until nobody sets watches any more, else setting one could block.
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

// Ready is closed once every plugin that the first scan found serves or is refused, also if it found no directory.
func (d *Directory) Ready() <-chan struct{} { return d.public.ready }

// Changed gives one consumer a token after changes of what is served. It is never closed.
func (d *Directory) Changed() <-chan struct{} { return d.public.changed }

// Bindings says what serves each queue of each tenant now, sorted by both.
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

// BindingsOf tells what serves the queues of one tenant now, in no order. It costs nothing for the other tenants.
func (d *Directory) BindingsOf(tenant string) []Binding {
	return d.public.table.Load().bindings(tenant)
}

// Acquire returns the version that serves a tenant's queue now, held for the caller, who must Release
// it once. It returns nil if none does. Acquire takes no lock and allocates nothing.
func (d *Directory) Acquire(tenant, queue string) *Version {
	for {
		v := d.public.table.Load().lookup(tenant, queue)
		if v == nil || v.tryRetain() {
			return v
		}
		// It was swapped and drained since the table was read. A table is published before the versions
		// that it leaves out are released, so the next one read is newer.
	}
}

// List says what became of every plugin in the directory, sorted by tenant and name, what serves
// before what is refused. What the statuses refer to is not to be changed.
func (d *Directory) List() []Status { return slices.Clone(d.public.table.Load().statuses) }
