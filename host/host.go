package host

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quern-project/quern/host/guest"
	"github.com/quern-project/quern/metrics"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/sdk/queue"
)

// Host is one node that serves the queues of one or several tenants.
type Host struct {
	config    Config
	directory *plugins.Directory
	metrics   observer
	scheduler *scheduler
	tenants   map[string]*tenant // by name
}

// New makes a host for the tenants of the clients, whose plugins are in the directory. It owns
// neither the clients nor what the directory's engine is; Run runs the directory.
func New(clients []*queue.Client, directory *plugins.Directory, m *metrics.Metrics, config Config) (*Host, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	if len(clients) == 0 {
		return nil, errors.New("no tenant to serve: name at least one")
	}
	h := &Host{
		config: config, directory: directory, metrics: observer{m},
		scheduler: newScheduler(directory, config, m.SlotsInUse),
		tenants:   make(map[string]*tenant, len(clients)),
	}
	for _, client := range clients {
		h.tenants[client.Tenant()] = newTenant(client, h)
		m.TenantServed(client.Tenant())
	}
	m.Slots(config.Concurrency)
	m.CollectTenants(h.up)
	m.CollectQueues(h.queueSamples)
	return h, nil
}

// Run serves until ctx ends, or every tenant is drained; then it takes nothing more, lets running tasks go on for the grace
// period, gives the rest back to the front of their queues, leaves and returns nil. When hurry ends
// too, it stops waiting and tries to give back once. A tenant that is drained alone ends in the same way, and the host serves
// the others. Run returns an error if no tenant lets it join, or one could not be left.
func (h *Host) Run(ctx, hurry context.Context) error {
	// What settles and renews outlives ctx until all tasks have ended; the tasks end when they are told.
	tasks := context.WithoutCancel(ctx)
	living, end := context.WithCancel(tasks)
	defer end()
	defer context.AfterFunc(ctx, h.drain)()
	runner := &runner{scheduler: h.scheduler, metrics: h.metrics, retry: h.config.Retry, services: guest.New(h.config.Services)}
	workers := newWorkers(func(t *task) { runner.run(tasks, t) })
	intake := &intake{scheduler: h.scheduler, metrics: h.metrics, workers: workers}

	group, living := errgroup.WithContext(living)
	group.Go(func() error { return h.directory.Run(living) })
	group.Go(func() error { h.followPlugins(living); return nil })
	if h.config.Reservoir != nil && h.config.Memory > 0 {
		group.Go(func() error { newRelief(h.scheduler, h.config).Run(living); return nil })
	}
	taking, stop := context.WithCancel(tasks)
	var taken sync.WaitGroup
	taken.Go(func() { intake.Run(taking) })
	group.Go(func() error {
		defer end()
		var serving errgroup.Group
		for _, t := range h.tenants {
			serving.Go(func() error { return t.serve(living, hurry) })
		}
		err := serving.Wait()
		stop()
		taken.Wait()
		workers.wait()
		return err
	})
	return group.Wait()
}

// followPlugins tells the sessions which queues to serve whenever that changes.
func (h *Host) followPlugins(ctx context.Context) {
	shown := make(map[place]bool) // the queues that have series
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.directory.Changed():
		}
		h.showQueues(shown)
		for _, s := range h.current() {
			s.follow()
		}
	}
}

// showQueues makes the series of the queues that are served exist. Those of others stay, for counters should not go back,
// until they are too many: who names queues anew again and again must not fill the host.
func (h *Host) showQueues(shown map[place]bool) {
	served := make(map[place]bool)
	for _, binding := range h.directory.Bindings() {
		if h.config.serves(binding.Queue) {
			at := place{binding.Tenant, binding.Queue}
			served[at], shown[at] = true, true
			h.metrics.m.QueueServed(binding.Tenant, binding.Queue, binding.Plugin)
		}
	}
	if len(served) == 0 || len(shown)-len(served) <= h.config.MaxQueues {
		return
	}
	for at := range shown {
		if !served[at] {
			h.metrics.m.QueueForgotten(at.tenant, at.queue)
			delete(shown, at)
		}
	}
}

// desired are the tenant's queues that have a plugin here and that the configuration lets in.
func (h *Host) desired(tenant string) map[string]bool {
	queues := make(map[string]bool)
	for _, binding := range h.directory.Bindings() {
		if binding.Tenant == tenant && h.config.serves(binding.Queue) {
			queues[binding.Queue] = true
		}
	}
	return queues
}

