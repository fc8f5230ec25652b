// Package trace makes the spans of tasks and of requests to the API, and sends them to a collector by OTLP. Names and attributes are those of
// OpenTelemetry's semantic conventions for messaging, HTTP and databases.
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
// Without a Tracer there is no Span, and a nil Span does nothing: a host without a collector pays some comparisons a task.
//
// # Failure
//
// No task waits for a collector. Ended spans wait in a queue of bounded length, and are dropped when it is full. While the
// collector cannot be reached, or takes them too slowly, the log has a line at most once a minute, and one when it can again.
// lost_spans there counts all that were lost since the line before. Shutdown sends what waits.
//
// Spans tell of tasks what metrics and logs tell: queues, plugins, IDs, servers. They hold neither parameters, results, keys,
// paths nor messages of handlers.
package trace
