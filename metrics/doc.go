// Package metrics has a host's Prometheus metrics: one catalogue of metric families, which [New] registers, and one
// method for each event that they count.
//
//	host ──── Tasks.Started, Done, Slots … ──────▶ ┌─────────┐
//	plugins ─ PluginLoaded, PluginServing ───────▶ │ Metrics │ ◀─── scrape ─── Prometheus
//	Redis ◀── CollectQueues: asked at the scrape ─ │         │
//	runtime ◀ CollectRuntime: the same ─────────── └─────────┘
//
// Only the catalogue (catalogue.go) knows a family's name, type, unit, labels and help text; rules.yml has the
// recording rules, alerts.yml the alerts, and package dashboards the dashboards for Grafana. The value of a label is
// never the ID of a task. It is a tenant, a queue, a topic, a plugin with its version and digest, an address of Redis
// or one of a few words. So the number of series does not grow with the number of tasks.
//
// # Series
//
// rate() and increase() miss the first event of a counter that first appears with the value 1. So [Metrics.QueueServed]
// creates the series of a queue with the value 0 before its first task. A queue whose tasks are pending, start and
// complete has 20 series, and one more for each further state and outcome. These further series appear when their state
// or outcome first occurs, and so do the series of problems: rules that must not miss the first problem look for new
// series. A family that has no series yet shows a single one with empty labels and 0, which distinguishes "nothing yet"
// from "no Quern here". Families of problems keep this series.
//
// Whoever is allowed to enqueue can create queues. The number of series is bounded all the same: the source of the
// queue gauges leaves out queues beyond its bound, and quern_queues_hidden counts those. All other families have series
// only for served queues. Whoever is allowed to publish can create topics. Only the 100 topics of a tenant with the
// most recent publications have series. Prometheus still keeps the series of the other topics for its retention time.
//
// # Queues
//
// Depth, age and listeners of queues come from Redis, where one host of the fleet counts them every 10 s. So every host
// shows the same numbers, and queries use max and never sum: max by (tenant, queue, state) (quern_queue_depth).
//
// # Failure
//
// When Redis does not answer, the last sample is shown for 30 s, then none: no number is better than a wrong one. Each
// failed read counts in quern_redis_errors_total{op="scrape"}. All other families are still complete. Nothing in this
// package can make a task fail: label values that are not UTF-8 are repaired, and unknown values get their own series.
package metrics
