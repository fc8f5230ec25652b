package nodehost

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

	"github.com/quern-project/quern/cmd/quern/cli"
	"github.com/quern-project/quern/cmd/quern/option"
	"github.com/quern-project/quern/host/trace"
)

// tracesTimeout bounds the sending of the last spans when a host ends.
const tracesTimeout = 5 * time.Second

// TracesFlag adds --otlp.
func TracesFlag(f *pflag.FlagSet) {
	option.Text(f, new(string), "URL", "otlp", "`URL` of the collector of traces: http://, https:// or, for gRPC, grpc://, grpcs:// (default OTEL_EXPORTER_OTLP_ENDPOINT, else no traces)")
}

// NewTracer makes the tracer that --otlp or OpenTelemetry's environment variables ask for. It returns a nil tracer if
// neither does. name is the host's name. end sends the spans that still wait.
func NewTracer(cmd *cobra.Command, env cli.Environment, name string,
	logger hclog.Logger,
) (_ *trace.Tracer, end func(), err error) {
	if err := checkOpenTelemetry(env); err != nil {
		return nil, nil, err
	}
	flag := cmd.Flag("otlp")
	config := trace.Config{Endpoint: flag.Value.String(), Name: name, Logger: logger.Named("traces")}
	config.Version, _ = cli.BuildVersion()
	protocol := "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"
	if config.Endpoint == "" {
		if wanted, err := tracesWanted(env); err != nil || !wanted {
			return nil, func() {}, err
		}
		if env.Get(protocol) == "" {
			protocol = "OTEL_EXPORTER_OTLP_PROTOCOL"
		}
		config.Protocol = env.Get(protocol)
	}
	tracer, err := trace.New(cmd.Context(), config)
	switch wrong, ok := errors.AsType[*trace.ConfigError](err); {
	case ok && wrong.Field == "Endpoint":
		return nil, nil, cli.WrongValue(flag, cli.Shown(flag, config.Endpoint), wrong.Err)
	case ok:
		return nil, nil, cli.Usagef("%s %q: %w", protocol, config.Protocol, wrong.Err)
	case err != nil:
		return nil, nil, cli.Refusedf("%w", err)
	}
	return tracer, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), tracesTimeout)
		defer cancel()
		if err := tracer.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			config.Logger.Warn("traces of the last seconds are lost", "error", err)
		}
	}, nil
}

// checkOpenTelemetry refuses values of environment variables that OpenTelemetry's SDK does not check, and with which a
// host would panic or never end.
func checkOpenTelemetry(env cli.Environment) error {
	for name, most := range map[string]int{
		"OTEL_BSP_MAX_QUEUE_SIZE": 1_000_000, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": 1_000_000,
		"OTEL_BSP_SCHEDULE_DELAY": 86_400_000, "OTEL_BSP_EXPORT_TIMEOUT": 86_400_000, // milliseconds
		"OTEL_EXPORTER_OTLP_TIMEOUT": 86_400_000, "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": 86_400_000,
	} {
		if text := env.Get(name); text != "" {
			if n, err := strconv.Atoi(text); err != nil || n < 1 || n > most {
				return cli.Usagef("%s %q: use a whole number from 1 to %d", name, text, most)
			}
		}
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_COMPRESSION", "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION"} {
		if text := env.Get(name); text != "" && text != "gzip" && text != "none" {
			return cli.Usagef("%s %q: use gzip or none", name, text)
		}
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"} {
		if text := env.Get(name); text != "" {
			if u, err := url.Parse(text); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
				return cli.Usagef("%s: use a URL, such as http://localhost:4318", name)
			}
		}
	}
	return nil
}

// tracesWanted reports whether OpenTelemetry's environment variables name a collector and do not turn traces off.
func tracesWanted(env cli.Environment) (bool, error) {
	exporter := env.Get("OTEL_TRACES_EXPORTER")
	switch {
	case env.Get("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && env.Get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "",
		strings.EqualFold(env.Get("OTEL_SDK_DISABLED"), "true"), exporter == "none":
		return false, nil
	case exporter != "" && exporter != "otlp":
		return false, cli.Usagef("OTEL_TRACES_EXPORTER %q: use otlp or none", exporter)
	}
	return true, nil
}
