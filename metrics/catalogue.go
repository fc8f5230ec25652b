package metrics

import "strings"

// kind is a family's type as Prometheus names it.
type kind string

const (
	counter   kind = "counter"
	gauge     kind = "gauge"
	histogram kind = "histogram"
)

// family is one row of the catalogue. Methods take label values in the order of its labels.
type family struct {
	name   string
	kind   kind
	unit   string // the base unit with which the name ends (before _total); "" for plain counts
	labels []string
	help   string
}

// ofQueues and ofProblems are the families with series for each queue: ofQueues from the start, ofProblems from the
// first problem.
var (
	ofQueues   = []*family{tasks, taskWait, taskDuration, taskCPU, taskFuel}
	ofProblems = []*family{tasksDropped, resultsRefused, logLinesDropped}
)

// define makes a family, whose unit it takes from the name. labels are separated by blanks.
func define(kind kind, name, labels, help string) *family {
	base := strings.TrimSuffix(name, "_total")
	unit := base[strings.LastIndexByte(base, '_')+1:]
	if unit != "seconds" && unit != "bytes" {
		unit = ""
	}
	return &family{name, kind, unit, strings.Fields(labels), help}
}

// The families.
var (
	queueDepth = define(gauge, "quern_queue_depth", "tenant queue state",
		"Tasks of the queue by state in Redis, only states with tasks and pending. Every host shows the same value: use max, not sum.")
	queueOldestPendingAge = define(gauge, "quern_queue_oldest_pending_age_seconds", "tenant queue",
		"Age of the oldest pending task of the queue, 0 if none is pending.")
	queueListeners = define(gauge, "quern_queue_listeners", "tenant queue",
		"Listeners of the queue: Quern hosts and others.")
	queueQuarantined = define(gauge, "quern_queue_quarantined", "tenant queue reason",
		"1 while the plugin version that serves the queue here is quarantined, else no series: because its tasks crashed several hosts, or its circuit breaker is open (failures).")
	queuePaused = define(gauge, "quern_queue_paused", "tenant queue",
		"1 while the queue is paused, else no series.")
	queueDeadLetters = define(gauge, "quern_queue_dead_letters", "tenant queue",
		"Dead letters that wait: pending and scheduled tasks in a queue that the manifest of a plugin here names as dead. No series for other queues.")
	queuesHidden = define(gauge, "quern_queues_hidden", "tenant",
		"Queues of the tenant in Redis that have no series: those beyond --max-queues, and those with names that Quern does not take.")
	quotaUsed = define(gauge, "quern_quota_used_ratio", "tenant",
		"Used part of the tenant's fullest quota, of waiting tasks and bytes, schedules, subscriptions, releases, bytes in buckets and logs, and the fuel of the day. Every host shows the same value.")
	tasks = define(counter, "quern_tasks_total", "tenant queue plugin outcome reason",
		"Tasks that this host ran, by outcome; reason is the cause of a failure.")
	tasksDropped = define(counter, "quern_tasks_dropped_total", "tenant queue",
		"Task IDs dropped at reservation because the task is missing or already finished.")
	tasksReclaimed = define(counter, "quern_tasks_reclaimed_total", "tenant outcome",
		"Tasks that this host took from dead listeners, by outcome: released to the front of their queue, rescheduled, or failed for good.")
	taskWait = define(histogram, "quern_task_wait_seconds", "tenant queue",
		"Time from pending to the start of a task on this host.")
	taskDuration = define(histogram, "quern_task_duration_seconds", "tenant queue plugin",
		"Time from the start of a task to its outcome, without released and lost tasks.")
	taskCPU = define(counter, "quern_task_cpu_seconds_total", "tenant queue plugin",
		"CPU time of all runs of tasks on this host, in the plugin and in host functions, whatever the outcome.")
	taskFuel = define(counter, "quern_task_fuel_total", "tenant queue plugin",
		"Fuel used by all runs of tasks on this host, whatever the outcome: about one unit per instruction, the same on every machine.")
	releaseTasks = define(counter, "quern_release_tasks_total", "tenant plugin release outcome",
		"Tasks that this host ran while their plugin had a canary, by release: canary or stable, and by outcome.")
	resultsRefused = define(counter, "quern_results_refused_total", "tenant queue",
		"Outcomes that Redis refused because this host had lost the task.")
	logLinesDropped = define(counter, "quern_log_lines_dropped_total", "tenant queue",
		"Log lines of tasks dropped because they came faster than Redis took them.")
	scheduleTicks = define(counter, "quern_schedule_ticks_total", "tenant result",
		"Ticks of schedules that this host ended, by result: fired, skipped because the task before had not finished, or missed while no host was there.")
	destinationsOff = define(gauge, "quern_webhook_destinations_off", "tenant",
		"Destinations of webhooks that this host has switched off because they failed, until a delivery finds them back.")
	scheduleLate = define(histogram, "quern_schedule_late_seconds", "tenant",
		"Time from a tick to the task that this host enqueued for it.")
	tenantUp = define(gauge, "quern_tenant_up", "tenant",
		"1 while this host serves the tenant, 0 while the tenant's keys or Redis prevent it; no series after it was drained.")
	tenantWeight = define(gauge, "quern_tenant_weight", "tenant",
		"Weight by which the tenant shares this host with others.")
	tenantCost = define(counter, "quern_tenant_cost_seconds_total", "tenant",
		"What ended tasks of the tenant cost, in seconds of this whole host: of each task the largest of its shares of the places for guests, the memory and the slots. Tenants that compete get it by their weights.")
	slots = define(gauge, "quern_slots", "",
		"Most tasks that this host runs at once.")
	slotsInUse = define(gauge, "quern_slots_in_use", "",
		"Tasks that this host is running.")
	pluginInfo = define(gauge, "quern_plugin_info", "tenant plugin version digest",
		"1 for each plugin that serves on this host; tenant is empty for a plugin of every tenant.")
	pluginResetMode = define(gauge, "quern_plugin_reset_mode_info", "tenant plugin version digest reset_mode",
		"1 for each plugin that serves on this host, with the reset mode of its instances: scan, pagemap, copy or new, best first.")
	pluginRefused = define(gauge, "quern_plugin_refused", "tenant plugin",
		"1 while a file of the plugin is refused on this host, else no series; tenant is empty for a plugin of every tenant.")
	releaseStopped = define(gauge, "quern_release_stopped", "tenant plugin",
		"1 while a release that hosts stopped because it was bad is the last one of its plugin, else no series.")
	pluginLoads = define(counter, "quern_plugin_loads_total", "tenant plugin result",
		"Plugin files that were new, changed or gone, by result: ok, refused or gone.")
	hostLogLinesDropped = define(counter, "quern_host_log_lines_dropped_total", "",
		"Lines of this host's own log dropped because the reader of stderr was too slow.")
	memoryLimit = define(gauge, "quern_memory_limit_bytes", "",
		"Memory that running tasks may take on this host, together with what is reserved beside them and what quern_runtime_held_bytes shows; 0 if it is not bounded.")
	memoryReserved = define(gauge, "quern_memory_reserved_bytes", "kind",
		"Part of the limit that is reserved: for running tasks and their results (tasks), bodies and answers of the API (requests), payloads of webhooks (deliveries), bodies that calls of handlers move (calls), what plugins carry and name (plugins).")
	memoryWait = define(counter, "quern_memory_wait_seconds_total", "",
		"Time for which a task on this host waited for memory, although a slot was free.")
	instances = define(gauge, "quern_instances", "state",
		"Plugin instances on this host: busy with a task, or idle and ready for the next one.")
	runtimeHeld = define(gauge, "quern_runtime_held_bytes", "kind",
		"Memory of plugins on this host beyond the limits of running tasks: machine code, snapshots (an upper bound), idle instances, call stacks.")
	hostCalls = define(counter, "quern_host_calls_total", "function result",
		"Calls of host functions by plugins on this host, those of Extism as extism_NAME, by result: ok, or the error, such as EDENIED.")
	hostCallBytes = define(counter, "quern_host_call_bytes_total", "function",
		"Bytes moved by these calls, in and out.")
	sqlConnections = define(gauge, "quern_sql_connections", "state",
		"Connections of this host to the databases of handlers: used by a task, or idle.")
	sqlConnectionsMax = define(gauge, "quern_sql_connections_max", "",
		"The setting --database-connections of this host.")
	sqlDatabasesAway = define(gauge, "quern_sql_databases_away", "",
		"Databases of handlers that do not serve this host; those with another value of a header, or of another tenant, count on their own.")
	sqlWait = define(counter, "quern_sql_wait_seconds_total", "",
		"Time for which tasks on this host waited for a connection to their database, opening included.")
	sqlStatements = define(counter, "quern_sql_statements_total", "result",
		"Statements of handlers on this host, by result: ok, error (the database refused it), limit, or unavailable.")
	sqlCommits = define(counter, "quern_sql_commits_total", "result",
		"Commits of handlers' transactions on this host, by result: committed, refused, or unknown (the host asks the database).")
	topicPublications = define(counter, "quern_topic_publications_total", "tenant topic result",
		"Publications to the topic in Redis, by result: published, or dropped without a subscriber; the 100 topics of a tenant that were last published to. Every host shows the same value: use max, not sum.")
	topicTasks = define(counter, "quern_topic_tasks_total", "tenant topic",
		"Tasks that these publications made, one for each subscriber.")
	redisErrors = define(counter, "quern_redis_errors_total", "op",
		"Failed calls to Redis, by purpose.")
	redisMemoryUsed = define(gauge, "quern_redis_memory_used_bytes", "redis",
		"Memory that Redis uses, as its INFO tells; no series if the host's Redis user may not ask. Every host shows the same value.")
	redisMemoryMax = define(gauge, "quern_redis_memory_max_bytes", "redis",
		"The setting maxmemory of Redis; 0 if it is not bounded.")
	redisRoundTrip = define(gauge, "quern_redis_round_trip_seconds", "redis",
		"Time that Redis took to answer this host's last look at its clock.")
	clockSkew = define(gauge, "quern_clock_skew_seconds", "redis",
		"This host's clock less that of Redis; below zero if the host's is behind.")
	leaseRenewalsLate = define(counter, "quern_lease_renewals_late_total", "tenant",
		"Renewals of this host's lease that came later than two thirds of it, with those that came when it was over.")
	relayLeads = define(gauge, "quern_relay_leads", "source",
		"1 if the relay in this process leads the source, which is a table of a database; 0 if another one does, or if the database is away.")
	relayNotified = define(gauge, "quern_relay_notified", "source",
		"1 if notifications of new rows reach the relay that leads, 0 if it has to look for rows each second.")
	relayLag = define(gauge, "quern_relay_lag_seconds", "source",
		"Age of the oldest row that waited when the relay that leads last looked from the beginning; 0 if none waited.")
	relayRows = define(counter, "quern_relay_rows_total", "source result",
		"Rows that the relay in this process handled, by result: relayed, refused, or ended for an end that it wrote back.")
	relayErrors = define(counter, "quern_relay_errors_total", "source",
		"Failures of the relay in this process: of its database, of Redis, or of a queue that is full.")
	buildInfo = define(gauge, "quern_build_info", "version revision go host",
		"1, with the version of Quern, its source revision, and the Go version that built it.")
)

