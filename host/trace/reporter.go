package trace

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/hashicorp/go-hclog"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// reportEvery is how often the log has a line about a collector that does not take spans.
const reportEvery = time.Minute

// reporter exports spans, and logs failures of exports. Only one goroutine at a time calls ExportSpans.
type reporter struct {
	sdktrace.SpanExporter
	logger   hclog.Logger
	living   context.Context //nolint:containedctx // its end abandons all exports; the SDK's own contexts do not end
	failing  bool
	reported time.Time    // when the last problem was logged; zero once the collector takes spans again
	lost     atomic.Int64 // spans lost since the last line in the log
	waiting  atomic.Int64 // spans that wait for an export or are being exported
}

// bounded drops the spans that end while the queue is full, and counts them as lost. The SDK would drop them silently.
type bounded struct {
	sdktrace.SpanProcessor
	reporter *reporter
	most     int64
}

func (b bounded) OnEnd(span sdktrace.ReadOnlySpan) {
	if b.reporter.waiting.Add(1) > b.most {
		b.reporter.waiting.Add(-1)
		b.reporter.lost.Add(1)
		return
	}
	b.SpanProcessor.OnEnd(span)
}

// ExportSpans exports spans, and logs an error instead of returning it.
func (r *reporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.living, cancel)()
	err := r.SpanExporter.ExportSpans(ctx, spans)
	r.waiting.Add(-int64(len(spans)))
	if err != nil {
		r.lost.Add(int64(len(spans)))
	}
	switch due := time.Since(r.reported) >= reportEvery; {
	case err == nil && r.failing:
		r.logger.Info("collector takes traces again", "lost_spans", r.lost.Swap(0))
		r.failing, r.reported = false, time.Time{}
	case err != nil:
		if r.failing = true; due {
			r.logger.Warn("collector takes no traces: check the address of --otlp or OTEL_EXPORTER_OTLP_ENDPOINT",
				"lost_spans", r.lost.Swap(0), "error", err)
			r.reported = time.Now()
		}
	case due && r.lost.Load() > 0:
		r.logger.Warn("spans end faster than the collector takes them: sample fewer with OTEL_TRACES_SAMPLER, or raise OTEL_BSP_MAX_QUEUE_SIZE", "lost_spans", r.lost.Swap(0))
		r.reported = time.Now()
	}
	return nil
}

// Shutdown is called after the last export.
func (r *reporter) Shutdown(ctx context.Context) error {
	if n := r.lost.Swap(0); n > 0 {
		r.logger.Warn("traces end incomplete", "lost_spans", n)
	}
	return r.SpanExporter.Shutdown(ctx)
}

// sdkLog logs the SDK's errors about settings that it cannot use, without their values, which may be secret.
type sdkLog struct{ logger hclog.Logger }

func (sdkLog) Init(logr.RuntimeInfo)            {}
func (sdkLog) Enabled(int) bool                 { return false }
func (sdkLog) Info(int, string, ...any)         {}
func (l sdkLog) WithValues(...any) logr.LogSink { return l }
func (l sdkLog) WithName(string) logr.LogSink   { return l }

func (l sdkLog) Error(_ error, message string, _ ...any) {
	l.logger.Warn("OpenTelemetry leaves out a setting of its environment variables that it cannot use", "what", message)
}
