package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/quern-project/quern/metrics"
	"github.com/quern-project/quern/plugins"
	"github.com/quern-project/quern/sdk/queue"
)

// anewPause is how long a session that ended by itself is waited for before the next one begins.
const anewPause = time.Second

// Host is one node that serves the queues of one or several tenants.
type Host struct {
	config    Config
	clients   []*queue.Client
	directory *plugins.Directory
	metrics   observer
	scheduler *scheduler
	draining  atomic.Bool
	drainNow  context.CancelFunc // ends the intake as the end of Run's context does; set by Run

	mu       sync.Mutex
	sessions map[string]*session // by tenant: the one that is led now; guarded by mu
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
		config: config, clients: clients, directory: directory, metrics: observer{m},
		scheduler: newScheduler(directory, config, m.SlotsInUse),
		sessions:  make(map[string]*session, len(clients)),
	}
	for _, client := range clients {
		h.sessions[client.Tenant()] = newSession(client.Tenant(), client, h)
		m.TenantServed(client.Tenant())
	}
	m.Slots(config.Concurrency)
	m.CollectQueues(h.queueSamples)
	return h, nil
}

// Run serves until ctx ends, or somebody drains the node; then it takes nothing more, lets running tasks go on for the grace
// period, gives the rest back to the front of their queues, leaves and returns nil. When hurry ends
// too, it stops waiting and tries to give back once.
func (h *Host) Run(ctx, hurry context.Context) error {
	// What settles and renews outlives ctx until all tasks have ended; the tasks end when they are told.
	tasks := context.WithoutCancel(ctx)
	living, end := context.WithCancel(tasks)
	defer end()
	ctx, h.drainNow = context.WithCancel(ctx)
	defer h.drainNow()
	defer context.AfterFunc(ctx, func() { h.draining.Store(true) })()
	runner := &runner{scheduler: h.scheduler, metrics: h.metrics, retry: h.config.Retry, services: &h.config.Services, ending: ctx.Done()}
	workers := newWorkers(func(t *task) { runner.run(tasks, t) })
	intake := &intake{scheduler: h.scheduler, metrics: h.metrics, workers: workers}

	group, living := errgroup.WithContext(living)
	group.Go(func() error { return h.directory.Run(living) })
	group.Go(func() error { h.followPlugins(living); return nil })
	if h.config.Reservoir != nil && h.config.Memory > 0 {
		group.Go(func() error { newRelief(h.scheduler, h.config).Run(living); return nil })
	}
	for _, client := range h.clients {
		group.Go(func() error { return h.serveTenant(living, client) })
	}
	group.Go(func() error {
		defer end()
		taking, stop := context.WithCancel(ctx)
		defer stop()
		context.AfterFunc(living, stop) // something failed for good: take nothing more
		intake.Run(taking)
		h.drain(living, hurry, workers)
		return nil
	})
	err := group.Wait()
	if leaveErr := h.leave(hurry); err == nil {
		err = leaveErr
	}
	return err
}

// drain waits for running tasks, for the grace period at most, and stops the rest.
func (h *Host) drain(living, hurry context.Context, workers *workers) {
	h.draining.Store(true)
	for _, s := range h.current() {
		s.tell()
	}
	h.config.Logger.Info("draining: taking no more tasks", "running", h.scheduler.used(), "grace", h.config.Grace)
	ended := make(chan struct{})
	go func() { workers.wait(); close(ended) }()
	grace := time.NewTimer(h.config.Grace)
	defer grace.Stop()
	select {
	case <-ended:
	case <-grace.C:
		h.config.Logger.Warn("grace period over: giving tasks back", "running", h.scheduler.used())
	case <-hurry.Done():
		h.config.Logger.Warn("told to hurry: giving tasks back", "running", h.scheduler.used())
	case <-living.Done(): // without sessions nothing that ends later could be settled
	}
	for _, s := range h.current() {
		s.stopTasks(errDrained)
	}
	<-ended
}