// counted are the families whose series are kept, not made at each scrape.
var counted = []*family{
	tasks, tasksDropped, tasksReclaimed, taskWait, taskDuration, taskCPU, taskFuel, releaseTasks,
	resultsRefused, logLinesDropped,
	slots, slotsInUse, pluginInfo, pluginResetMode, pluginLoads, hostLogLinesDropped, redisErrors, redisMemoryUsed,
	redisMemoryMax, redisRoundTrip, clockSkew, leaseRenewalsLate, queuesHidden, quotaUsed, scheduleTicks, scheduleLate,
	destinationsOff, buildInfo,
}

// ofRelays are the families of relays, which also run without a host.
var ofRelays = []*family{relayLeads, relayNotified, relayLag, relayRows, relayErrors}

// states are the values of the label state: Blueque's six statuses, and blocked for scheduled tasks that wait for
// others.
var states = [...]string{"scheduled", "blocked", "pending", "reserved", "started", "complete", "failed"}

// redisOps are the values of the label op.
var redisOps = [...]string{
	"reserve", "settle", "renew", "poll", "subscribe", "due", "log", "join", "register", "reclaim",
	"control", "purge", "tally", "tick", "declare", "publish", "advance", "declare_subscription", "releases",
	"weights",
	opScrape,
}

// opScrape is the operation name (label op) under which failed reads of the queue gauges are counted.
const opScrape = "scrape"

// buckets are the upper bounds of a histogram's classic buckets, in seconds. They are few, since every queue has them;
// native histograms are for percentiles.
var buckets = map[*family][]float64{
	taskWait:     {0.1, 1, 10},
	taskDuration: {0.1, 1, 60},
	scheduleLate: {0.1, 1, 60},
}
