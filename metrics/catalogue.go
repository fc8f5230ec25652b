package metrics

// kind is a family's type as Prometheus names it.
type kind string

const (
	counter   kind = "counter"
	gauge     kind = "gauge"
	histogram kind = "histogram"
)

// family is one row of the catalogue. The order of its labels is the order in which the methods of
// Metrics give their values.
type family struct {
	name   string
	kind   kind
	unit   string // a base unit that ends the name (before _total); empty for plain counts
	labels []string
	help   string
}

// Rows of the catalogue.
const (
	queueDepth = iota
	queueOldestPendingAge
	queueListeners
	queueQuarantined

	tasks
	tasksDropped
	tasksReclaimed
	taskWait
	taskDuration
	taskCPU
	taskFuel
	resultsRefused
	logLinesDropped

	tenantUp
	slots
	slotsInUse

	pluginInfo
	pluginResetMode
	pluginLoads

	hostLogLinesDropped

	instances
	runtimeHeld
	hostCalls
	hostCallBytes

	redisErrors
	buildInfo
)

// catalogue is all that Quern measures. It is read, never written.
var catalogue = [...]family{
	queueDepth: {
		"quern_queue_depth", gauge, "",
		[]string{"tenant", "queue", "state"},
		"Tasks of the queue by state, as Redis has them. Every host shows the same value: use max, not sum.",
	},
	queueOldestPendingAge: {
		"quern_queue_oldest_pending_age_seconds", gauge, "seconds",
		[]string{"tenant", "queue"},
		"How long the oldest pending task of the queue has existed, 0 when nothing is pending.",
	},
	queueListeners: {
		"quern_queue_listeners", gauge, "",
		[]string{"tenant", "queue"},
		"Listeners of the queue, Quern's hosts and others.",
	},
	queueQuarantined: {
		"quern_queue_quarantined", gauge, "",
		[]string{"tenant", "queue"},
		"1 while the plugin version that serves the queue here is quarantined, because its tasks ended several hosts.",
	},

	tasks: {
		"quern_tasks_total", counter, "",
		[]string{"tenant", "queue", "plugin", "outcome", "reason"},
		"Tasks that this host is done with, by what became of them; reason is the finer cause of a failure.",
	},
	tasksDropped: {
		"quern_tasks_dropped_total", counter, "",
		[]string{"tenant", "queue"},
		"IDs that were dropped when reserving, because their task is missing or finished already.",
	},
	tasksReclaimed: {
		"quern_tasks_reclaimed_total", counter, "",
		[]string{"tenant", "outcome"},
		"Tasks that this host took from listeners which had died: released to the front of their queue, rescheduled, or failed for good.",
	},
	taskWait: {
		"quern_task_wait_seconds", histogram, "seconds",
		[]string{"tenant", "queue"},
		"Time from when a task became pending to its start on this host.",
	},
	taskDuration: {
		"quern_task_duration_seconds", histogram, "seconds",
		[]string{"tenant", "queue", "plugin"},
		"Time from a task's start to its outcome. Tasks that were given back or lost are not in it.",
	},
	taskCPU: {
		"quern_task_cpu_seconds_total", counter, "seconds",
		[]string{"tenant", "queue", "plugin"},
		"Processor time of all runs of tasks here, in the plugin and in the host's functions for it, however they ended.",
	},
	taskFuel: {
		"quern_task_fuel_total", counter, "",
		[]string{"tenant", "queue", "plugin"},
		"Fuel that all runs of tasks here burned, however they ended: about one unit an instruction, on every machine the same.",
	},
	resultsRefused: {
		"quern_results_refused_total", counter, "",
		[]string{"tenant", "queue"},
		"Outcomes that Redis refused, because this host no longer held the task.",
	},
	logLinesDropped: {
		"quern_log_lines_dropped_total", counter, "",
		[]string{"tenant", "queue"},
		"Log lines of tasks that were not kept, because they came faster than Redis took them.",
	},

	tenantUp: {
		"quern_tenant_up", gauge, "",
		[]string{"tenant"},
		"1 while this host serves the tenant, 0 while the tenant's keys or Redis keep it from that; no series once it was drained.",
	},
	slots: {
		"quern_slots", gauge, "", nil,
		"Tasks that this host runs at once at most.",
	},
	slotsInUse: {
		"quern_slots_in_use", gauge, "", nil,
		"Tasks that this host runs now.",
	},

	pluginInfo: {
		"quern_plugin_info", gauge, "",
		[]string{"tenant", "plugin", "version", "digest"},
		"1 for each plugin that serves here now; tenant is empty for one that serves every tenant.",
	},
	pluginResetMode: {
		"quern_plugin_reset_mode_info", gauge, "",
		[]string{"tenant", "plugin", "version", "digest", "reset_mode"},
		"1 for each plugin that serves here now, with the way in which its tasks come by pristine instances: scan, pagemap, copy or new, the best first.",
	},
	pluginLoads: {
		"quern_plugin_loads_total", counter, "",
		[]string{"tenant", "plugin", "result"},
		"Plugin files that were looked at because they were new, changed or gone, by what came of it.",
	},

	hostLogLinesDropped: {
		"quern_host_log_lines_dropped_total", counter, "", nil,
		"Lines of this host's own log that were dropped, because nobody read what it writes to stderr.",
	},

	instances: {
		"quern_instances", gauge, "",
		[]string{"state"},
		"Instances of plugins on this host: busy with a task, or idle and ready for the next one.",
	},
	runtimeHeld: {
		"quern_runtime_held_bytes", gauge, "bytes",
		[]string{"kind"},
		"Memory that plugins take on this host beyond what running tasks may take by their limits: machine code, snapshots at most, idle instances, call stacks.",
	},

	hostCalls: {
		"quern_host_calls_total", counter, "",
		[]string{"function", "result"},
		"Calls of quern_v1's functions by handlers on this host: ok, or the error that was answered, such as EDENIED.",
	},
	hostCallBytes: {
		"quern_host_call_bytes_total", counter, "bytes",
		[]string{"function"},
		"Bytes that those calls have moved, in and out.",
	},

	redisErrors: {
		"quern_redis_errors_total", counter, "",
		[]string{"op"},
		"Calls to Redis that failed, by what they were for.",
	},
	buildInfo: {
		"quern_build_info", gauge, "",
		[]string{"version", "revision", "go"},
		"1, with the version of Quern, its source revision and the Go version that built it.",
	},
}