// leave settles and gives back what is left, bounded in time.
func (h *Host) leave(hurry context.Context) error {
	limit := leaveTimeout
	if hurry.Err() != nil {
		limit = hurriedTimeout
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	stop := context.AfterFunc(hurry, func() { time.AfterFunc(hurriedTimeout, cancel) })
	defer stop()
	var group errgroup.Group
	for _, s := range h.current() {
		group.Go(func() error { return s.leave(ctx) })
	}
	return group.Wait()
}

// serveTenant leads one session after the other: a new one when a lease was lost.
func (h *Host) serveTenant(ctx context.Context, client *queue.Client) error {
	tenant := client.Tenant()
	for {
		h.mu.Lock()
		s := h.sessions[tenant]
		h.mu.Unlock()
		err := s.Run(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if !errors.Is(err, queue.ErrLeaseLost) {
			return fmt.Errorf("serve tenant %s: %w", tenant, err)
		}
		if !sleep(ctx, anewPause) {
			return nil
		}
		h.mu.Lock()
		h.sessions[tenant] = newSession(tenant, client, h)
		h.mu.Unlock()
	}
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
	terms := version.Terms(tenant)
	return bounded(manifestRetry(version.Manifest.Retry).Over(h.config.Retry), terms.MostRetry).MaxAge, terms.Dead
}

// ages tells whether tasks of a queue that name no age themselves have one.
func (h *Host) ages(tenant, name string) bool {
	maxAge, _ := h.expiry(tenant, name)
	return maxAge > 0
}

// sampled are the queues of which metrics tell: those that are served here, though nothing was ever enqueued, and others
// until they are as many as a tenant may have.
func (h *Host) sampled(tenant string, others map[string]int64) []string {
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
	h.mu.Lock()
	defer h.mu.Unlock()
	list := make([]*session, 0, len(h.sessions))
	for _, s := range h.sessions {
		list = append(list, s)
	}
	return list
}

// Ready tells why the host cannot take tasks now; nil if it can.
func (h *Host) Ready() error {
	if h.draining.Load() {
		return errors.New("draining")
	}
	select {
	case <-h.directory.Ready():
	default:
		return errors.New("plugins are being loaded")
	}
	for _, s := range h.current() {
		if !s.reachable() {
			return fmt.Errorf("redis does not serve tenant %s", s.tenant)
		}
		if !s.settledIn() {
			return fmt.Errorf("queues of tenant %s are being registered", s.tenant)
		}
	}
	return nil
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

// queueSamples reads every queue of every tenant, for the metrics.
func (h *Host) queueSamples(ctx context.Context) ([]metrics.QueueSample, error) {
	var samples []metrics.QueueSample
	for _, client := range h.clients {
		queues, err := client.Queues(ctx)
		if err != nil {
			return nil, err
		}
		names := h.sampled(client.Tenant(), queues)
		stats, err := client.Stats(ctx, names...)
		if err != nil {
			return nil, err
		}
		quarantines, err := client.Quarantines(ctx)
		if ctx.Err() != nil || queue.IsUnavailable(err) {
			return nil, errors.Join(ctx.Err(), err)
		}
		if err != nil { // one damaged key must not hide all queues
			h.sessions[client.Tenant()].logger.Error("quarantines cannot be read: the metrics show none", "error", err)
		}
		for i, stat := range stats {
			if stat.Err != nil {
				continue // damaged; the error of reserving from it names the key
			}
			depth := make(map[string]int64, len(stat.Depth))
			for status, n := range stat.Depth {
				depth[string(status)] = n
			}
			samples = append(samples, metrics.QueueSample{
				Tenant: client.Tenant(), Queue: names[i], Depth: depth,
				OldestPendingAge: stat.OldestPendingAge, Listeners: stat.Listeners,
				Quarantined: h.quarantined(client.Tenant(), names[i], quarantines),
			})
		}
	}
	return samples, nil
}
