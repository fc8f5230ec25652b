package main

import (
	"context"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quern-project/quern/host/trace"
	"github.com/quern-project/quern/sdk/queue"
)

// tracesTimeout bounds the sending of the last spans when a host ends.
const tracesTimeout = 5 * time.Second

func otlpFlag(f *pflag.FlagSet) {
	newText(f, new(string), "URL", "otlp", "`URL` of the collector of traces: http://, https:// or, for gRPC, grpc://, grpcs:// (default OTEL_EXPORTER_OTLP_ENDPOINT, else no traces)")
}

// newTracer makes the tracer that --otlp or OpenTelemetry's environment variables ask for; nil if neither does. name is the
// host's. end sends what waits.
func newTracer(cmd *cobra.Command, env environment, name string, logger hclog.Logger) (_ *trace.Tracer, end func(), err error) {
	if err := checkOpenTelemetry(env); err != nil {
		return nil, nil, err
	}
	flag := cmd.Flag("otlp")
	config := trace.Config{Endpoint: flag.Value.String(), Name: name, Logger: logger.Named("traces")}
	config.Version, _ = buildVersion()
	protocol := "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	if config.Endpoint == "" {
		if wanted, err := tracesWanted(env); err != nil || !wanted {
			return nil, func() {}, err
		}
		if env.get(protocol) == "" {
			protocol = "OTEL_EXPORTER_OTLP_PROTOCOL"
		}
		config.Protocol = env.get(protocol)
	}
	tracer, err := trace.New(cmd.Context(), config)
	switch wrong, ok := errors.AsType[*trace.ConfigError](err); {
	case ok && wrong.Field == "Endpoint":
		return nil, nil, wrongValue(flag, shown(flag, config.Endpoint), wrong.Err)
	case ok:
		return nil, nil, usagef("%s %q: %w", protocol, config.Protocol, wrong.Err)
	case err != nil:
		return nil, nil, refusedf("%w", err)
	}
	return tracer, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), tracesTimeout)
		defer cancel()
		if err := tracer.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			config.Logger.Warn("traces of the last seconds are lost", "error", err)
		}
	}, nil
}

// checkOpenTelemetry refuses what its SDK does not check: a host would panic, or compute without end.
func checkOpenTelemetry(env environment) error {
	for name, most := range map[string]int{
		"OTEL_BSP_MAX_QUEUE_SIZE": 1_000_000, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": 1_000_000,
		"OTEL_BSP_SCHEDULE_DELAY": 86_400_000, "OTEL_BSP_EXPORT_TIMEOUT": 86_400_000, // milliseconds
		"OTEL_EXPORTER_OTLP_TIMEOUT": 86_400_000, "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": 86_400_000,
	} {
		if text := env.get(name); text != "" {
			if n, err := strconv.Atoi(text); err != nil || n < 1 || n > most {
				return usagef("%s %q: use a whole number from 1 to %d", name, text, most)
			}
		}
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_COMPRESSION", "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION"} {
		if text := env.get(name); text != "" && text != "gzip" && text != "none" {
			return usagef("%s %q: use gzip or none", name, text)
		}
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"} {
		if text := env.get(name); text != "" {
			if u, err := url.Parse(text); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
				return usagef("%s: use a URL, such as http://localhost:4318", name)
			}
		}
	}
	return nil
}

// tracesWanted tells whether OpenTelemetry's environment variables name a collector and do not turn traces off.
func tracesWanted(env environment) (bool, error) {
	exporter := env.get("OTEL_TRACES_EXPORTER")
	switch {
	case env.get("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && env.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "",
		strings.EqualFold(env.get("OTEL_SDK_DISABLED"), "true"), exporter == "none":
		return false, nil
	case exporter != "" && exporter != "otlp":
		return false, usagef("OTEL_TRACES_EXPORTER %q: use otlp or none", exporter)
	}
	return true, nil
}

// traceOf is the trace that the environment names (TRACEPARENT, TRACESTATE), as CI systems and shells do: that of what a command
// enqueues and publishes, unless it has its own. What is no trace there is no reason to refuse a task.
func traceOf(env environment) map[string]string {
	return queue.InheritTrace(map[string]string{queue.HeaderTraceparent: env.get("TRACEPARENT"), queue.HeaderTracestate: env.get("TRACESTATE")}, nil)
}
