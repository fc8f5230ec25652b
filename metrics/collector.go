package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// emitter adds a series to a family whose series are made at the scrape.
type emitter func(of *family, value float64, labels ...string)

// collector makes the series of its families at each scrape, from a source that can be replaced. Without a source, the
// families have no series.
type collector struct {
	descs  map[*family]*prometheus.Desc
	source atomic.Pointer[func(emitter)]
}

func newCollector(families ...*family) *collector {
	c := &collector{descs: map[*family]*prometheus.Desc{}}
	for _, f := range families {
		c.descs[f] = prometheus.V2.NewDesc(f.name, f.help, prometheus.UnconstrainedLabels(f.labels), nil,
			prometheus.WithUnit(f.unit))
	}
	return c
}

func (c *collector) use(source func(emitter)) { c.source.Store(&source) }

// Describe is part of prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// Collect is part of prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	source := c.source.Load()
	if source == nil {
		return
	}
	(*source)(func(of *family, value float64, labels ...string) {
		kind := prometheus.GaugeValue
		if of.kind == counter {
			kind = prometheus.CounterValue
		}
		ch <- prometheus.MustNewConstMetric(c.descs[of], kind, max(0, value), texts(labels)...)
	})
}

// RuntimeSample is the memory and the instances of plugins on this host.
type RuntimeSample struct {
	// Code, Snapshots, Instances and Stacks are bytes: machine code, the snapshots that instances start from, the
	// private memory of idle instances, and the call stacks of running guests.
	Code, Snapshots, Instances, Stacks int64
	// Idle is the number of idle instances. Busy is the number of calls, including those that wait for the snapshot.
	Idle, Busy int
}

// SQLSample is what a host does on the databases of handlers.
type SQLSample struct {
	Used, Idle, Max, Away                    int           // connections, their maximum, and databases that do not serve
	Waited                                   time.Duration // time for which tasks have waited for a connection
	OK, Refused, OverLimit, Unavailable      int64         // statements by result
	Committed, CommitRefused, CommitsUnknown int64         // commits by result
}

// CollectSQL sets the source of the metrics of databases. Each scrape calls read, which must not block. Without a
// source they are 0.
func (m *Metrics) CollectSQL(read func() SQLSample) {
	m.databases.use(func(emit emitter) {
		s := read()
		emit(sqlConnections, float64(s.Used), "used")
		emit(sqlConnections, float64(s.Idle), "idle")
		emit(sqlConnectionsMax, float64(s.Max))
		emit(sqlDatabasesAway, float64(s.Away))
		emit(sqlWait, s.Waited.Seconds())
		for result, n := range map[string]int64{
			"ok": s.OK, "error": s.Refused, "limit": s.OverLimit, "unavailable": s.Unavailable,
		} {
			emit(sqlStatements, float64(n), result)
		}
		for result, n := range map[string]int64{
			"committed": s.Committed, "refused": s.CommitRefused, "unknown": s.CommitsUnknown,
		} {
			emit(sqlCommits, float64(n), result)
		}
	})
}

// CollectTenants sets the source of quern_tenant_up. read returns whether each tenant is served. Each scrape calls
// read, which must not block.
func (m *Metrics) CollectTenants(read func() map[string]bool) {
	m.tenants.use(func(emit emitter) {
		for tenant, up := range read() {
			value := 0.0
			if up {
				value = 1
			}
			emit(tenantUp, value, tenant)
		}
	})
}

// ShareSample is a tenant's weight, and what its ended tasks cost so far, in time of this whole host.
type ShareSample struct {
	Weight int
	Cost   time.Duration
}

// CollectShares sets the source of quern_tenant_weight and quern_tenant_cost_seconds_total. read returns the share of
// each tenant. Each scrape calls read, which must not block.
func (m *Metrics) CollectShares(read func() map[string]ShareSample) {
	m.shares.use(func(emit emitter) {
		for tenant, share := range read() {
			emit(tenantWeight, float64(share.Weight), tenant)
			emit(tenantCost, share.Cost.Seconds(), tenant)
		}
	})
}

