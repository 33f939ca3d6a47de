package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc"
)

// TelemetryOptions says whose telemetry it is.
type TelemetryOptions struct {
	// Service is the stage's word; it becomes service.name. OTEL_SERVICE_NAME is not used, since `rohrpost up` runs
	// several services in one process.
	Service string
	// Version becomes service.version.
	Version string
	// Logger gets export failures, at most one a minute. Nil means slog.Default.
	Logger *slog.Logger
	// Getenv reads the OTEL_ variables that decide whether there is telemetry at all; usually os.Getenv. The exporter
	// and the SDK read the others from the process's environment by themselves.
	Getenv func(string) string
}

// Telemetry makes a tracer provider for one service by the standard OTEL_ variables. Without
// OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, with OTEL_TRACES_EXPORTER=none or with
// OTEL_SDK_DISABLED=true nothing is recorded. Spans go out by OTLP over gRPC; the sampler is OTEL_TRACES_SAMPLER,
// parentbased_always_on where it is not set.
//
// Spans are exported in the background and dropped when the queue is full (OTEL_BSP_MAX_QUEUE_SIZE): telemetry never
// holds up mail. The returned function sends what is left and must be called once; its context bounds the wait.
func Telemetry(ctx context.Context, opts TelemetryOptions) (trace.TracerProvider, func(context.Context) error, error) {
	on, err := telemetryOn(opts.Getenv)
	if err != nil {
		return nil, nil, err
	}
	if !on {
		return noop.NewTracerProvider(), func(context.Context) error { return nil }, nil
	}
	res, err := telemetryResource(ctx, opts)
	if err != nil {
		return nil, nil, err
	}
	// As in Dial, no TXT record is asked for.
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithDialOption(grpc.WithDisableServiceConfig()))
	if err != nil {
		return nil, nil, fmt.Errorf("setting up the trace exporter: %w; check the OTEL_EXPORTER_OTLP_ variables", err)
	}
	logger := opts.Logger
	if logger == nil {
		logger = slog.Default()
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithResource(res),
		sdktrace.WithBatcher(&quietExporter{next: exporter, logger: logger, now: time.Now}),
	)
	return provider, provider.Shutdown, nil
}

func telemetryOn(getenv func(string) string) (bool, error) {
	if getenv("OTEL_SDK_DISABLED") == "true" {
		return false, nil
	}
	switch exporter := getenv("OTEL_TRACES_EXPORTER"); exporter {
	case "none":
		return false, nil
	case "", "otlp":
	default:
		return false, Usage("OTEL_TRACES_EXPORTER: %q is not supported; use otlp or none", exporter)
	}
	if getenv("OTEL_EXPORTER_OTLP_ENDPOINT") == "" && getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") == "" {
		return false, nil
	}
	for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"} {
		if protocol := getenv(name); protocol != "" && protocol != "grpc" {
			return false, Usage("%s: %q is not supported; use grpc (usually port 4317)", name, protocol)
		}
	}
	return true, nil
}

func telemetryResource(ctx context.Context, opts TelemetryOptions) (*resource.Resource, error) {
	// Later detectors win: what we know of ourselves stands over OTEL_RESOURCE_ATTRIBUTES.
	res, err := resource.New(ctx,
		resource.WithTelemetrySDK(),
		resource.WithHost(),
		resource.WithFromEnv(),
		resource.WithAttributes(
			attribute.String("service.namespace", "rohrpost"),
			attribute.String("service.name", opts.Service),
			attribute.String("service.version", opts.Version),
			attribute.String("service.instance.id", uuid.NewString()),
		),
	)
	if err != nil && !errors.Is(err, resource.ErrPartialResource) && !errors.Is(err, resource.ErrSchemaURLConflict) {
		return nil, Usage("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	return res, nil
}

// quietExporter keeps export failures from flooding the log. It reports none to the SDK, whose error handler is global
// to the process.
type quietExporter struct {
	next   sdktrace.SpanExporter
	logger *slog.Logger
	now    func() time.Time

	mu     sync.Mutex
	silent time.Time // until when failures are only counted
	lost   int       // spans since the last line
}

// ExportSpans exports and logs a failure at most once a minute.
func (e *quietExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := e.next.ExportSpans(ctx, spans)
	if err == nil {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.lost += len(spans)
	if now := e.now(); !now.Before(e.silent) {
		e.logger.WarnContext(ctx, "spans could not be exported", slog.Int("lost", e.lost), slog.Any("error", err))
		e.silent, e.lost = now.Add(time.Minute), 0
	}
	return nil
}

// Shutdown closes the exporter.
func (e *quietExporter) Shutdown(ctx context.Context) error { return e.next.Shutdown(ctx) }
