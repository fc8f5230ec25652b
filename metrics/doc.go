// Package metrics has a host's Prometheus metrics: one catalogue of families, which [New] registers, and one method for
// each event.
//
//	host ──── Tasks.Started, Done, Slots … ──────▶ ┌─────────┐
//	plugins ─ PluginLoaded, PluginServing ───────▶ │ Metrics │ ◀─── scrape ─── Prometheus
//	Redis ◀── CollectQueues: asked at the scrape ─ │         │
//	runtime ◀ CollectRuntime: the same ─────────── └─────────┘
//
// Only the catalogue (catalogue.go) knows a family's name, type, unit, labels and help text; rules.yml has the
// recording rules, alerts.yml the alerts, dashboards what Grafana shows. A label is never an ID of a task: its values
// are tenants, queues, topics, plugins with their versions and digests, addresses of Redis and short lists of words. So
// the number of series does not grow with the number of tasks.
//
// # Series
//
// rate() and increase() miss the first event of a counter that first appears with the value 1. So [Metrics.QueueServed]
// makes the series of a queue exist with 0 before its first task. A queue whose tasks are pending, start and complete
// has 20 series, and one more for each further state and outcome. Those appear when they occur, and so do the series of
// problems: rules that must not miss the first problem look for new series. A family that has no series yet shows a
// single one with empty labels and 0, which tells "nothing yet" from "no Quern here"; families of problems keep it.
//
// Whoever may enqueue can create queues. The number of series is bounded all the same: the source of the queue gauges
// leaves out queues beyond its bound, and quern_queues_hidden counts them; all other families have series only for
// served queues. Whoever may publish can create topics. Only the 100 topics of a tenant that were last published to
// have series; Prometheus still keeps the series of the others for its retention time.
//
// # Queues
//
// Depth, age and listeners of queues come from Redis, where one host of the fleet counts them every 10 s. So every host
// shows the same numbers, and queries use max and never sum: max by (tenant, queue, state) (quern_queue_depth).
//
// # Failure
//
// When Redis does not answer, the last sample is shown for 30 s, then none: no number is better than a wrong one. Each
// failed read counts in quern_redis_errors_total{op="scrape"}; all other families are complete. Nothing in this package
// can fail a task: label values that are not UTF-8 are repaired, unknown ones get a series of their own.
package metrics