// states are the values of the label state: Blueque's six statuses.
var states = [...]string{"scheduled", "pending", "reserved", "started", "complete", "failed"}

// ends are the values of outcome and reason that a task can have.
var ends = [...]struct{ outcome, reason string }{
	{"complete", ""},
	{"failed", "error"},
	{"failed", "trap"},
	{"failed", "timeout"},
	{"failed", "cpu"},
	{"failed", "memory"},
	{"failed", "output"},
	{"failed", "exhausted"},
	{"failed", "expired"},
	{"failed", "cancelled"},
	{"retried", "error"},
	{"retried", "trap"},
	{"retried", "timeout"},
	{"retried", "cpu"},
	{"retried", "memory"},
	{"retried", "output"},
	{"rescheduled", ""},
	{"released", ""},
	{"lost", ""},
}

// loadResults are the values of the label result.
var loadResults = [...]string{"ok", "refused", "gone"}

// reclaimOutcomes are the values of the label outcome of quern_tasks_reclaimed_total.
var reclaimOutcomes = [...]string{"released", "rescheduled", "failed"}

// redisOps are the values of the label op.
var redisOps = [...]string{
	"reserve", "settle", "renew", "poll", "subscribe", "due", "log", "join", "register", "reclaim",
	"control", "purge", opScrape,
}

// opScrape is the op of the queue gauges' own look at Redis.
const opScrape = "scrape"

// buckets are the classic buckets of both histograms, in seconds: from 100 µs, what an empty task
// takes, to a day, since tasks may be very long. Two or three a decade up to 10 s; beyond, the
// steps that people think in.
var buckets = [...]float64{
	0.0001, 0.00025, 0.0005,
	0.001, 0.0025, 0.005,
	0.01, 0.025, 0.05,
	0.1, 0.25, 0.5,
	1, 2.5, 5, 10, 30,
	60, 300, 1800,
	3600, 14400, 86400,
}

// Native histograms go to a Prometheus that asks for them and cost the others nothing: steps of
// 10 %, and never more than 160 of them a series.
const (
	nativeFactor     = 1.1
	nativeMaxBuckets = 160
)
