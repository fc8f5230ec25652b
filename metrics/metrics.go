package metrics

import (
	"cmp"
	"context"
	goruntime "runtime"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Config says what quern_build_info shows.
type Config struct {
	// Version of Quern, as `quern version` prints it. Default "devel".
	Version string
	// Revision of the source. Default "unknown".
	Revision string
}

// Metrics counts what one host does. Its methods are safe for concurrent use.
//
// Tenants, queues and plugins are names; outcomes, reasons, results and ops are words of the catalogue. A plugin that
// serves every tenant has an empty tenant.
type Metrics struct {
	counters   [len(catalogue)]*prometheus.CounterVec   // by row
	histograms [len(catalogue)]*prometheus.HistogramVec // by row
	slots      prometheus.Gauge
	slotsInUse prometheus.Gauge

	plugins *pluginGauge
	queues  *queueCollector
	tenants *collector[func() map[string]bool]
	runtime *collector[func() RuntimeSample]
	calls   *collector[HostCalls]

	noQueue  []vacancy // the families of queues
	noLoad   vacancy   // quern_plugin_loads_total
	noTenant vacancy   // quern_tasks_reclaimed_total
}

// New registers the whole catalogue with reg. It fails if reg has one of the families already.
//
// The metrics of the Go runtime and of the process are not in the catalogue: client_golang's collectors have them.
func New(reg prometheus.Registerer, cfg Config) (*Metrics, error) {
	r := registrar{reg: reg}
	m := &Metrics{
		slots:      r.gauge(slots).WithLabelValues(),
		slotsInUse: r.gauge(slotsInUse).WithLabelValues(),
		plugins:    newPluginGauge(r.gauge(pluginInfo), r.gauge(pluginResetMode)),
		tenants:    newTenantCollector(),
		runtime:    newRuntimeCollector(),
		calls:      newCallsCollector(),
	}
	for _, row := range []int{
		tasks, tasksDropped, tasksReclaimed, taskCPU, taskFuel, resultsRefused, logLinesDropped, pluginLoads, hostLogLinesDropped, redisErrors,
	} {
		m.counters[row] = r.counter(row)
	}
	for _, row := range []int{taskWait, taskDuration} {
		m.histograms[row] = r.histogram(row)
	}
	m.queues = newQueueCollector(func() { m.RedisError(opScrape) })
	r.register(queueDepth, m.queues)
	r.register(tenantUp, m.tenants)
	r.register(instances, m.runtime)
	r.register(hostCalls, m.calls)
	r.gauge(buildInfo).WithLabelValues(text(cmp.Or(cfg.Version, "devel")), text(cmp.Or(cfg.Revision, "unknown")), goruntime.Version()).Set(1)
	for _, op := range redisOps {
		m.count(redisErrors, 0, op)
	}
	m.count(hostLogLinesDropped, 0)
	for _, row := range []int{tasks, tasksDropped, taskCPU, taskFuel, resultsRefused, logLinesDropped} {
		m.noQueue = append(m.noQueue, newVacancy(m.counters[row].MetricVec, row))
	}
	for _, row := range []int{taskWait, taskDuration} {
		m.noQueue = append(m.noQueue, newVacancy(m.histograms[row].MetricVec, row))
	}
	m.noLoad = newVacancy(m.counters[pluginLoads].MetricVec, pluginLoads)
	m.noTenant = newVacancy(m.counters[tasksReclaimed].MetricVec, tasksReclaimed)
	if r.err != nil {
		return nil, r.err
	}
	return m, nil
}

// count adds n to a counter; 0 makes its series exist.
func (m *Metrics) count(row int, n float64, labels ...string) {
	m.counters[row].WithLabelValues(texts(labels)...).Add(max(0, n))
}

// QueueServed makes every series of a served queue exist, with 0. Call it before the queue's first task; more calls
// change nothing.
func (m *Metrics) QueueServed(tenant, queue, plugin string) {
	for _, end := range ends {
		m.count(tasks, 0, tenant, queue, plugin, end.outcome, end.reason)
	}
	m.count(tasksDropped, 0, tenant, queue)
	m.count(taskCPU, 0, tenant, queue, plugin)
	m.count(taskFuel, 0, tenant, queue, plugin)
	m.count(resultsRefused, 0, tenant, queue)
	m.count(logLinesDropped, 0, tenant, queue)
	tenant, queue = text(tenant), text(queue)
	m.histograms[taskWait].WithLabelValues(tenant, queue)
	m.histograms[taskDuration].WithLabelValues(tenant, queue, text(plugin))
	m.queues.serve(tenant, queue)
	for _, v := range m.noQueue {
		v.clear()
	}
}

// QueueForgotten drops the series of a queue that is no longer served.
func (m *Metrics) QueueForgotten(tenant, queue string) {
	tenant, queue = text(tenant), text(queue)
	for _, v := range m.noQueue {
		v.vec.DeletePartialMatch(prometheus.Labels{"tenant": tenant, "queue": queue})
	}
	m.queues.forget(tenant, queue)
}

// TenantServed makes every series of a served tenant exist.
func (m *Metrics) TenantServed(tenant string) {
	for _, outcome := range reclaimOutcomes {
		m.count(tasksReclaimed, 0, tenant, outcome)
	}
	m.noTenant.clear()
}

// CollectTenants sets the source of quern_tenant_up: whether each tenant is served. Each scrape calls it; it must not
// block.
func (m *Metrics) CollectTenants(source func() map[string]bool) { m.tenants.use(source) }

// CollectQueues sets the source of the queue gauges. A scrape calls it in a goroutine of its own, at most once in three
// seconds and never twice at a time. Its context ends after two seconds: then the scrape goes on without it, and the
// source must return. Samples beside an error leave out the tenants that failed, which have no series then. Without a
// source the gauges have none.
func (m *Metrics) CollectQueues(source func(context.Context) ([]QueueSample, error)) {
	m.queues.use(source)
}

// CollectRuntime sets the source of the gauges of instances and held memory. Each scrape calls it; it must not block.
// Without a source they show 0.
func (m *Metrics) CollectRuntime(source func() RuntimeSample) { m.runtime.use(source) }

// CollectHostCalls sets the source of the counters of host calls. Each scrape calls it.
func (m *Metrics) CollectHostCalls(source HostCalls) { m.calls.use(source) }

// TaskStarted counts a start; wait is how long the task was pending.
func (m *Metrics) TaskStarted(tenant, queue string, wait time.Duration) {
	m.histograms[taskWait].WithLabelValues(text(tenant), text(queue)).Observe(max(0, wait).Seconds())
}

// TaskRan counts the CPU time and fuel of one run, whatever its outcome.
func (m *Metrics) TaskRan(tenant, queue, plugin string, cpu time.Duration, fuel int64) {
	m.count(taskCPU, cpu.Seconds(), tenant, queue, plugin)
	m.count(taskFuel, float64(fuel), tenant, queue, plugin)
}

// TaskDone counts a task's outcome on this host, d after its start. reason is the cause of a failure, else empty.
func (m *Metrics) TaskDone(tenant, queue, plugin, outcome, reason string, d time.Duration) {
	m.count(tasks, 1, tenant, queue, plugin, outcome, reason)
	switch outcome {
	case "released", "rejected", "lost": // the duration says nothing about such tasks
	default:
		m.histograms[taskDuration].WithLabelValues(text(tenant), text(queue), text(plugin)).Observe(max(0, d).Seconds())
	}
}

// TaskDropped counts an ID whose task was missing or finished when it was reserved.
func (m *Metrics) TaskDropped(tenant, queue string) { m.count(tasksDropped, 1, tenant, queue) }

// TasksReclaimed counts n tasks taken from a dead listener, by outcome.
func (m *Metrics) TasksReclaimed(tenant, outcome string, n int) {
	m.count(tasksReclaimed, float64(n), tenant, outcome)
}

// ResultRefused counts an outcome that Redis refused, because this host had lost the task.
func (m *Metrics) ResultRefused(tenant, queue string) { m.count(resultsRefused, 1, tenant, queue) }

// LogLinesDropped counts n lost lines of a task's log.
func (m *Metrics) LogLinesDropped(tenant, queue string, n int) {
	m.count(logLinesDropped, float64(n), tenant, queue)
}

// HostLogLinesDropped counts n lost lines of the host's own log.
func (m *Metrics) HostLogLinesDropped(n int) { m.count(hostLogLinesDropped, float64(n)) }

// Slots sets how many tasks the host can run at once.
func (m *Metrics) Slots(total int) { m.slots.Set(float64(total)) }

// SlotsInUse sets how many tasks the host is running.
func (m *Metrics) SlotsInUse(n int) { m.slotsInUse.Set(float64(n)) }

// PluginLoaded counts a plugin file that was new, changed or gone; result is ok, refused or gone.
func (m *Metrics) PluginLoaded(tenant, plugin, result string) {
	for _, known := range loadResults {
		m.count(pluginLoads, 0, tenant, plugin, known)
	}
	m.count(pluginLoads, 1, tenant, plugin, result)
	m.noLoad.clear()
}

// PluginServing records that a version of a plugin begins or ends to serve. Its reset mode does not change.
func (m *Metrics) PluginServing(tenant, plugin, version, digest, resetMode string, serving bool) {
	m.plugins.set([5]string{text(tenant), text(plugin), text(version), text(digest), text(resetMode)}, serving)
}

// RedisError counts a failed call to Redis by its purpose op.
func (m *Metrics) RedisError(op string) { m.count(redisErrors, 1, op) }

// text replaces bytes that are not UTF-8, on which client_golang panics: names of files and queues may be any bytes.
func text(value string) string { return strings.ToValidUTF8(value, "\uFFFD") }

// texts is text for a list, in place.
func texts(values []string) []string {
	for i, value := range values {
		values[i] = text(value)
	}
	return values
}
