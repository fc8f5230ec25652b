package host

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/quern-project/quern/metrics"
	"github.com/quern-project/quern/sdk/queue"
)

// sampler reads queues for the metrics.
type sampler struct {
	catalog   *catalog
	maxQueues int
	sessions  func() []*session
}

// samples reads every queue of every tenant. With an error it has those of the other tenants.
func (r *sampler) samples(ctx context.Context) ([]metrics.QueueSample, error) {
	var (
		reading sync.WaitGroup
		mu      sync.Mutex
		samples []metrics.QueueSample
		missing error
	)
	for _, s := range r.sessions() {
		reading.Go(func() {
			of, err := r.samplesOf(ctx, s.access)
			mu.Lock()
			defer mu.Unlock()
			samples, missing = append(samples, of...), errors.Join(missing, err)
		})
	}
	reading.Wait()
	return samples, missing
}

// samplesOf reads the queues of one tenant.
func (r *sampler) samplesOf(ctx context.Context, a *tenantAccess) (samples []metrics.QueueSample, err error) {
	tenant := a.client.Tenant()
	served := r.catalog.queues(tenant)
	stats, err := a.node.FleetStats(ctx, r.maxQueues, slices.Collect(maps.Keys(served)))
	if err != nil {
		return nil, err
	}
	quarantines, err := a.client.Fleet().Quarantines(ctx)
	if ctx.Err() != nil || queue.IsUnavailable(err) {
		return nil, errors.Join(ctx.Err(), err)
	}
	if err != nil { // one damaged key must not hide all queues
		a.logger.Error("quarantines cannot be read: the metrics show none", "error", err)
	}
	for _, name := range r.choose(served, stats) {
		stat, ok := stats[name]
		if !ok {
			continue // damaged; the error of reserving from it names the key
		}
		depth := make(map[string]int64, len(stat.Depth))
		for status, n := range stat.Depth {
			depth[string(status)] = n
		}
		samples = append(samples, metrics.QueueSample{
			Tenant: tenant, Queue: name, Depth: depth,
			OldestPendingAge: stat.OldestPendingAge, Listeners: stat.Listeners,
			Quarantined: r.catalog.quarantined(tenant, name, quarantines),
		})
	}
	return samples, nil
}

// choose are the queues in the metrics: those served here, though nothing was ever enqueued, and others up to the bound.
func (r *sampler) choose(served map[string]bool, others map[string]queue.Stats) []string {
	names := slices.Sorted(maps.Keys(served))
	for _, name := range slices.Sorted(maps.Keys(others)) {
		if len(names) >= r.maxQueues {
			break
		}
		if !served[name] {
			names = append(names, name)
		}
	}
	return names
}