// TopicSample counts the publications to a topic (Published), those of them without a subscriber (Dropped), and the
// tasks that the publications made (Tasks).
type TopicSample struct {
	Tenant, Topic             string
	Published, Dropped, Tasks int64
}

// CollectTopics sets the source of the counters of topics. Each scrape calls read, which must not block.
func (m *Metrics) CollectTopics(read func() []TopicSample) {
	m.topics.use(func(emit emitter) {
		for _, s := range read() {
			emit(topicPublications, float64(s.Published-s.Dropped), s.Tenant, s.Topic, "published")
			emit(topicPublications, float64(s.Dropped), s.Tenant, s.Topic, "dropped")
			emit(topicTasks, float64(s.Tasks), s.Tenant, s.Topic)
		}
	})
}

// CollectRefused sets the source of quern_plugin_refused. read calls refused for each refused plugin. Each scrape calls
// read, which must not block.
func (m *Metrics) CollectRefused(read func(refused func(tenant, plugin string))) {
	m.refused.flag(pluginRefused, read)
}

// CollectStopped sets the source of quern_release_stopped. read calls stopped for each plugin of which a release was
// stopped. Each scrape calls read, which must not block.
func (m *Metrics) CollectStopped(read func(stopped func(tenant, plugin string))) {
	m.stopped.flag(releaseStopped, read)
}

// flag makes the collector emit 1 for each plugin that read reports.
func (c *collector) flag(f *family, read func(report func(tenant, plugin string))) {
	c.use(func(emit emitter) {
		shown := map[[2]string]bool{}
		read(func(tenant, plugin string) {
			if at := [2]string{text(tenant), text(plugin)}; !shown[at] {
				shown[at] = true
				emit(f, 1, tenant, plugin)
			}
		})
		if len(shown) == 0 {
			emit(f, 0, "", "") // as vacant does for other families
		}
	})
}

// MemorySample is the memory that the host's admission of tasks counts.
type MemorySample struct {
	Limit    int64            // bytes; 0 for no limit
	Reserved map[string]int64 // bytes, by kind
	Waited   time.Duration    // total time for which a task has waited for memory since the host's start
}

// CollectMemory sets the source of the gauges of the memory limit. Each scrape calls read, which must not block.
// Without a source the gauges show 0.
func (m *Metrics) CollectMemory(read func() MemorySample) {
	m.memory.use(func(emit emitter) {
		s := read()
		emit(memoryLimit, float64(s.Limit))
		for kind, bytes := range s.Reserved {
			emit(memoryReserved, float64(bytes), kind)
		}
		emit(memoryWait, s.Waited.Seconds())
	})
}

// CollectRuntime sets the source of the gauges of instances and held memory. Each scrape calls read, which must not
// block. Without a source the gauges show 0.
func (m *Metrics) CollectRuntime(read func() RuntimeSample) {
	m.runtime.use(func(emit emitter) {
		s := read()
		emit(instances, float64(s.Idle), "idle")
		emit(instances, float64(s.Busy), "busy")
		emit(runtimeHeld, float64(s.Code), "code")
		emit(runtimeHeld, float64(s.Snapshots), "snapshots")
		emit(runtimeHeld, float64(s.Instances), "instances")
		emit(runtimeHeld, float64(s.Stacks), "stacks")
	})
}

// CollectHostCalls sets the source of the counters of host calls. For each function, read reports the number of calls
// by result, and the bytes that the calls moved. Each scrape calls read, which must be safe for concurrent use.
func (m *Metrics) CollectHostCalls(read func(calls func(function, result string, n uint64),
	bytes func(function string, n uint64)),
) {
	m.calls.use(func(emit emitter) {
		read(func(function, result string, n uint64) { emit(hostCalls, float64(n), function, result) },
			func(function string, n uint64) { emit(hostCallBytes, float64(n), function) })
	})
}
