package metrics

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Config has the labels of quern_build_info, and the kind of the histograms.
type Config struct {
	// Version is the version of Quern, as `quern version` prints it. Default "devel".
	Version string
	// Host is the host's name for people. Default "".
	Host string
	// Revision is the revision of the source. Default "unknown".
	Revision string
	// NativeHistograms also makes histograms native, in addition to their classic buckets, for a Prometheus that scrapes
	// native ones. Their buckets grow by 10 %, with at most 160 buckets in a series.
	NativeHistograms bool
}

// Metrics counts what one host does. Its methods are safe for concurrent use.
//
// Parameters for tenants, queues and plugins are names; outcomes, reasons, results and ops are words of the catalogue.
// A plugin that serves every tenant has an empty tenant.
type Metrics struct {
	*Relays

	vecs       map[*family]vec // the series of the families in counted
	slots      prometheus.Gauge
	slotsInUse prometheus.Gauge

	queues, tenants, shares, refused, stopped, memory, runtime, calls, databases, topics *collector

	sampler *queueSampler // the source of the collector queues

	mu sync.Mutex
	// serving has the versions that serve, as the label values of pluginResetMode. The first four are also those of
	// pluginInfo. Guarded by mu.
	serving map[[5]string]struct{}

	// taskMu is held by QueueForgotten, so that Tasks returns no series that were dropped.
	taskMu sync.Mutex
	tasks  map[[3]string]*Tasks // guarded by taskMu
}

// vec has a family's series. Exactly one of its last three fields is set.
type vec struct {
	*prometheus.MetricVec
	counter   *prometheus.CounterVec
	gauge     *prometheus.GaugeVec
	histogram *prometheus.HistogramVec
}

// Tasks counts the tasks of one queue that one plugin runs.
type Tasks struct {
	metrics             *Metrics
	names               [3]string // tenant, queue and plugin
	dropped             atomic.Bool
	complete, cpu, fuel prometheus.Counter
	wait, duration      prometheus.Observer
}

// New registers the whole catalogue with reg. It returns an error if one of the families is registered already.
//
// The catalogue does not have the metrics of the Go runtime and of the process: client_golang's collectors have them.
func New(reg prometheus.Registerer, cfg Config) (*Metrics, error) {
	m := &Metrics{
		queues: newCollector(queueDepth, queueOldestPendingAge, queueListeners, queueQuarantined, queuePaused,
			queueDeadLetters),
		tenants:   newCollector(tenantUp),
		shares:    newCollector(tenantWeight, tenantCost),
		refused:   newCollector(pluginRefused),
		stopped:   newCollector(releaseStopped),
		memory:    newCollector(memoryLimit, memoryReserved, memoryWait),
		runtime:   newCollector(instances, runtimeHeld),
		calls:     newCollector(hostCalls, hostCallBytes),
		databases: newCollector(sqlConnections, sqlConnectionsMax, sqlDatabasesAway, sqlWait, sqlStatements, sqlCommits),
		topics:    newCollector(topicPublications, topicTasks),
		serving:   map[[5]string]struct{}{},
		tasks:     map[[3]string]*Tasks{},
		vecs:      map[*family]vec{},
	}
	relays, failed := NewRelays(reg)
	m.Relays = relays
	register := func(name string, c prometheus.Collector) {
		if err := reg.Register(c); err != nil {
			failed = errors.Join(failed, fmt.Errorf("register %q: %w", name, err))
		}
	}
	for _, f := range counted {
		m.vecs[f] = newVec(f, cfg.NativeHistograms)
		register(f.name, m.vecs[f].MetricVec)
	}
	register(queueDepth.name, m.queues)
	register(tenantUp.name, m.tenants)
	register(tenantCost.name, m.shares)
	register(pluginRefused.name, m.refused)
	register(releaseStopped.name, m.stopped)
	register(memoryLimit.name, m.memory)
	register(instances.name, m.runtime)
	register(hostCalls.name, m.calls)
	register(sqlConnections.name, m.databases)
	register(topicPublications.name, m.topics)
	if failed != nil {
		return nil, failed
	}
	m.slots, m.slotsInUse = m.vecs[slots].gauge.WithLabelValues(), m.vecs[slotsInUse].gauge.WithLabelValues()
	m.vecs[buildInfo].gauge.WithLabelValues(text(cmp.Or(cfg.Version, "devel")), text(cmp.Or(cfg.Revision, "unknown")),
		goruntime.Version(), text(cfg.Host)).Set(1)
	for _, op := range redisOps {
		m.count(redisErrors, 0, op)
	}
	m.count(hostLogLinesDropped, 0)
	m.vacant(true, ofQueues...)
	m.vacant(true, ofProblems...)
	m.vacant(true, tasksReclaimed, queuesHidden, quotaUsed, leaseRenewalsLate, scheduleTicks, scheduleLate,
		destinationsOff, redisMemoryUsed, redisMemoryMax,
		redisRoundTrip, clockSkew, pluginLoads, pluginInfo, pluginResetMode,
		releaseTasks)
	m.CollectTenants(func() map[string]bool { return map[string]bool{"": false} }) // as vacant does for other families
	m.CollectShares(func() map[string]ShareSample { return map[string]ShareSample{"": {}} })
	m.CollectRefused(func(func(tenant, plugin string)) {})
	m.CollectStopped(func(func(tenant, plugin string)) {})
	m.CollectMemory(func() MemorySample { return MemorySample{Reserved: map[string]int64{"tasks": 0}} })
	m.CollectRuntime(func() RuntimeSample { return RuntimeSample{} })
	m.CollectSQL(func() SQLSample { return SQLSample{} })
	m.sampler = &queueSampler{failed: func() { m.RedisError(opScrape) }, served: map[pair]string{}}
	m.queues.use(m.sampler.emit)
	return m, nil
}