// expiry is the longest age of a queue's tasks that name none themselves, and the queue of their dead
// letters, as its plugin's manifest says; nothing for a queue that has no plugin here.
func (h *Host) expiry(tenant, name string) (maxAge time.Duration, dead string) {
	version := h.directory.Acquire(tenant, name)
	if version == nil {
		return 0, ""
	}
	defer version.Release()
	permissions := version.Permissions(tenant)
	return bounded(manifestRetry(version.Manifest.Retry).WithDefaults(h.config.Retry), permissions.MostRetry).MaxAge, permissions.Dead
}

// ages tells whether tasks of a queue that name no age themselves have one.
func (h *Host) ages(tenant, name string) bool {
	maxAge, _ := h.expiry(tenant, name)
	return maxAge > 0
}

// sampled are the queues of which metrics tell: those that are served here, though nothing was ever enqueued, and others
// until they are as many as a tenant may have.
func (h *Host) sampled(tenant string, others map[string]queue.Stats) []string {
	served := h.desired(tenant)
	names := slices.Sorted(maps.Keys(served))
	for _, name := range slices.Sorted(maps.Keys(others)) {
		if len(names) >= h.config.MaxQueues {
			break
		}
		if !served[name] {
			names = append(names, name)
		}
	}
	return names
}

func (h *Host) current() []*session {
	list := make([]*session, 0, len(h.tenants))
	for _, t := range h.tenants {
		list = append(list, t.current())
	}
	return list
}

// up tells of each tenant that is not drained whether it is served.
func (h *Host) up() map[string]bool {
	up := make(map[string]bool, len(h.tenants))
	for name, t := range h.tenants {
		if !t.draining() {
			up[name] = t.up()
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
	case <-h.directory.Ready():
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

// quarantined tells whether the version that serves a queue here is among those that are quarantined.
func (h *Host) quarantined(tenant, name string, quarantines []queue.Quarantine) bool {
	if len(quarantines) == 0 {
		return false
	}
	version := h.directory.Acquire(tenant, name)
	if version == nil {
		return false
	}
	defer version.Release()
	return slices.ContainsFunc(quarantines, func(q queue.Quarantine) bool {
		return q.Plugin == version.Name && q.Digest == version.Digest
	})
}

// queueSamples reads every queue of every tenant, for the metrics. With an error it has those of the other tenants.
func (h *Host) queueSamples(ctx context.Context) ([]metrics.QueueSample, error) {
	var (
		reading sync.WaitGroup
		mu      sync.Mutex
		samples []metrics.QueueSample
		missing error
	)
	for _, s := range h.current() {
		reading.Go(func() {
			of, err := h.samplesOf(ctx, s)
			mu.Lock()
			defer mu.Unlock()
			samples, missing = append(samples, of...), errors.Join(missing, err)
		})
	}
	reading.Wait()
	return samples, missing
}

// samplesOf reads the queues of one tenant.
func (h *Host) samplesOf(ctx context.Context, s *session) (samples []metrics.QueueSample, err error) {
	stats, err := s.node.FleetStats(ctx, h.config.MaxQueues, slices.Collect(maps.Keys(h.desired(s.tenant))))
	if err != nil {
		return nil, err
	}
	quarantines, err := s.client.Fleet().Quarantines(ctx)
	if ctx.Err() != nil || queue.IsUnavailable(err) {
		return nil, errors.Join(ctx.Err(), err)
	}
	if err != nil { // one damaged key must not hide all queues
		s.logger.Error("quarantines cannot be read: the metrics show none", "error", err)
	}
	for _, name := range h.sampled(s.tenant, stats) {
		stat, ok := stats[name]
		if !ok {
			continue // damaged; the error of reserving from it names the key
		}
		depth := make(map[string]int64, len(stat.Depth))
		for status, n := range stat.Depth {
			depth[string(status)] = n
		}
		samples = append(samples, metrics.QueueSample{
			Tenant: s.tenant, Queue: name, Depth: depth,
			OldestPendingAge: stat.OldestPendingAge, Listeners: stat.Listeners,
			Quarantined: h.quarantined(s.tenant, name, quarantines),
		})
	}
	return samples, nil
}
