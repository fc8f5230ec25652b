// Package trace makes the spans of tasks and of requests to the API, and sends them to a collector by OTLP. Names and
// attributes follow OpenTelemetry's semantic conventions for messaging, HTTP and databases.
//
//	producer's span, or that of a request to the API ◀── traceparent of the task
//	   └─ receive QUEUE      from when the task was due until it ran
//	        └─ process QUEUE      until Redis had the outcome
//	             ├─ run PLUGIN         the guest, whose traceparent names this span
//	             │    ├─ GET                its requests, which carry their spans' traceparent
//	             │    ├─ get BUCKET         its calls of the store
//	             │    ├─ send QUEUE ──▶     a child's traceparent
//	             │    └─ publish TOPIC ──▶  the same of a publication
//	             └─ settle QUEUE       the write of the outcome
//
// Without a Tracer there is no Span, and a nil Span does nothing: a host without a collector pays a few comparisons
// for each task.
//
// # Failure
//
// No task waits for a collector. Ended spans wait in a queue of bounded length, and are dropped when it is full. While
// the collector cannot be reached, or is too slow, the log has at most one line a minute. It has another line when the
// collector takes spans again. The field lost_spans of such a line counts the spans that were lost since the line
// before. Shutdown sends the waiting spans.
//
// Spans show the same data of tasks as metrics and logs: queues, plugins, IDs, servers. They show no parameters,
// results, keys, paths or messages of handlers.
package trace
