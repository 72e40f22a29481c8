// Package trace sends spans of work to a collector by OpenTelemetry's SDK
// (opentelemetry.io/docs/specs/otel), and passes their context between programs
// (www.w3.org/TR/trace-context). It is off unless the standard variables name a collector.
package trace

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// Kinds of spans.
const (
	Internal = trace.SpanKindInternal
	Server   = trace.SpanKindServer
	Consumer = trace.SpanKindConsumer
)

// Header carries the context, in HTTP and in NATS.
const Header = "traceparent"

// Tracer sends spans to a collector, in the background. A nil tracer records nothing; all methods
// take it.
// It is safe for concurrent use.
type Tracer struct {
	provider *sdk.TracerProvider
	spans    trace.Tracer
}

// New returns the tracer that the variables of OpenTelemetry ask for, nil where they name no
// collector, or OTEL_SDK_DISABLED is true. The variables are those of its SDK and its exporter of
// OTLP over HTTP; OTEL_SERVICE_NAME replaces service.
// The exporter reads its variables itself. Endpoint and protocol are checked before, so that a
// wrong one is an error of the start.
func New(service, version string, log *slog.Logger) (*Tracer, error) {
	first := func(suffix string) (string, string) {
		for _, name := range []string{"OTEL_EXPORTER_OTLP_TRACES_" + suffix,
			"OTEL_EXPORTER_OTLP_" + suffix} {
			if v := os.Getenv(name); v != "" {
				return name, v
			}
		}
		return "", ""
	}
	name, address := first("ENDPOINT")
	if address == "" || strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return nil, nil
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("traces: the endpoint of %s is no http:// or https:// "+
			"address; set it to that of a collector that takes OTLP over HTTP, such as "+
			"http://127.0.0.1:4318", name)
	}
	if name, protocol := first("PROTOCOL"); protocol != "" && protocol != "http/protobuf" {
		return nil,
			fmt.Errorf("traces: %s is %.20q; traces are sent as http/protobuf alone: set "+
				"that, or nothing", name, protocol)
	}
	exporter, err := otlptracehttp.New(context.Background())
	if err != nil {
		return nil, fmt.Errorf("traces: %w", err)
	}
	about, err := resource.New(context.Background(),
		resource.WithAttributes(attribute.String("service.name", service),
			attribute.String("service.version", version)), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("traces: OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.Warn("traces", "error", err)
	}))
	log.Info("traces are sent", "host", u.Host)
	return of(&reported{SpanExporter: exporter, log: log}, about), nil
}

// of returns a tracer that sends to an exporter.
// Spans are sent in batches by a goroutine of the SDK, until Close.
func of(exporter sdk.SpanExporter, about *resource.Resource) *Tracer {
	p := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(about))
	return &Tracer{p, p.Tracer("fmp")}
}

// reported is an exporter that logs when the collector stops taking spans, and when it takes them
// again, once each.
type reported struct {
	sdk.SpanExporter
	log     *slog.Logger
	mu      sync.Mutex
	lost    int // since the last export that succeeded
	failing bool
}

// The error stays here, as the SDK would log each.
// A batch that failed is not sent again: its spans are lost.
func (r *reported) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := r.SpanExporter.ExportSpans(ctx, spans)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		if r.lost += len(spans); !r.failing {
			r.log.Warn("the collector of traces does not take them; they are dropped until it does",
				"error", err)
		}
	} else if r.failing {
		r.log.Info("traces are sent again", "spans_lost", r.lost)
	}
	if r.failing = err != nil; !r.failing {
		r.lost = 0
	}
	return nil
}

// From returns a context in which the spans that are started are children of a traceparent's span.
// One that is none changes nothing.
func From(ctx context.Context, traceparent string) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{Header: traceparent})
}

// Parent returns the traceparent of the span of a context; empty if there is none.
// It goes into a message or a later context, so that work of another time is below the same
// request.
func Parent(ctx context.Context) string {
	to := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, to)
	return to[Header]
}

// Start starts a span below the one of the context, or a trace. Attributes must not tell of a
// person: no names of clients, no addresses, no texts of errors.
// The caller ends the span by [End], whether it is recorded or not.
func (t *Tracer) Start(ctx context.Context, name string, kind trace.SpanKind,
	attributes ...attribute.KeyValue) (context.Context, trace.Span) {
	if t == nil {
		return ctx, noop.Span{}
	}
	return t.spans.Start(ctx, name, trace.WithSpanKind(kind), trace.WithAttributes(attributes...))
}

// End ends a span, as failed or not. The text of an error stays here, as it may name a client.
func End(s trace.Span, failed bool) {
	if failed {
		s.SetStatus(codes.Error, "")
	}
	s.End()
}

// Close sends the spans that wait, for as long as the context lasts.
// A context that ended before all were sent is no error that is told.
func (t *Tracer) Close(ctx context.Context) {
	if t == nil {
		return
	}
	if err := t.provider.Shutdown(ctx); err != nil && !errors.Is(err, ctx.Err()) {
		otel.Handle(err)
	}
}
