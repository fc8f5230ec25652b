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
	// Revision of the source, as the version control names it. Default "unknown".
	Revision string
}

func (c Config) withDefaults() Config {
	c.Version = cmp.Or(c.Version, "devel")
	c.Revision = cmp.Or(c.Revision, "unknown")
	return c
}

// Metrics counts what one host does. Its methods may be called at any time by any goroutine.
//
// Tenants, queues and plugins are given by name; outcomes, reasons, results and ops are words of the
// catalogue. The tenant of a plugin that serves every tenant is empty.
type Metrics struct {
	tasks           *prometheus.CounterVec
	tasksDropped    *prometheus.CounterVec
	tasksReclaimed  *prometheus.CounterVec
	taskWait        *prometheus.HistogramVec
	taskDuration    *prometheus.HistogramVec
	taskCPU         *prometheus.CounterVec
	taskFuel        *prometheus.CounterVec
	resultsRefused  *prometheus.CounterVec
	logLinesDropped *prometheus.CounterVec
	slots           prometheus.Gauge
	slotsInUse      prometheus.Gauge
	pluginLoads     *prometheus.CounterVec
	hostLog         prometheus.Counter
	redisErrors     *prometheus.CounterVec

	plugins *pluginGauge
	tenants *tenantCollector
	queues  *queueCollector
	runtime *runtimeCollector
	calls   *callsCollector

	noQueue  []vacancy // the families of queues
	noLoad   vacancy   // quern_plugin_loads_total
	noTenant vacancy   // quern_tasks_reclaimed_total
}

// New registers the whole catalogue with reg. It fails if reg has one of the families already.
//
// What the Go runtime and the process say of themselves is not in the catalogue; a caller that wants
// it registers client_golang's collectors beside it.
func New(reg prometheus.Registerer, cfg Config) (*Metrics, error) {
	cfg = cfg.withDefaults()
	r := registrar{reg: reg}
	m := &Metrics{
		tasks:           r.counter(tasks),
		tasksDropped:    r.counter(tasksDropped),
		tasksReclaimed:  r.counter(tasksReclaimed),
		taskWait:        r.histogram(taskWait),
		taskDuration:    r.histogram(taskDuration),
		taskCPU:         r.counter(taskCPU),
		taskFuel:        r.counter(taskFuel),
		resultsRefused:  r.counter(resultsRefused),
		logLinesDropped: r.counter(logLinesDropped),
		slots:           r.gauge(slots).WithLabelValues(),
		slotsInUse:      r.gauge(slotsInUse).WithLabelValues(),
		pluginLoads:     r.counter(pluginLoads),
		hostLog:         r.counter(hostLogLinesDropped).WithLabelValues(),
		redisErrors:     r.counter(redisErrors),
		plugins:         newPluginGauge(r.gauge(pluginInfo), r.gauge(pluginResetMode)),
		tenants:         newTenantCollector(),
		runtime:         newRuntimeCollector(),
		calls:           newCallsCollector(),
	}
	m.queues = newQueueCollector(func() { m.RedisError(opScrape) })
	r.register(queueDepth, m.queues)
	r.register(tenantUp, m.tenants)
	r.register(instances, m.runtime)
	r.register(hostCalls, m.calls)
	r.gauge(buildInfo).WithLabelValues(text(cfg.Version), text(cfg.Revision), goruntime.Version()).Set(1)
	for _, op := range redisOps {
		m.redisErrors.WithLabelValues(op)
	}
	m.noQueue = []vacancy{
		{m.tasks.MetricVec, tasks},
		{m.tasksDropped.MetricVec, tasksDropped},
		{m.taskWait.MetricVec, taskWait},
		{m.taskDuration.MetricVec, taskDuration},
		{m.taskCPU.MetricVec, taskCPU},
		{m.taskFuel.MetricVec, taskFuel},
		{m.resultsRefused.MetricVec, resultsRefused},
		{m.logLinesDropped.MetricVec, logLinesDropped},
	}
	m.noLoad = vacancy{m.pluginLoads.MetricVec, pluginLoads}
	for _, v := range m.noQueue {
		v.show()
	}
	m.noLoad.show()
	m.noTenant = vacancy{m.tasksReclaimed.MetricVec, tasksReclaimed}
	m.noTenant.show()
	if r.err != nil {
		return nil, r.err
	}
	return m, nil
}

// QueueServed makes every series of a queue that this host serves exist, with 0 where nothing was
// counted yet. It is called before the queue's first task and may be called again.
func (m *Metrics) QueueServed(tenant, queue, plugin string) {
	tenant, queue, plugin = text(tenant), text(queue), text(plugin)
	for _, end := range ends {
		m.tasks.WithLabelValues(tenant, queue, plugin, end.outcome, end.reason)
	}
	m.tasksDropped.WithLabelValues(tenant, queue)
	m.taskWait.WithLabelValues(tenant, queue)
	m.taskDuration.WithLabelValues(tenant, queue, plugin)
	m.taskCPU.WithLabelValues(tenant, queue, plugin)
	m.taskFuel.WithLabelValues(tenant, queue, plugin)
	m.resultsRefused.WithLabelValues(tenant, queue)
	m.logLinesDropped.WithLabelValues(tenant, queue)
	m.queues.serve(tenant, queue)
	for _, v := range m.noQueue {
		v.clear()
	}
}

// QueueForgotten drops the series of a queue that is not served any more.
func (m *Metrics) QueueForgotten(tenant, queue string) {
	tenant, queue = text(tenant), text(queue)
	for _, v := range m.noQueue {
		v.vec.DeletePartialMatch(prometheus.Labels{"tenant": tenant, "queue": queue})
	}
	m.queues.forget(tenant, queue)
}

