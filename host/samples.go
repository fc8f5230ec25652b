package host

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/quern-project/quern/metrics"
	"github.com/quern-project/quern/sdk/queue"
)

// samples reads every queue of every tenant, and looks at each Redis, for the metrics. With an error it has those of the other tenants.
func (h *Host) samples(ctx context.Context) ([]metrics.QueueSample, error) {
	var (
		reading sync.WaitGroup
		mu      sync.Mutex
		samples []metrics.QueueSample
		missing error
	)
	looked := make(map[string]bool) // at a Redis, by its address: tenants share it
	for _, t := range h.tenants {
		if client := t.session.Load().access.client; !looked[client.Address()] {
			looked[client.Address()] = true
			reading.Go(func() { h.sampleRedis(ctx, client) })
		}
		reading.Go(func() {
			of, err := h.samplesOf(ctx, t.session.Load().access)
			mu.Lock()
			defer mu.Unlock()
			samples, missing = append(samples, of...), errors.Join(missing, err)
		})
	}
	reading.Wait()
	return samples, missing
}

// sampleRedis looks at the Redis of the client.
func (h *Host) sampleRedis(ctx context.Context, client *queue.Client) {
	begun := time.Now()
	clock, err := client.Clock(ctx)
	if err != nil {
		h.metrics.RedisSampled(client.Address(), nil)
		return
	}
	trip := time.Since(begun)
	sample := metrics.RedisSample{RoundTrip: trip, ClockSkew: begun.Add(trip / 2).Sub(clock)}
	if info, err := client.Info(ctx, "memory"); err == nil { // not every user of Redis may ask
		sample.MemoryKnown = true
		sample.MemoryUsed, _ = strconv.ParseInt(info["used_memory"], 10, 64)
		sample.MemoryMax, _ = strconv.ParseInt(info["maxmemory"], 10, 64)
	}
	h.metrics.RedisSampled(client.Address(), &sample)
}

// samplesOf reads the queues of one tenant.
func (h *Host) samplesOf(ctx context.Context, a *tenantAccess) (samples []metrics.QueueSample, err error) {
	tenant := a.client.Tenant()
	served := h.catalog.queues(tenant)
	stats, err := a.node.FleetStats(ctx, h.config.MaxQueues, slices.Collect(maps.Keys(served)))
	if err != nil {
		return nil, err
	}
	known, err := a.client.CountQueues(ctx)
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
	names := slices.Sorted(maps.Keys(served)) // those served here, though nothing was ever enqueued, and others up to the bound
	for _, name := range slices.Sorted(maps.Keys(stats)) {
		if !served[name] && len(names) < h.config.MaxQueues {
			names = append(names, name)
		}
	}
	h.metrics.QueuesHidden(tenant, known-int64(len(names)))
	for _, name := range names {
		stat, ok := stats[name]
		if !ok {
			continue // damaged; the error of reserving from it names the key
		}
		depth := make(map[string]int64, len(stat.Depth))
		for status, n := range stat.Depth {
			depth[string(status)] = n
		}
		depth["blocked"] = stat.Blocked // a state of its own here, so that the sum of all is right
		depth[string(queue.Scheduled)] -= stat.Blocked
		samples = append(samples, metrics.QueueSample{
			Tenant: tenant, Queue: name, Depth: depth,
			OldestPendingAge: stat.OldestPendingAge, Listeners: stat.Listeners,
			Quarantined: h.catalog.quarantined(tenant, name, quarantines), Paused: stat.Paused,
			DeadLetters: h.deadLetters(tenant, name, served, stats),
		})
	}
	return samples, nil
}

// deadLetters counts what waits in the queue of dead letters of a queue's plugin; nil if it has none, or is not served here.
func (h *Host) deadLetters(tenant, name string, served map[string]bool, stats map[string]queue.Stats) *int64 {
	if !served[name] {
		return nil
	}
	_, dead := h.catalog.expiry(tenant, name)
	if dead == "" {
		return nil
	}
	depth := stats[dead].Depth
	waiting := depth[queue.Pending] + depth[queue.Scheduled]
	return &waiting
}
