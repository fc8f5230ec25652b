package trace

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"github.com/hashicorp/go-hclog"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// reportEvery is how often the log has a line about a collector that does not take spans.
const reportEvery = time.Minute

// reporter logs which exports fail. Its methods are called one at a time.
type reporter struct {
	sdktrace.SpanExporter
	logger   hclog.Logger
	living   context.Context //nolint:containedctx // its end abandons all exports; the SDK passes none that ends
	failing  bool
	reported time.Time // when the log had the last line
	lost     int       // spans since that
}

// ExportSpans exports, and logs an error instead of returning it.
func (r *reporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.living, cancel)()
	err := r.SpanExporter.ExportSpans(ctx, spans)
	switch {
	case err == nil && r.failing:
		r.logger.Info("collector takes traces again", "lost_spans", r.lost)
		r.failing, r.lost, r.reported = false, 0, time.Time{}
	case err != nil:
		r.failing = true
		if r.lost += len(spans); time.Since(r.reported) >= reportEvery {
			r.logger.Warn("collector takes no traces: check the address of --otlp or OTEL_EXPORTER_OTLP_ENDPOINT", "lost_spans", r.lost, "error", err)
			r.reported, r.lost = time.Now(), 0
		}
	}
	return nil
}

// sdkLog tells what the SDK says of settings that it cannot use, without their values, which may be secret.
type sdkLog struct{ logger hclog.Logger }

func (sdkLog) Init(logr.RuntimeInfo)            {}
func (sdkLog) Enabled(int) bool                 { return false }
func (sdkLog) Info(int, string, ...any)         {}
func (l sdkLog) WithValues(...any) logr.LogSink { return l }
func (l sdkLog) WithName(string) logr.LogSink   { return l }

func (l sdkLog) Error(_ error, message string, _ ...any) {
	l.logger.Warn("OpenTelemetry leaves out a setting of its environment variables that it cannot use", "what", message)
}