// TenantServed makes every series of a tenant that this host serves exist.
func (m *Metrics) TenantServed(tenant string) {
	for _, outcome := range reclaimOutcomes {
		m.tasksReclaimed.WithLabelValues(text(tenant), outcome)
	}
	m.noTenant.clear()
}

// CollectTenants gives quern_tenant_up its source, which is asked at each scrape, tells of each tenant whether it is served,
// and must answer at once.
func (m *Metrics) CollectTenants(source func() map[string]bool) { m.tenants.use(source) }

// CollectQueues gives the gauges of queues their source, which is asked at a scrape, in a goroutine
// of its own, at most once in three seconds and never twice at a time. Its context ends after two
// seconds: the scrape goes on without it then, and the source must return. Samples beside an error are those
// of all tenants but some, which have no series then. Without a source the gauges have none.
func (m *Metrics) CollectQueues(source func(context.Context) ([]QueueSample, error)) {
	m.queues.use(source)
}

// CollectRuntime gives the gauges of instances and of held memory their source, which is asked at each scrape and
// must answer at once. Without a source they show 0.
func (m *Metrics) CollectRuntime(source func() RuntimeSample) { m.runtime.use(source) }

// CollectHostCalls gives the counters of host calls their source, which is asked at each scrape.
func (m *Metrics) CollectHostCalls(source HostCalls) { m.calls.use(source) }

// TaskStarted counts a start; wait is how long the task had been pending.
func (m *Metrics) TaskStarted(tenant, queue string, wait time.Duration) {
	m.taskWait.WithLabelValues(text(tenant), text(queue)).Observe(max(0, wait).Seconds())
}

// TaskRan counts what one run of a task took, however it ended.
func (m *Metrics) TaskRan(tenant, queue, plugin string, cpu time.Duration, fuel int64) {
	tenant, queue, plugin = text(tenant), text(queue), text(plugin)
	m.taskCPU.WithLabelValues(tenant, queue, plugin).Add(max(0, cpu).Seconds())
	m.taskFuel.WithLabelValues(tenant, queue, plugin).Add(float64(max(0, fuel)))
}

// TaskDone counts what became of a task on this host, d after its start. reason is the cause of a
// failure, else empty.
func (m *Metrics) TaskDone(tenant, queue, plugin, outcome, reason string, d time.Duration) {
	tenant, queue, plugin = text(tenant), text(queue), text(plugin)
	m.tasks.WithLabelValues(tenant, queue, plugin, text(outcome), text(reason)).Inc()
	switch outcome {
	case "released", "rejected", "lost": // cut short or not ours: says nothing of how long such tasks take
	default:
		m.taskDuration.WithLabelValues(tenant, queue, plugin).Observe(max(0, d).Seconds())
	}
}

// TaskDropped counts an ID whose task was missing or finished when it was reserved.
func (m *Metrics) TaskDropped(tenant, queue string) {
	m.tasksDropped.WithLabelValues(text(tenant), text(queue)).Inc()
}

// TasksReclaimed counts n tasks that were taken from a listener that had died, by what became of them.
func (m *Metrics) TasksReclaimed(tenant, outcome string, n int) {
	m.tasksReclaimed.WithLabelValues(text(tenant), text(outcome)).Add(float64(max(0, n)))
}

// ResultRefused counts an outcome that Redis did not take, since another holds the task.
func (m *Metrics) ResultRefused(tenant, queue string) {
	m.resultsRefused.WithLabelValues(text(tenant), text(queue)).Inc()
}

// LogLinesDropped counts n lines that a task wrote and nobody can read any more.
func (m *Metrics) LogLinesDropped(tenant, queue string, n int) {
	m.logLinesDropped.WithLabelValues(text(tenant), text(queue)).Add(float64(max(0, n)))
}

// HostLogLinesDropped counts n lines of the host's own log that nobody can read any more.
func (m *Metrics) HostLogLinesDropped(n int) { m.hostLog.Add(float64(max(0, n))) }

// Slots says how many tasks the host runs at once at most.
func (m *Metrics) Slots(total int) { m.slots.Set(float64(total)) }

// SlotsInUse says how many tasks the host runs now.
func (m *Metrics) SlotsInUse(n int) { m.slotsInUse.Set(float64(n)) }

// PluginLoaded counts a look at a plugin's file; result is ok, refused or gone.
func (m *Metrics) PluginLoaded(tenant, plugin, result string) {
	tenant, plugin = text(tenant), text(plugin)
	for _, known := range loadResults {
		m.pluginLoads.WithLabelValues(tenant, plugin, known)
	}
	m.pluginLoads.WithLabelValues(tenant, plugin, text(result)).Inc()
	m.noLoad.clear()
}

// PluginServing says that this version of a plugin serves from now on, or no longer. The reset mode is the way in
// which its tasks come by pristine instances, and does not change.
func (m *Metrics) PluginServing(tenant, plugin, version, digest, resetMode string, serving bool) {
	m.plugins.set([5]string{text(tenant), text(plugin), text(version), text(digest), text(resetMode)}, serving)
}

// RedisError counts a failed call to Redis; op says what it was for.
func (m *Metrics) RedisError(op string) { m.redisErrors.WithLabelValues(text(op)).Inc() }

// text mends a label value: client_golang panics over one that is not UTF-8, and names of files and
// of queues in Redis may be any bytes.
func text(value string) string { return strings.ToValidUTF8(value, "\uFFFD") }
