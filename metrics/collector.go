package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// collector makes families at the scrape, from a source that can be replaced.
type collector[T any] struct {
	rows    []int
	descs   [len(catalogue)]*prometheus.Desc // of the rows
	source  atomic.Pointer[T]
	collect func(source T, emit func(row int, value float64, labels ...string))
}

func newCollector[T any](source T, collect func(T, func(row int, value float64, labels ...string)), rows ...int) *collector[T] {
	c := &collector[T]{rows: rows, collect: collect}
	for _, row := range rows {
		c.descs[row] = desc(row)
	}
	c.use(source)
	return c
}

func (c *collector[T]) use(source T) { c.source.Store(&source) }

// Describe is part of prometheus.Collector.
func (c *collector[T]) Describe(ch chan<- *prometheus.Desc) {
	for _, row := range c.rows {
		ch <- c.descs[row]
	}
}

// Collect is part of prometheus.Collector.
func (c *collector[T]) Collect(ch chan<- prometheus.Metric) {
	c.collect(*c.source.Load(), func(row int, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(c.descs[row], catalogue[row].kind.value(), max(0, value), texts(labels)...)
	})
}

// RuntimeSample is the memory and the instances of plugins on this host.
type RuntimeSample struct {
	// Code, Images, Instances and Stacks are bytes: machine code, the snapshots that instances start from, the private
	// memory of idle instances, and the call stacks of running guests.
	Code, Images, Instances, Stacks int64
	// Idle and Busy count instances.
	Idle, Busy int
}

func newRuntimeCollector() *collector[func() RuntimeSample] {
	none := func() RuntimeSample { return RuntimeSample{} }
	return newCollector(none, func(source func() RuntimeSample, emit func(int, float64, ...string)) {
		s := source()
		emit(instances, float64(s.Idle), "idle")
		emit(instances, float64(s.Busy), "busy")
		emit(runtimeHeld, float64(s.Code), "code")
		emit(runtimeHeld, float64(s.Images), "images")
		emit(runtimeHeld, float64(s.Instances), "instances")
		emit(runtimeHeld, float64(s.Stacks), "stacks")
	}, instances, runtimeHeld)
}

// HostCalls reports, for each host function, the number of calls by result, and the bytes that they moved. It is safe
// for concurrent use.
type HostCalls func(calls func(function, result string, n uint64), bytes func(function string, n uint64))

func newCallsCollector() *collector[HostCalls] {
	none := HostCalls(func(func(string, string, uint64), func(string, uint64)) {})
	return newCollector(none, func(source HostCalls, emit func(int, float64, ...string)) {
		source(func(function, result string, n uint64) { emit(hostCalls, float64(n), function, result) },
			func(function string, n uint64) { emit(hostCallBytes, float64(n), function) })
	}, hostCalls, hostCallBytes)
}

func newTenantCollector() *collector[func() map[string]bool] {
	none := func() map[string]bool { return map[string]bool{"": false} } // as vacancy does
	return newCollector(none, func(source func() map[string]bool, emit func(int, float64, ...string)) {
		for tenant, up := range source() {
			emit(tenantUp, oneIf(up), tenant)
		}
	}, tenantUp)
}

// oneIf is the value of a gauge that tells yes from no.
func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}
