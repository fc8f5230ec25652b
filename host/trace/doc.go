// Package trace makes the spans of tasks and sends them to a collector by OTLP. Names and attributes are those of
// OpenTelemetry's semantic conventions for messaging, HTTP clients and databases.
//
//	producer's span ◀── traceparent of the task
//	   └─ receive QUEUE      from when the task was due until it ran
//	        └─ process QUEUE      until Redis had the outcome
//	             ├─ run PLUGIN         the guest, whose traceparent names this span
//	             │    ├─ GET                its requests, which carry their spans' traceparent
//	             │    ├─ get BUCKET         its calls of the store
//	             │    └─ send QUEUE ──▶     a child's traceparent
//	             └─ settle QUEUE       the write of the outcome
//
// A nil Tracer, and a nil Span, do nothing. So a host without a collector pays one comparison a task.
//
// # Failure
//
// No task waits for a collector. Ended spans wait in a queue of bounded length, and are dropped when it is full. While the
// collector cannot be reached the log has a line at most once a minute, and one when it can again. Shutdown sends what waits.
//
// Spans tell of tasks what metrics and logs tell: queues, plugins, IDs, servers. They hold neither parameters, results, keys,
// paths nor messages of handlers.
package trace
