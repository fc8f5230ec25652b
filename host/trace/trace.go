package trace

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/go-logr/logr"
	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	oteltrace "go.opentelemetry.io/otel/trace"
)

// Config says where spans go. OpenTelemetry's environment variables set what the Config leaves out
// (OTEL_EXPORTER_OTLP_…, OTEL_TRACES_SAMPLER, OTEL_BSP_…, OTEL_SERVICE_NAME, OTEL_RESOURCE_ATTRIBUTES). Without them,
// OpenTelemetry's defaults hold.
type Config struct {
	// Endpoint is the collector's URL. http and https mean OTLP over HTTP, with the path /v1/traces if the URL has none;
	// grpc and grpcs mean gRPC. The default is the endpoint of the environment.
	Endpoint string
	// Protocol is the protocol for the endpoint of the environment: http/protobuf or grpc (default http/protobuf). It is
	// not used if Endpoint is set.
	Protocol string
	// Version is the program's version. Name is the host's name for people.
	Version, Name string
	// Logger logs problems with the collector (default: they are not logged).
	Logger hclog.Logger
}

// Tracer makes spans. A nil Tracer makes none.
type Tracer struct {
	provider   *sdktrace.TracerProvider
	tracer     oteltrace.Tracer
	propagator propagation.TraceContext
	abandon    func() // makes running and later exports fail
}

// ConfigError says what is wrong with a field of a Config: Endpoint or Protocol.
type ConfigError struct {
	Field string
	Err   error
}

func (e *ConfigError) Error() string { return e.Field + ": " + e.Err.Error() }

// New makes a tracer, which sends spans until Shutdown. It connects to nothing yet. The error wraps a *ConfigError if
// a field is not valid.
func New(ctx context.Context, config Config) (*Tracer, error) {
	if config.Logger == nil {
		config.Logger = hclog.NewNullLogger()
	}
	otel.SetLogger(logr.New(sdkLog{config.Logger})) // the logger of the whole process, like the error handler below
	exporter, err := newExporter(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	host, _ := os.Hostname()
	about := []attribute.KeyValue{
		attribute.String("service.name", "quern"), attribute.String("service.version", config.Version),
		attribute.String("service.instance.id", uuid.NewString()), attribute.String("host.name", host),
	}
	if config.Name != "" {
		about = append(about, attribute.String("quern.host", config.Name))
	}
	described, err := resource.New(ctx, resource.WithAttributes(about...), resource.WithTelemetrySDK(),
		resource.WithFromEnv())
	if err != nil {
		config.Logger.Warn("traces lack a part of OTEL_RESOURCE_ATTRIBUTES", "error", err)
	}
	living, abandon := context.WithCancel(context.Background())
	reporter := &reporter{SpanExporter: exporter, logger: config.Logger, living: living}
	// Errors of exports do not get here: the reporter logs them.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { config.Logger.Warn("traces", "error", err) }))
	most, err := strconv.Atoi(os.Getenv("OTEL_BSP_MAX_QUEUE_SIZE"))
	if err != nil {
		most = sdktrace.DefaultMaxQueueSize
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithResource(described),
		sdktrace.WithSpanProcessor(bounded{sdktrace.NewBatchSpanProcessor(reporter), reporter, int64(most)}))
	return &Tracer{provider: provider, tracer: provider.Tracer("github.com/quern-project/quern"), abandon: abandon}, nil
}

func newExporter(ctx context.Context, config Config) (sdktrace.SpanExporter, error) {
	if config.Endpoint == "" {
		switch config.Protocol {
		case "", "http/protobuf":
			return otlptracehttp.New(ctx)
		case "grpc":
			return otlptracegrpc.New(ctx)
		}
		return nil, &ConfigError{"Protocol", errors.New("use http/protobuf or grpc")}
	}
	u, err := url.Parse(config.Endpoint)
	if err == nil && u.Port() != "" {
		_, err = strconv.ParseUint(u.Port(), 10, 16)
	}
	switch {
	case err != nil || u.Hostname() == "":
		err = errors.New("not the URL of a collector: use one like http://localhost:4318 or grpc://localhost:4317")
	case u.User != nil:
		err = errors.New("a user or password: leave it out, and set OTEL_EXPORTER_OTLP_HEADERS=authorization=Basic%20…")
	case u.Scheme == "http" || u.Scheme == "https":
		if u.Path == "" || u.Path == "/" {
			u.Path = "/v1/traces"
		}
		return otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(u.String()))
	case u.Scheme != "grpc" && u.Scheme != "grpcs":
		err = fmt.Errorf("scheme %q: use http or https for OTLP over HTTP, grpc or grpcs for gRPC", u.Scheme)
	case u.Path != "" && u.Path != "/":
		err = errors.New("a path, which gRPC has not: leave it out, or use http or https")
	default:
		u.Scheme = strings.Replace(u.Scheme, "grpc", "http", 1)
		return otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(u.String()))
	}
	return nil, &ConfigError{"Endpoint", err}
}

// Shutdown sends the spans that wait, until ctx ends. The tracer makes no spans afterwards.
func (t *Tracer) Shutdown(ctx context.Context) error {
	if t == nil {
		return nil
	}
	defer t.abandon()
	defer context.AfterFunc(ctx, t.abandon)()
	err := t.provider.Shutdown(context.WithoutCancel(ctx)) // ctx would end it early, and leak its goroutine
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
