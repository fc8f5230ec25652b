package host

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/quern-project/quern/host/guest"
	"github.com/quern-project/quern/metrics"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/sdk/queue"
)

// Host is one node that serves the queues of one or several tenants.
type Host struct {
	common
	tenants map[string]*tenant // by name
}

// New makes a host for the tenants of the clients, whose plugins are in the directory. It owns neither the clients nor the
// directory's engine; Run runs the directory.
func New(clients []*queue.Client, directory *plugins.Directory, m *metrics.Metrics, config Config) (*Host, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	if len(clients) == 0 {
		return nil, errors.New("no tenant to serve: name at least one")
	}
	h := &Host{
		common: common{
			config: config, metrics: m, catalog: &catalog{directory, config.serves, config.Retry},
			scheduler: newScheduler(directory.Acquire, config, m.SlotsInUse),
			workers:   newWorkers(), services: guest.New(config.Services),
		},
		tenants: make(map[string]*tenant, len(clients)),
	}
	for _, client := range clients {
		h.tenants[client.Tenant()] = newTenant(client.Tenant(), func(t *tenant) *session {
			return newSession(client, &h.common, t.draining, t.drain, func() map[string]string { return h.about(t) })
		})
		m.TenantServed(client.Tenant())
	}
	m.Slots(config.Concurrency)
	m.CollectTenants(h.up)
	m.CollectQueues((&sampler{h.catalog, config.MaxQueues, h.current}).samples)
	return h, nil
}

// Run serves until ctx ends, or every tenant is drained; then it takes nothing more, lets running tasks go on for the grace
// period, gives the rest back to the front of their queues, leaves and returns nil. When hurry ends too, it stops waiting and
// tries to give back once. A tenant that is drained alone ends in the same way, and the host serves the others. Run returns an
// error if no tenant lets it join, or one could not be left.
func (h *Host) Run(ctx, hurry context.Context) error {
	// What settles and renews outlives ctx until all tasks have ended; the tasks end when they are told.
	tasks := context.WithoutCancel(ctx)
	living, end := context.WithCancel(tasks)
	defer end()
	defer context.AfterFunc(ctx, h.drain)()
	group, living := errgroup.WithContext(living)
	group.Go(func() error { return h.catalog.directory.Run(living) })
	group.Go(func() error { h.followPlugins(living); return nil })
	if h.config.Cache != nil && h.config.Memory > 0 {
		evictor := &evictor{cache: h.config.Cache, admission: h.scheduler.admission, logger: h.config.Logger}
		group.Go(func() error { evictor.Run(living); return nil })
	}
	taking, stop := context.WithCancel(tasks)
	scheduling := make(chan struct{})
	go func() { defer close(scheduling); h.scheduler.Run(taking, len(h.tenants) == 1) }()
	group.Go(func() error {
		defer end()
		var serving errgroup.Group
		for _, t := range h.tenants {
			serving.Go(func() error { return h.serve(living, hurry, t) })
		}
		err := serving.Wait()
		stop()
		<-scheduling
		h.workers.wait()
		return err
	})
	return group.Wait()
}

// serve serves one tenant. Where the host goes on for other tenants, the log has the error.
func (h *Host) serve(living, hurry context.Context, t *tenant) error {
	err := t.serve(living, hurry, h.refused)
	if err != nil && !h.draining() {
		t.current().access.logger.Error("tenant was drained, but its listener did not leave: another host takes its tasks when the lease ends", "error", err)
		return nil
	}
	return err
}

// refused drains the host if no tenant that is not drained lets it join, and returns what they say; nil while one may.
func (h *Host) refused() error {
	var refusals []error
	for _, t := range h.tenants {
		if t.isDraining() {
			continue
		}
		refusal := t.refusedBy()
		if refusal == nil {
			return nil
		}
		refusals = append(refusals, refusal)
	}
	h.drain()
	return errors.Join(refusals...)
}

// draining tells whether the host takes nothing more of any tenant.
func (h *Host) draining() bool {
	for _, t := range h.tenants {
		if !t.isDraining() {
			return false
		}
	}
	return true
}

// drain makes the host take nothing more of any tenant.
func (h *Host) drain() {
	for _, t := range h.tenants {
		t.drain()
	}
}

// followPlugins tells the sessions which queues to serve whenever that changes.
func (h *Host) followPlugins(ctx context.Context) {
	shown := make(map[place]bool) // the queues that have series
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.catalog.directory.Changed():
		}
		h.showQueues(shown)
		for _, s := range h.current() {
			s.registrar.follow()
		}
	}
}

// showQueues makes the series of the queues that are served exist. Those of others stay, for counters should not go back,
// until they are too many: a tenant that names new queues again and again must not fill the host.
func (h *Host) showQueues(shown map[place]bool) {
	served := make(map[place]bool)
	for _, binding := range h.catalog.bindings() {
		at := place{binding.Tenant, binding.Queue}
		served[at], shown[at] = true, true
		h.metrics.QueueServed(binding.Tenant, binding.Queue, binding.Plugin)
	}
	if len(served) == 0 || len(shown)-len(served) <= h.config.MaxQueues {
		return
	}
	for at := range shown {
		if !served[at] {
			h.metrics.QueueForgotten(at.tenant, at.queue)
			delete(shown, at)
		}
	}
}

// about is what the host publishes to a tenant.
func (h *Host) about(t *tenant) map[string]string {
	about := h.catalog.about(t.name)
	about["version"], about["draining"] = h.config.Version, strconv.FormatBool(t.isDraining())
	about["slots"], about["slots_in_use"] = strconv.Itoa(h.config.Concurrency), strconv.Itoa(h.scheduler.used())
	return about
}

func (h *Host) current() []*session {
	list := make([]*session, 0, len(h.tenants))
	for _, t := range h.tenants {
		list = append(list, t.current())
	}
	return list
}

// up tells for each tenant that is not drained whether Redis lets the host serve it.
func (h *Host) up() map[string]bool {
	up := make(map[string]bool, len(h.tenants))
	for name, t := range h.tenants {
		if !t.isDraining() {
			up[name] = t.current().reachable()
		}
	}
	return up
}

// Ready tells why the host cannot take tasks now; nil if it can take those of one tenant at least. The text is "ok" then, and
// names the tenants that it cannot serve.
func (h *Host) Ready() (text string, err error) {
	var problems []string
	for _, name := range slices.Sorted(maps.Keys(h.tenants)) {
		if problem := h.tenants[name].problem(); problem != "" {
			problems = append(problems, problem)
		}
	}
	if h.draining() {
		return "", errors.New("draining")
	}
	select {
	case <-h.catalog.directory.Ready():
	default:
		return "", errors.New("plugins are being loaded")
	}
	switch len(problems) {
	case 0:
		return "ok", nil
	case len(h.tenants):
		return "", errors.New(strings.Join(problems, "; "))
	}
	return "ok, but " + strings.Join(problems, "; "), nil
}
