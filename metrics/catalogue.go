package metrics

import "strings"

// kind is a family's type as Prometheus names it.
type kind string

const (
	counter   kind = "counter"
	gauge     kind = "gauge"
	histogram kind = "histogram"
)

// family is one row of the catalogue. Label values are given in the order of its labels.
type family struct {
	name   string
	kind   kind
	unit   string // a base unit, which ends the name (before _total); empty for plain counts
	labels string // names, separated by spaces
	help   string
}

// Rows of the catalogue.
const (
	tasks = iota
	tasksDropped
	tasksReclaimed
	taskWait
	taskDuration
	taskCPU
	taskFuel
	resultsRefused
	logLinesDropped
	slots
	slotsInUse
	pluginInfo
	pluginResetMode
	pluginLoads
	hostLogLinesDropped
	redisErrors
	redisMemoryUsed
	redisMemoryMax
	redisRoundTrip
	clockSkew
	leaseRenewalsLate
	queuesHidden
	scheduleTicks
	scheduleLate
	destinationsOff
	buildInfo

	queueDepth
	queueOldestPendingAge
	queueListeners
	queueQuarantined
	queuePaused
	queueDeadLetters
	tenantUp
	pluginRefused
	memoryLimit
	memoryReserved
	memoryWait
	instances
	runtimeHeld
	hostCalls
	hostCallBytes
	topicPublications
	topicTasks
)

// firstScraped is the first family that is made at the scrape.
const firstScraped = queueDepth

// ofQueues are the families with series for each queue from the start; ofProblems have a series from the first problem
// on.
var (
	ofQueues   = [...]int{tasks, taskWait, taskDuration, taskCPU, taskFuel}
	ofProblems = [...]int{tasksDropped, resultsRefused, logLinesDropped}
)

func (f family) labelNames() []string { return strings.Fields(f.labels) }

