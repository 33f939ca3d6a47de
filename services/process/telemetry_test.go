package process

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
)

// collector takes spans over OTLP and notes the service of each.
type collector struct {
	collectorv1.UnimplementedTraceServiceServer
	mu    sync.Mutex
	spans map[string]string // span name → service.name
}

func (c *collector) Export(_ context.Context, request *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, rs := range request.GetResourceSpans() {
		service := ""
		for _, attribute := range rs.GetResource().GetAttributes() {
			if attribute.GetKey() == "service.name" {
				service = attribute.GetValue().GetStringValue()
			}
		}
		for _, ss := range rs.GetScopeSpans() {
			for _, span := range ss.GetSpans() {
				c.spans[span.GetName()] = service
			}
		}
	}
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

func TestTelemetryKeepsServicesApart(t *testing.T) {
	received := &collector{spans: make(map[string]string)}
	lis, server := listen(t), grpc.NewServer()
	collectorv1.RegisterTraceServiceServer(server, received)
	done := make(chan error, 1)
	go func() { done <- server.Serve(lis) }()
	defer func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+lis.Addr().String())
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=wrong,deployment=test")
	for _, service := range []string{Gateway, Spool} {
		provider, shutdown, err := Telemetry(t.Context(), TelemetryOptions{Service: service, Version: "v0", Getenv: os.Getenv})
		if err != nil {
			t.Fatal(err)
		}
		_, span := provider.Tracer("test").Start(t.Context(), "span of "+service)
		span.End()
		if err := shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, service := range []string{Gateway, Spool} {
		if got := received.spans["span of "+service]; got != service {
			t.Errorf("the span of %s says service.name %q", service, got)
		}
	}
}

func TestTelemetryIsOffOrRefused(t *testing.T) {
	for name, test := range map[string]struct {
		env   map[string]string
		usage bool
	}{
		"nothing set":   {env: nil},
		"disabled":      {env: map[string]string{"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}},
		"no exporter":   {env: map[string]string{"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}},
		"other kind":    {env: map[string]string{"OTEL_TRACES_EXPORTER": "zipkin"}, usage: true},
		"HTTP protocol": {env: map[string]string{"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"}, usage: true},
	} {
		provider, shutdown, err := Telemetry(t.Context(), TelemetryOptions{Service: Spool, Getenv: func(k string) string { return test.env[k] }})
		if test.usage {
			if ExitCode(err) != ExitUsage {
				t.Errorf("%s: got %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		_, span := provider.Tracer("test").Start(t.Context(), "x")
		if span.IsRecording() || shutdown(t.Context()) != nil {
			t.Errorf("%s: telemetry is on", name)
		}
	}
}

type failingExporter struct{}

func (failingExporter) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error {
	return errors.New("collector is away")
}
func (failingExporter) Shutdown(context.Context) error { return nil }

func TestExportFailuresAreLoggedOnceAMinute(t *testing.T) {
	var log bytes.Buffer
	now := time.Unix(0, 0)
	exporter := &quietExporter{next: failingExporter{}, logger: slog.New(slog.NewTextHandler(&log, nil)), now: func() time.Time { return now }}
	for range 90 {
		if err := exporter.ExportSpans(t.Context(), make([]sdktrace.ReadOnlySpan, 2)); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Second)
	}
	if n := strings.Count(log.String(), "\n"); n != 2 || !strings.Contains(log.String(), "lost=120") {
		t.Errorf("%d lines: %s", n, log.String())
	}
}