// newVec makes the vector of a family in counted.
func newVec(f *family, native bool) (v vec) {
	opts := prometheus.Opts{Name: f.name, Help: f.help, Unit: f.unit}
	switch f.kind {
	case counter:
		v.counter = prometheus.NewCounterVec(prometheus.CounterOpts(opts), f.labels)
		v.MetricVec = v.counter.MetricVec
	case gauge:
		v.gauge = prometheus.NewGaugeVec(prometheus.GaugeOpts(opts), f.labels)
		v.MetricVec = v.gauge.MetricVec
	case histogram:
		opts := prometheus.HistogramOpts{Name: f.name, Help: f.help, Unit: f.unit, Buckets: buckets[f]}
		if native {
			opts.NativeHistogramBucketFactor, opts.NativeHistogramMaxBucketNumber = 1.1, 160
		}
		v.histogram = prometheus.NewHistogramVec(opts, f.labels)
		v.MetricVec = v.histogram.MetricVec
	}
	return v
}

// vacant shows or removes the only series, with empty labels and 0, of families that have no other series.
func (m *Metrics) vacant(show bool, families ...*family) {
	for _, f := range families {
		none := make([]string, len(f.labels))
		if show {
			_, _ = m.vecs[f].GetMetricWithLabelValues(none...) // the number of labels is right
		} else {
			m.vecs[f].DeleteLabelValues(none...)
		}
	}
}

// count adds n to a counter. If n is 0, it only creates the series.
func (m *Metrics) count(f *family, n float64, labels ...string) {
	m.vecs[f].counter.WithLabelValues(texts(labels)...).Add(max(0, n))
}

// QueueServed creates the series of a served queue with the value 0, except series of outcomes and problems that may
// never occur. Call it before the queue's first task. Further calls for the same queue and plugin change nothing.
func (m *Metrics) QueueServed(tenant, queue, plugin string) {
	if !m.sampler.serve(text(tenant), text(queue), text(plugin)) {
		return
	}
	m.Tasks(tenant, queue, plugin)
	m.vacant(false, ofQueues...)
}

// Tasks creates the series of a queue's tasks unless they exist, and returns their counters. Keep the result, since the
// lookup takes longer than counting a task.
func (m *Metrics) Tasks(tenant, queue, plugin string) *Tasks {
	names := [3]string{tenant, queue, plugin}
	m.taskMu.Lock()
	defer m.taskMu.Unlock()
	if t := m.tasks[names]; t != nil {
		return t
	}
	tenant, queue, plugin = text(tenant), text(queue), text(plugin)
	t := &Tasks{
		metrics: m, names: names,
		complete: m.vecs[tasks].counter.WithLabelValues(tenant, queue, plugin, "complete", ""),
		cpu:      m.vecs[taskCPU].counter.WithLabelValues(tenant, queue, plugin),
		fuel:     m.vecs[taskFuel].counter.WithLabelValues(tenant, queue, plugin),
		wait:     m.vecs[taskWait].histogram.WithLabelValues(tenant, queue),
		duration: m.vecs[taskDuration].histogram.WithLabelValues(tenant, queue, plugin),
	}
	m.tasks[names] = t
	return t
}

// shown returns t. If the queue of t was forgotten, it returns the Tasks that was made for the queue since.
func (t *Tasks) shown() *Tasks {
	if t.dropped.Load() {
		return t.metrics.Tasks(t.names[0], t.names[1], t.names[2])
	}
	return t
}

