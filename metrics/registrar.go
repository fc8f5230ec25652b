package metrics

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
)

// registrar makes families as the catalogue describes them and registers them.
type registrar struct {
	reg prometheus.Registerer
	err error // of families that could not be registered
}

func (r *registrar) register(row int, c prometheus.Collector) {
	if err := r.reg.Register(c); err != nil {
		r.err = errors.Join(r.err, fmt.Errorf("register %q: %w", catalogue[row].name, err))
	}
}

func (r *registrar) counter(row int) *prometheus.CounterVec {
	f := catalogue[row]
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: f.name, Help: f.help, Unit: f.unit}, f.labelNames())
	r.register(row, vec)
	return vec
}

func (r *registrar) gauge(row int) *prometheus.GaugeVec {
	f := catalogue[row]
	vec := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: f.name, Help: f.help, Unit: f.unit}, f.labelNames())
	r.register(row, vec)
	return vec
}

func (r *registrar) histogram(row int) *prometheus.HistogramVec {
	f := catalogue[row]
	vec := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: f.name, Help: f.help, Unit: f.unit,
		Buckets:                        buckets[:],
		NativeHistogramBucketFactor:    nativeFactor,
		NativeHistogramMaxBucketNumber: nativeMaxBuckets,
	}, f.labelNames())
	r.register(row, vec)
	return vec
}

// desc describes a family that is made at the scrape.
func desc(row int) *prometheus.Desc {
	f := catalogue[row]
	return prometheus.V2.NewDesc(
		f.name, f.help, prometheus.UnconstrainedLabels(f.labelNames()), nil, prometheus.WithUnit(f.unit),
	)
}

// vacancy is the one series, with empty labels and 0, of a family that has no other.
type vacancy struct {
	vec *prometheus.MetricVec
	row int
}

// newVacancy shows the vacancy of a new family.
func newVacancy(vec *prometheus.MetricVec, row int) vacancy {
	v := vacancy{vec, row}
	v.show()
	return v
}

func (v vacancy) show() {
	// The error could only be a wrong number of labels, and vec has its labels from the row.
	_, _ = v.vec.GetMetricWithLabelValues(make([]string, len(catalogue[v.row].labelNames()))...)
}

func (v vacancy) clear() {
	v.vec.DeleteLabelValues(make([]string, len(catalogue[v.row].labelNames()))...)
}

// pluginGauge is quern_plugin_info and quern_plugin_reset_mode_info: a series for each plugin that serves.
type pluginGauge struct {
	info, resetMode *prometheus.GaugeVec
	none            [2]vacancy

	mu      sync.Mutex
	serving map[[5]string]struct{} // guarded by mu; label values of resetMode, of which info has the first four
}

func newPluginGauge(info, resetMode *prometheus.GaugeVec) *pluginGauge {
	return &pluginGauge{
		info: info, resetMode: resetMode, serving: map[[5]string]struct{}{},
		none: [2]vacancy{newVacancy(info.MetricVec, pluginInfo), newVacancy(resetMode.MetricVec, pluginResetMode)},
	}
}

func (g *pluginGauge) set(labels [5]string, serving bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if serving {
		g.serving[labels] = struct{}{}
		g.info.WithLabelValues(labels[:4]...).Set(1)
		g.resetMode.WithLabelValues(labels[:]...).Set(1)
	} else {
		delete(g.serving, labels)
		g.info.DeleteLabelValues(labels[:4]...)
		g.resetMode.DeleteLabelValues(labels[:]...)
	}
	for _, v := range g.none {
		if len(g.serving) == 0 {
			v.show()
		} else {
			v.clear()
		}
	}
}

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
	// Code, Snapshots, Instances and Stacks are bytes: machine code, the snapshots that instances start from, the private
	// memory of idle instances, and the call stacks of running guests.
	Code, Snapshots, Instances, Stacks int64
	// Idle counts instances, Busy calls, with those that wait for the snapshot.
	Idle, Busy int
}

func newRuntimeCollector() *collector[func() RuntimeSample] {
	none := func() RuntimeSample { return RuntimeSample{} }
	return newCollector(none, func(source func() RuntimeSample, emit func(int, float64, ...string)) {
		s := source()
		emit(instances, float64(s.Idle), "idle")
		emit(instances, float64(s.Busy), "busy")
		emit(runtimeHeld, float64(s.Code), "code")
		emit(runtimeHeld, float64(s.Snapshots), "snapshots")
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