// catalogue lists every family. It is read, never written.
var catalogue = [...]family{
	queueDepth: {
		"quern_queue_depth", gauge, "", "tenant queue state",
		"Tasks of the queue by state in Redis, only states with tasks and pending. Every host shows the same value: use max, not sum.",
	},
	queueOldestPendingAge: {
		"quern_queue_oldest_pending_age_seconds", gauge, "seconds", "tenant queue",
		"Age of the oldest pending task of the queue, 0 if none is pending.",
	},
	queueListeners: {
		"quern_queue_listeners", gauge, "", "tenant queue",
		"Listeners of the queue: Quern hosts and others.",
	},
	queueQuarantined: {
		"quern_queue_quarantined", gauge, "", "tenant queue",
		"1 while the plugin version that serves the queue here is quarantined because its tasks crashed several hosts, else no series.",
	},
	queuePaused: {
		"quern_queue_paused", gauge, "", "tenant queue",
		"1 while the queue is paused, else no series.",
	},
	queueDeadLetters: {
		"quern_queue_dead_letters", gauge, "", "tenant queue",
		"Dead letters that wait: pending and scheduled tasks in a queue that the manifest of a plugin here names as dead. No series for other queues.",
	},
	queuesHidden: {
		"quern_queues_hidden", gauge, "", "tenant",
		"Queues of the tenant in Redis that have no series: those beyond --max-queues, and those with names that Quern does not take.",
	},
	tasks: {
		"quern_tasks_total", counter, "", "tenant queue plugin outcome reason",
		"Tasks that this host ran, by outcome; reason is the cause of a failure.",
	},
	tasksDropped: {
		"quern_tasks_dropped_total", counter, "", "tenant queue",
		"Task IDs dropped at reservation because the task is missing or already finished.",
	},
	tasksReclaimed: {
		"quern_tasks_reclaimed_total", counter, "", "tenant outcome",
		"Tasks that this host took from dead listeners, by outcome: released to the front of their queue, rescheduled, or failed for good.",
	},
	taskWait: {
		"quern_task_wait_seconds", histogram, "seconds", "tenant queue",
		"Time from pending to the start of a task on this host.",
	},
	taskDuration: {
		"quern_task_duration_seconds", histogram, "seconds", "tenant queue plugin",
		"Time from the start of a task to its outcome, without released and lost tasks.",
	},
	taskCPU: {
		"quern_task_cpu_seconds_total", counter, "seconds", "tenant queue plugin",
		"CPU time of all runs of tasks on this host, in the plugin and in host functions, whatever the outcome.",
	},
	taskFuel: {
		"quern_task_fuel_total", counter, "", "tenant queue plugin",
		"Fuel used by all runs of tasks on this host, whatever the outcome: about one unit per instruction, the same on every machine.",
	},
	resultsRefused: {
		"quern_results_refused_total", counter, "", "tenant queue",
		"Outcomes that Redis refused because this host had lost the task.",
	},
	logLinesDropped: {
		"quern_log_lines_dropped_total", counter, "", "tenant queue",
		"Log lines of tasks dropped because they came faster than Redis took them.",
	},
	scheduleTicks: {
		"quern_schedule_ticks_total", counter, "", "tenant result",
		"Ticks of schedules that this host ended, by result: fired, skipped because the task before had not finished, or missed while no host was there.",
	},
	destinationsOff: {
		"quern_webhook_destinations_off", gauge, "", "tenant",
		"Destinations of webhooks that this host has switched off because they failed, until a delivery finds them back.",
	},
	scheduleLate: {
		"quern_schedule_late_seconds", histogram, "seconds", "tenant",
		"Time from a tick to the task that this host enqueued for it.",
	},
	tenantUp: {
		"quern_tenant_up", gauge, "", "tenant",
		"1 while this host serves the tenant, 0 while the tenant's keys or Redis prevent it; no series after it was drained.",
	},
	slots: {
		"quern_slots", gauge, "", "",
		"Most tasks that this host runs at once.",
	},
	slotsInUse: {
		"quern_slots_in_use", gauge, "", "",
		"Tasks that this host is running.",
	},
	pluginInfo: {
		"quern_plugin_info", gauge, "", "tenant plugin version digest",
		"1 for each plugin that serves on this host; tenant is empty for a plugin of every tenant.",
	},
	pluginResetMode: {
		"quern_plugin_reset_mode_info", gauge, "", "tenant plugin version digest reset_mode",
		"1 for each plugin that serves on this host, with the reset mode of its instances: scan, pagemap, copy or new, best first.",
	},
	pluginRefused: {
		"quern_plugin_refused", gauge, "", "tenant plugin",
		"1 while a file of the plugin is refused on this host, else no series; tenant is empty for a plugin of every tenant.",
	},
	pluginLoads: {
		"quern_plugin_loads_total", counter, "", "tenant plugin result",
		"Plugin files that were new, changed or gone, by result: ok, refused or gone.",
	},
	hostLogLinesDropped: {
		"quern_host_log_lines_dropped_total", counter, "", "",
		"Lines of this host's own log dropped because the reader of stderr was too slow.",
	},
	memoryLimit: {
		"quern_memory_limit_bytes", gauge, "bytes", "",
		"Memory that running tasks may take on this host, together with what is reserved beside them and what quern_runtime_held_bytes shows; 0 if it is not bounded.",
	},
	memoryReserved: {
		"quern_memory_reserved_bytes", gauge, "bytes", "kind",
		"Part of the limit that is reserved: for running tasks and their results (tasks), bodies and answers of the API (requests), payloads of webhooks (deliveries), bodies that calls of handlers move (calls), what plugins carry and name (plugins).",
	},
	memoryWait: {
		"quern_memory_wait_seconds_total", counter, "seconds", "",
		"Time for which a task on this host waited for memory, although a slot was free.",
	},
	instances: {
		"quern_instances", gauge, "", "state",
		"Plugin instances on this host: busy with a task, or idle and ready for the next one.",
	},
	runtimeHeld: {
		"quern_runtime_held_bytes", gauge, "bytes", "kind",
		"Memory of plugins on this host beyond the limits of running tasks: machine code, snapshots (an upper bound), idle instances, call stacks.",
	},
	hostCalls: {
		"quern_host_calls_total", counter, "", "function result",
		"Calls of host functions by plugins on this host, those of Extism as extism_NAME, by result: ok, or the error, such as EDENIED.",
	},
	hostCallBytes: {
		"quern_host_call_bytes_total", counter, "bytes", "function",
		"Bytes moved by these calls, in and out.",
	},
	topicPublications: {
		"quern_topic_publications_total", counter, "", "tenant topic result",
		"Publications to the topic in Redis, by result: published, or dropped without a subscriber; the 100 topics of a tenant that were last published to. Every host shows the same value: use max, not sum.",
	},
	topicTasks: {
		"quern_topic_tasks_total", counter, "", "tenant topic",
		"Tasks that these publications made, one for each subscriber.",
	},
	redisErrors: {
		"quern_redis_errors_total", counter, "", "op",
		"Failed calls to Redis, by purpose.",
	},
	redisMemoryUsed: {
		"quern_redis_memory_used_bytes", gauge, "bytes", "redis",
		"Memory that Redis uses, as its INFO tells; no series if the host's Redis user may not ask. Every host shows the same value.",
	},
	redisMemoryMax: {
		"quern_redis_memory_max_bytes", gauge, "bytes", "redis",
		"The setting maxmemory of Redis; 0 if it is not bounded.",
	},
	redisRoundTrip: {
		"quern_redis_round_trip_seconds", gauge, "seconds", "redis",
		"Time that Redis took to answer this host's last look at its clock.",
	},
	clockSkew: {
		"quern_clock_skew_seconds", gauge, "seconds", "redis",
		"This host's clock less that of Redis; below zero if the host's is behind.",
	},
	leaseRenewalsLate: {
		"quern_lease_renewals_late_total", counter, "", "tenant",
		"Renewals of this host's lease that came later than two thirds of it, with those that came when it was over.",
	},
	buildInfo: {
		"quern_build_info", gauge, "", "version revision go host",
		"1, with the version of Quern, its source revision, and the Go version that built it.",
	},
}

// states are the values of the label state: Blueque's six statuses, and blocked for scheduled tasks that wait for
// others.
var states = [...]string{"scheduled", "blocked", "pending", "reserved", "started", "complete", "failed"}

// redisOps are the values of the label op.
var redisOps = [...]string{
	"reserve", "settle", "renew", "poll", "subscribe", "due", "log", "join", "register", "reclaim",
	"control", "purge", "tally", "tick", "declare", "publish", "advance", "declare_subscription", opScrape,
}

// opScrape is the op of the queue gauges.
const opScrape = "scrape"

// buckets are the classic buckets of a histogram, in seconds, by row. They are few, since every queue has them; native
// histograms are for percentiles.
var buckets = map[int][]float64{
	taskWait:     {0.1, 1, 10},
	taskDuration: {0.1, 1, 60},
	scheduleLate: {0.1, 1, 60},
}