// QueueForgotten drops the series of a queue that is no longer served.
func (m *Metrics) QueueForgotten(tenant, queue string) {
	m.taskMu.Lock()
	defer m.taskMu.Unlock()
	tenant, queue = text(tenant), text(queue)
	maps.DeleteFunc(m.tasks, func(names [3]string, t *Tasks) bool {
		is := text(names[0]) == tenant && text(names[1]) == queue
		t.dropped.Store(is)
		return is
	})
	for _, f := range slices.Concat(ofQueues, ofProblems) {
		m.vecs[f].DeletePartialMatch(prometheus.Labels{"tenant": tenant, "queue": queue})
	}
	m.sampler.forget(tenant, queue)
}

// TenantServed creates every series of a served tenant.
func (m *Metrics) TenantServed(tenant string) {
	for _, outcome := range []string{"released", "rescheduled", "failed"} {
		m.count(tasksReclaimed, 0, tenant, outcome)
	}
	for _, result := range []string{"fired", "skipped", "missed"} {
		m.count(scheduleTicks, 0, tenant, result)
	}
	m.vecs[scheduleLate].histogram.WithLabelValues(text(tenant))
	m.count(leaseRenewalsLate, 0, tenant)
	m.DestinationsOff(tenant, 0)
	m.QueuesHidden(tenant, 0)
	m.QuotaUsed(tenant, 0)
	m.vacant(false, tasksReclaimed, queuesHidden, quotaUsed, leaseRenewalsLate, scheduleTicks,
		scheduleLate, destinationsOff)
}

// ScheduleTicks counts n ticks of schedules that this host handled. result is fired, skipped or missed.
func (m *Metrics) ScheduleTicks(tenant, result string, n int) {
	m.count(scheduleTicks, float64(n), tenant, result)
}

// ScheduleLate records how long after its tick the task of a schedule was enqueued.
func (m *Metrics) ScheduleLate(tenant string, late time.Duration) {
	m.vecs[scheduleLate].histogram.WithLabelValues(text(tenant)).Observe(max(0, late).Seconds())
}

// DestinationsOff sets how many destinations of the tenant's webhooks are switched off.
func (m *Metrics) DestinationsOff(tenant string, n int) {
	m.vecs[destinationsOff].gauge.WithLabelValues(text(tenant)).Set(float64(n))
}

// QueuesHidden sets how many of the tenant's queues in Redis have no queue gauges.
func (m *Metrics) QueuesHidden(tenant string, n int64) {
	m.vecs[queuesHidden].gauge.WithLabelValues(text(tenant)).Set(float64(max(0, n)))
}

// QuotaUsed sets the used part of the tenant's fullest quota, from 0 to 1.
func (m *Metrics) QuotaUsed(tenant string, share float64) {
	m.vecs[quotaUsed].gauge.WithLabelValues(text(tenant)).Set(share)
}

// Started counts the start of a task. wait is how long the task was pending. traceID is the ID of the task's trace if
// the trace is sampled, else "".
func (t *Tasks) Started(traceID string, wait time.Duration) { observe(t.shown().wait, wait, traceID) }

// observe adds a duration to a histogram, with traceID as its exemplar unless it is "".
func observe(histogram prometheus.Observer, d time.Duration, traceID string) {
	seconds := max(0, d).Seconds()
	if traced, ok := histogram.(prometheus.ExemplarObserver); ok && traceID != "" {
		traced.ObserveWithExemplar(seconds, prometheus.Labels{"trace_id": traceID})
		return
	}
	histogram.Observe(seconds)
}

// Ran counts the CPU time and fuel of one run of a task, whatever its outcome.
func (t *Tasks) Ran(cpu time.Duration, fuel int64) {
	t = t.shown()
	t.cpu.Add(max(0, cpu.Seconds()))
	t.fuel.Add(max(0, float64(fuel)))
}

// Done counts a task's outcome on this host; d is the time since the task's start. reason is the cause of a failure,
// else "". traceID is as for Started.
func (t *Tasks) Done(outcome, reason, traceID string, d time.Duration) {
	t = t.shown()
	if outcome == "complete" {
		t.complete.Inc()
	} else {
		t.metrics.count(tasks, 1, t.names[0], t.names[1], t.names[2], outcome, reason)
	}
	switch outcome {
	case "released", "lost": // the duration of such tasks says nothing
	default:
		observe(t.duration, d, traceID)
	}
}

// TaskDropped counts an ID whose task was missing or finished when it was reserved.
func (m *Metrics) TaskDropped(tenant, queue string) { m.count(tasksDropped, 1, tenant, queue) }

// TasksReclaimed counts n tasks that this host took from a dead listener, by outcome.
func (m *Metrics) TasksReclaimed(tenant, outcome string, n int) {
	m.count(tasksReclaimed, float64(n), tenant, outcome)
}

