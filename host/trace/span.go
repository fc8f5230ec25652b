package trace

import (
	"context"
	"maps"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/quern-project/quern/sdk/queue"
)

// Task is a task whose run begins.
type Task struct {
	Tenant, Queue, ID       string
	Plugin, Version, Digest string
	Listener                string
	Attempt                 int   // the first attempt is 1
	Size                    int64 // length of the parameters, in bytes
	// Headers are the task's headers; traceparent and tracestate name the producer's span.
	Headers map[string]string
	// Since is when the task became due, by this process's clock.
	Since time.Time
}

// Span is one run of a task, from its beginning to its settlement. It belongs to one goroutine at a time.
type Span struct {
	tracer               *Tracer
	process, run, settle oteltrace.Span
	about                []attribute.KeyValue
	queue                string
	calls, untraced      int
}

// Begin begins the span of a run. It returns the task's headers with the trace of the guest's span, which the guest
// sees and its children inherit.
func (t *Tracer) Begin(task Task) (*Span, map[string]string) {
	now := time.Now()
	s := &Span{tracer: t, queue: task.Queue, about: []attribute.KeyValue{
		attribute.String("messaging.system", "quern"),
		attribute.String("messaging.destination.name", task.Queue),
		attribute.String("messaging.message.id", task.ID),
		attribute.String("messaging.client.id", task.Listener),
		attribute.String("quern.tenant", task.Tenant),
	}}
	ctx := t.extract(propagation.MapCarrier(task.Headers))
	ctx, receive := t.tracer.Start(ctx, "receive "+task.Queue, oteltrace.WithSpanKind(oteltrace.SpanKindClient),
		oteltrace.WithTimestamp(task.Since), s.operation("receive"))
	receive.End(oteltrace.WithTimestamp(now))
	ctx, s.process = t.tracer.Start(ctx, "process "+task.Queue, oteltrace.WithSpanKind(oteltrace.SpanKindConsumer),
		oteltrace.WithTimestamp(now), s.operation("process"))
	if s.process.IsRecording() {
		s.process.SetAttributes(
			attribute.Int64("messaging.message.body.size", task.Size),
			attribute.Int("quern.attempt", task.Attempt),
		)
	}
	ctx, s.run = t.tracer.Start(ctx, "run "+task.Plugin, oteltrace.WithTimestamp(now))
	if s.run.IsRecording() {
		s.run.SetAttributes(attribute.String("quern.plugin", task.Plugin), attribute.String("quern.digest", task.Digest))
		if task.Version != "" {
			s.run.SetAttributes(attribute.String("quern.plugin.version", task.Version))
		}
	}
	return s, t.inject(ctx, task.Headers)
}

// operation returns the attributes of the span of an operation on the queue.
func (s *Span) operation(name string) oteltrace.SpanStartEventOption {
	return oteltrace.WithAttributes(append(s.about[:len(s.about):len(s.about)],
		attribute.String("messaging.operation.name", name), attribute.String("messaging.operation.type", name))...)
}

// extract returns a context with the span that a carrier names. It ignores reserved flags of the traceparent, as W3C
// Trace Context says; OpenTelemetry would ignore the whole traceparent.
func (t *Tracer) extract(carrier propagation.TextMapCarrier) context.Context {
	// The flags sampled and random make 03; all others are reserved.
	if parent := carrier.Get(queue.HeaderTraceparent); ID(parent) != "" && parent[53:55] > "03" {
		flags := "00"
		if SampledID(parent) != "" {
			flags = "01"
		}
		carrier = propagation.MapCarrier{
			queue.HeaderTraceparent: parent[:53] + flags + parent[55:],
			queue.HeaderTracestate:  carrier.Get(queue.HeaderTracestate),
		}
	}
	return t.propagator.Extract(context.Background(), carrier)
}

// inject returns a copy of headers with the trace of the span in ctx.
func (t *Tracer) inject(ctx context.Context, headers map[string]string) map[string]string {
	carrier := make(propagation.MapCarrier, 2)
	t.propagator.Inject(ctx, carrier)
	headers = maps.Clone(headers)
	delete(headers, queue.HeaderTraceparent)
	return queue.InheritTrace(carrier, headers)
}

// Ran ends the guest's span. reason is why the run failed; "" if it is complete.
func (s *Span) Ran(reason string, cpu time.Duration, fuel int64) {
	if s == nil {
		return
	}
	now := time.Now()
	if s.run.IsRecording() {
		s.run.SetAttributes(attribute.Float64("quern.cpu_seconds", cpu.Seconds()), attribute.Int64("quern.fuel", fuel))
		if s.untraced > 0 {
			s.run.SetAttributes(attribute.Int("quern.untraced_calls", s.untraced))
		}
		fail(s.run, reason)
	}
	s.run.End(oteltrace.WithTimestamp(now))
	_, s.settle = s.tracer.tracer.Start(oteltrace.ContextWithSpan(context.Background(), s.process), "settle "+s.queue,
		oteltrace.WithSpanKind(oteltrace.SpanKindClient), oteltrace.WithTimestamp(now), s.operation("settle"))
}

// Settled ends the span, after Ran. outcome is the outcome of the task, as quern_tasks_total counts it, and reason is
// why the task failed; "" if it did not.
func (s *Span) Settled(outcome, reason string) {
	if s == nil {
		return
	}
	if outcome == "lost" {
		fail(s.settle, outcome)
	}
	s.settle.End()
	if s.process.IsRecording() {
		s.process.SetAttributes(attribute.String("quern.outcome", outcome))
		fail(s.process, reason)
	}
	s.process.End()
}

// fail marks a span as failed unless the reason is "".
func fail(span oteltrace.Span, reason string) {
	if reason != "" && span.IsRecording() {
		span.SetAttributes(attribute.String("error.type", reason))
		span.SetStatus(codes.Error, reason)
	}
}
