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
	"github.com/quern-project/quern/sdk/queue/listen"
	"github.com/quern-project/quern/sdk/queue/manage"
)

// samples reads every queue of every tenant, and samples each Redis, for the metrics. If a tenant cannot be read, it
// returns the error and the samples of the other tenants.
func (h *Host) samples(ctx context.Context) ([]metrics.QueueSample, error) {
	var (
		reading sync.WaitGroup
		mu      sync.Mutex
		samples []metrics.QueueSample
		missing error
	)
	servers := make(map[string][]*queue.Client) // by address: tenants may share a server
	for _, name := range slices.Sorted(maps.Keys(h.tenants)) {
		client := h.tenants[name].session.Load().access.client
		address := manage.New(client).Address()
		servers[address] = append(servers[address], client)
	}
	for address, clients := range servers {
		reading.Go(func() { h.metrics.RedisSampled(address, sampleRedis(ctx, clients)) })
	}
	for _, t := range h.tenants {
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

// sampleRedis samples one Redis. It tries the clients in turn, because their users may have different rights. It
// returns nil if Redis answers none of them.
func sampleRedis(ctx context.Context, clients []*queue.Client) (sample *metrics.RedisSample) {
	for _, client := range clients {
		begun := time.Now()
		clock, err := client.Clock(ctx)
		if err != nil {
			continue
		}
		if sample == nil {
			trip := time.Since(begun)
			sample = &metrics.RedisSample{RoundTrip: trip, ClockSkew: begun.Add(trip / 2).Sub(clock)}
		}
		if info, err := manage.New(client).Info(ctx, "memory"); err == nil {
			sample.MemoryKnown = true
			sample.MemoryUsed, _ = strconv.ParseInt(info["used_memory"], 10, 64)
			sample.MemoryMax, _ = strconv.ParseInt(info["maxmemory"], 10, 64)
			break
		}
	}
	return sample
}

// samplesOf reads the queues of one tenant.
func (h *Host) samplesOf(ctx context.Context, a *tenantAccess) (samples []metrics.QueueSample, err error) {
	tenant := a.client.Tenant()
	served := a.catalog.queues()
	own, dead := maps.Clone(served), make(map[string]bool)
	for name := range served {
		if _, letters := a.catalog.expiry(name); letters != "" {
			own[letters], dead[letters] = true, true
		}
	}
	stats, err := manage.New(a.client).FleetStats(ctx, a.listener.Node, h.config.MaxQueues, slices.Collect(maps.Keys(own)))
	if err != nil {
		return nil, err
	}
	known, err := manage.New(a.client).CountQueues(ctx)
	if err != nil {
		return nil, err
	}
	quarantines, err := listen.NewFleet(a.client).Quarantines(ctx)
	if ctx.Err() != nil || queue.IsUnavailable(err) {
		return nil, errors.Join(ctx.Err(), err)
	}
	if err != nil { // one damaged key must not hide all queues
		a.logger.Error("quarantines cannot be read: the metrics show none", "error", err)
	}
	names := slices.Sorted(maps.Keys(own)) // all served queues, and others up to MaxQueues
	for _, name := range slices.Sorted(maps.Keys(stats)) {
		if !own[name] && len(names) < h.config.MaxQueues {
			names = append(names, name)
		}
	}
	h.metrics.QueuesHidden(tenant, known-int64(len(names)))
	if uses, err := manage.QuotaUses(ctx, a.client); err == nil { // otherwise the value before stays
		h.metrics.QuotaUsed(tenant, manage.FullestQuota(uses))
	}
	for _, name := range names {
		stat, ok := stats[name]
		if !ok {
			continue // damaged; the error of reserving from it names the key
		}
		depth := make(map[string]int64, len(stat.Depth))
		for status, n := range stat.Depth {
			depth[string(status)] = n
		}
		// The metrics count blocked tasks as a separate state, so that the numbers of all states add up to the number of
		// tasks.
		depth["blocked"] = stat.Blocked
		depth[string(queue.Scheduled)] -= stat.Blocked
		sample := metrics.QueueSample{
			Tenant: tenant, Queue: name, Depth: depth,
			OldestPendingAge: stat.OldestPendingAge, Listeners: stat.Listeners,
			Quarantined: string(a.catalog.quarantined(name, quarantines)), Paused: stat.Paused,
		}
		if dead[name] {
			waiting := stat.Depth[queue.Pending] + stat.Depth[queue.Scheduled]
			sample.DeadLetters = &waiting
		}
		samples = append(samples, sample)
	}
	return samples, nil
}