// ResultRefused counts an outcome that Redis refused, because this host had lost the task.
func (m *Metrics) ResultRefused(tenant, queue string) { m.count(resultsRefused, 1, tenant, queue) }

// LogLinesDropped counts n lost lines of a task's log.
func (m *Metrics) LogLinesDropped(tenant, queue string, n int) {
	if n > 0 {
		m.count(logLinesDropped, float64(n), tenant, queue)
	}
}

// HostLogLinesDropped counts n lost lines of the host's own log.
func (m *Metrics) HostLogLinesDropped(n int) { m.count(hostLogLinesDropped, float64(n)) }

// LeaseRenewedLate counts a renewal of the tenant's lease that came late, including one after the lease had expired.
func (m *Metrics) LeaseRenewedLate(tenant string) { m.count(leaseRenewalsLate, 1, tenant) }

// Slots sets how many tasks the host can run at once.
func (m *Metrics) Slots(total int) { m.slots.Set(float64(total)) }

// SlotsInUse sets how many tasks the host is running.
func (m *Metrics) SlotsInUse(n int) { m.slotsInUse.Set(float64(n)) }

// PluginLoaded counts a plugin file that was new, changed or gone; result is ok, refused or gone.
func (m *Metrics) PluginLoaded(tenant, plugin, result string) {
	m.count(pluginLoads, 1, tenant, plugin, result)
	m.vacant(false, pluginLoads)
}

// ReleaseTask counts a task of a plugin that has a canary. release is canary or stable.
func (m *Metrics) ReleaseTask(tenant, plugin, release, outcome string) {
	m.count(releaseTasks, 1, tenant, plugin, release, outcome)
	m.vacant(false, releaseTasks)
}

// PluginServing records that a version of a plugin begins or ceases to serve. The version's reset mode does not change.
func (m *Metrics) PluginServing(tenant, plugin, version, digest, resetMode string, serving bool) {
	labels := [5]string{text(tenant), text(plugin), text(version), text(digest), text(resetMode)}
	m.mu.Lock()
	defer m.mu.Unlock()
	if serving {
		m.serving[labels] = struct{}{}
		m.vecs[pluginInfo].gauge.WithLabelValues(labels[:4]...).Set(1)
		m.vecs[pluginResetMode].gauge.WithLabelValues(labels[:]...).Set(1)
	} else {
		delete(m.serving, labels)
		m.vecs[pluginInfo].gauge.DeleteLabelValues(labels[:4]...)
		m.vecs[pluginResetMode].gauge.DeleteLabelValues(labels[:]...)
	}
	m.vacant(len(m.serving) == 0, pluginInfo, pluginResetMode)
}

// RedisError counts a failed call to Redis; op is the call's purpose.
func (m *Metrics) RedisError(op string) { m.count(redisErrors, 1, op) }

// RedisSample has a host's measurements of the Redis of some tenants.
type RedisSample struct {
	// RoundTrip is the time that Redis took to answer. ClockSkew is the host's clock minus the clock of Redis.
	RoundTrip, ClockSkew time.Duration
	// MemoryUsed and MemoryMax are bytes; MemoryMax is 0 if there is no limit. Both are valid only if MemoryKnown is
	// true.
	MemoryUsed, MemoryMax int64
	MemoryKnown           bool
}

// RedisSampled shows a sample of the Redis at an address. A nil s means that this Redis does not answer: then it has no
// series.
func (m *Metrics) RedisSampled(address string, s *RedisSample) {
	address = text(address)
	show := func(f *family, known bool, value float64) {
		if known {
			m.vecs[f].gauge.WithLabelValues(address).Set(value)
		} else {
			m.vecs[f].gauge.DeleteLabelValues(address)
		}
	}
	answered := s != nil
	if !answered {
		s = &RedisSample{}
	}
	show(redisRoundTrip, answered, s.RoundTrip.Seconds())
	show(clockSkew, answered, s.ClockSkew.Seconds())
	show(redisMemoryUsed, s.MemoryKnown, float64(s.MemoryUsed))
	show(redisMemoryMax, s.MemoryKnown, float64(s.MemoryMax))
	m.vacant(false, redisRoundTrip, clockSkew, redisMemoryUsed, redisMemoryMax)
}

// text replaces bytes that are not UTF-8, on which client_golang panics: names of files and queues can have any bytes.
func text(value string) string { return strings.ToValidUTF8(value, "\uFFFD") }

// texts applies text to a list, in place.
func texts(values []string) []string {
	for i, value := range values {
		values[i] = text(value)
	}
	return values
}
