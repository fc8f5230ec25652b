package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/quern-project/quern/host/trace"
	"github.com/quern-project/quern/sdk/queue"
)

// tracesTimeout bounds the sending of the last spans when a host ends.
const tracesTimeout = 5 * time.Second

// tracer makes the tracer that --otlp or OpenTelemetry's environment variables ask for; nil if neither does.
func (n *node) tracer(ctx context.Context, env environment) (*trace.Tracer, error) {
	config := trace.Config{Endpoint: n.options.otlp, Name: n.options.host.Name, Logger: n.logger.Named("traces")}
	config.Version, _ = buildVersion()
	if config.Endpoint != "" {
		if err := trace.CheckEndpoint(config.Endpoint); err != nil {
			flag := n.flags.Lookup("otlp")
			return nil, wrongValue(flag, shown(flag, config.Endpoint), err)
		}
	} else {
		if !tracesWanted(env) {
			return nil, nil
		}
		name := "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
		if config.Protocol = env.get(name); config.Protocol == "" {
			name = "OTEL_EXPORTER_OTLP_PROTOCOL"
			config.Protocol = env.get(name)
		}
		if err := trace.CheckProtocol(config.Protocol); err != nil {
			return nil, usagef("%s %q: %w", name, config.Protocol, err)
		}
	}
	tracer, err := trace.New(ctx, config)
	if err != nil {
		return nil, refusedf("%w", err)
	}
	n.closers = append(n.closers, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), tracesTimeout)
		defer cancel()
		if err := tracer.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			n.logger.Warn("traces of the last seconds are lost", "error", err)
		}
	})
	return tracer, nil
}

// tracesWanted tells whether OpenTelemetry's environment variables name a collector and do not turn traces off.
func tracesWanted(env environment) bool {
	if strings.EqualFold(env.get("OTEL_SDK_DISABLED"), "true") || env.get("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return env.get("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || env.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}

// inheritTrace puts a task into the trace that the environment names (TRACEPARENT, TRACESTATE), as CI systems and shells do,
// unless it has one. What is no trace there is no reason to refuse the task.
func inheritTrace(env environment, o *queue.Options) {
	trace := env.get("TRACEPARENT")
	if _, own := o.Headers[queue.HeaderTraceparent]; own || o.Traceparent != "" || !queue.ValidTraceparent(trace) {
		return
	}
	o.Traceparent = trace
	if state := env.get("TRACESTATE"); state != "" && queue.ValidHeader(queue.HeaderTracestate, state) == nil {
		o.Headers = merged(map[string]string{queue.HeaderTracestate: state}, o.Headers)
	}
}
