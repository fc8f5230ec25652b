package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// RuntimeSample is what plugins take on this host at one moment.
type RuntimeSample struct {
	// Code, Snapshots, Instances and Stacks are bytes: of machine code, of the snapshots that instances begin with, of
	// what idle instances have beside them, and of the call stacks of guests that run.
	Code, Snapshots, Instances, Stacks int64
	// Idle and Busy count instances.
	Idle, Busy int
}

// runtimeCollector makes the gauges of instances and of held memory at the scrape.
type runtimeCollector struct {
	instances, held *prometheus.Desc
	source          atomic.Pointer[func() RuntimeSample]
}

func newRuntimeCollector() *runtimeCollector {
	c := &runtimeCollector{instances: desc(instances), held: desc(runtimeHeld)}
	c.use(func() RuntimeSample { return RuntimeSample{} })
	return c
}

func (c *runtimeCollector) use(source func() RuntimeSample) { c.source.Store(&source) }

// HostCalls tells of each function that plugins call in their host how often it had which result, and how many bytes it
// has moved. It may be called by several goroutines at once.
type HostCalls func(calls func(function, result string, n uint64), bytes func(function string, n uint64))

// callsCollector asks for the counters of host calls at each scrape.
type callsCollector struct {
	calls, bytes *prometheus.Desc
	source       atomic.Pointer[HostCalls]
}

func newCallsCollector() *callsCollector {
	c := &callsCollector{calls: desc(hostCalls), bytes: desc(hostCallBytes)}
	c.use(func(func(string, string, uint64), func(string, uint64)) {})
	return c
}

func (c *callsCollector) use(source HostCalls) { c.source.Store(&source) }

// Describe is part of prometheus.Collector.
func (c *callsCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.calls
	ch <- c.bytes
}

// Collect is part of prometheus.Collector.
func (c *callsCollector) Collect(ch chan<- prometheus.Metric) {
	(*c.source.Load())(func(function, result string, n uint64) {
		ch <- prometheus.MustNewConstMetric(c.calls, prometheus.CounterValue, float64(n), text(function), text(result))
	}, func(function string, n uint64) {
		ch <- prometheus.MustNewConstMetric(c.bytes, prometheus.CounterValue, float64(n), text(function))
	})
}

// Describe is part of prometheus.Collector.
func (c *runtimeCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.instances
	ch <- c.held
}

// Collect is part of prometheus.Collector.
func (c *runtimeCollector) Collect(ch chan<- prometheus.Metric) {
	s := (*c.source.Load())()
	gauge := func(d *prometheus.Desc, value float64, label string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, max(0, value), label)
	}
	gauge(c.instances, float64(s.Idle), "idle")
	gauge(c.instances, float64(s.Busy), "busy")
	gauge(c.held, float64(s.Code), "code")
	gauge(c.held, float64(s.Snapshots), "snapshots")
	gauge(c.held, float64(s.Instances), "instances")
	gauge(c.held, float64(s.Stacks), "stacks")
}
