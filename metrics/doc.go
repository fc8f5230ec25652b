// Package metrics is what a host tells Prometheus: one catalogue of families ([New] registers all of
// it) and one method for each thing that can happen.
//
//	host ──── TaskStarted, TaskDone, Slots … ────▶ ┌─────────┐
//	plugins ─ PluginLoaded, PluginServing ───────▶ │ Metrics │ ◀─── scrape ─── Prometheus
//	Redis ◀── CollectQueues: read at the scrape ── │         │
//	runtime ◀ CollectRuntime: the same ─────────── └─────────┘
//
// The catalogue (catalogue.go) is the only place that knows a family's name, type, unit, labels and
// help text; rules.yml, beside it, holds the recording and alert rules that are shipped. A label is
// never an ID: its values are tenants, queues, plugins and short lists of words, so that the number
// of series does not grow with the number of tasks.
//
// # Series from the start
//
// A counter that first appears with the value 1 is a counter whose first event rate() and increase()
// cannot see. So [Metrics.QueueServed] makes every series of a queue exist with 0 before its first
// task. As long as a family has no series at all, because nothing is served yet, it shows a single
// one with empty labels and 0, which tells "nothing yet" from "no Quern here"; the first real series
// takes its place.
//
// # Queues
//
// Depth, age and listeners of queues are read from Redis at the scrape, once in a few seconds however
// many scrape, with a time-out of their own. Every host of a fleet shows the same numbers, so queries
// take the greatest and never the sum: max by (tenant, queue, state) (quern_queue_depth).
//
// # Failure
//
// When Redis does not answer, the last sample is shown for a while (30 s), then none: no number is
// better than a wrong one. Each look that failed counts in quern_redis_errors_total{op="scrape"}, and
// all other families are there as ever. Nothing in this package can fail a task: label values that
// are not UTF-8 are mended, unknown ones get a series of their own.
package metrics
