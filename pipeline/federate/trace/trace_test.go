package trace

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	official "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"fmp/onnx/must"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// collector is a collector of traces that keeps requests.
type collector struct {
	*httptest.Server
	mu     sync.Mutex
	spans  []*otlp.ResourceSpans
	header http.Header
	path   string
}

func newCollector(t *testing.T) *collector {
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		var m official.ExportTraceServiceRequest
		if err := proto.Unmarshal(data, &m); err != nil {
			t.Error(err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.spans, c.header, c.path = append(c.spans, m.ResourceSpans...), r.Header, r.URL.Path
	}))
	t.Cleanup(c.Close)
	return c
}

// TestOff: without an endpoint there is no tracer, and all methods take none. An endpoint or a
// protocol that cannot be used is an error.
func TestOff(t *testing.T) {
	for _, disabled := range []string{"", "true"} {
		t.Setenv("OTEL_SDK_DISABLED", disabled)
		if disabled != "" {
			t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
		}
		tr, err := New("s", "v", slog.New(slog.DiscardHandler))
		if tr != nil || err != nil {
			t.Fatal(tr, err)
		}
		ctx, span := tr.Start(From(t.Context(), parent), "x", Internal)
		span.SetAttributes(attribute.Int("a", 1))
		End(span, true)
		tr.Close(ctx)
		if Parent(ctx) != parent {
			t.Errorf("%q is passed on; want %q", Parent(ctx), parent)
		}
	}
	t.Setenv("OTEL_SDK_DISABLED", "")
	for _, c := range [][3]string{{"OTEL_EXPORTER_OTLP_ENDPOINT", "127.0.0.1:4318", "http://127.0.0.1:4318"},
		{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc", "http/protobuf"}} {
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
		t.Setenv(c[0], c[1])
		if _, err := New("s", "v", slog.New(slog.DiscardHandler)); err == nil ||
			!strings.Contains(err.Error(), c[2]) ||
			!strings.Contains(err.Error(), c[0]) {
			t.Errorf("%s=%s: %v", c[0], c[1], err)
		}
	}
}

// TestExport: spans are children of the caller's, those of a caller that does not record are not,
// and requests carry the headers that the variables state.
func TestExport(t *testing.T) {
	c := newCollector(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL+"/")
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b, x=y")
	t.Setenv("OTEL_SERVICE_NAME", "ward")
	tr := must.Get(New("s", "v1", slog.New(slog.DiscardHandler)))(t)
	ctx, a := tr.Start(From(t.Context(), parent), "first", Server, attribute.String("text", "é"),
		attribute.Int("number", -7))
	_, b := tr.Start(ctx, "second", Internal)
	End(b, true)
	End(a, false)
	_, none := tr.Start(From(t.Context(), parent[:53]+"00"), "third", Server)
	End(none, false)
	_, root := tr.Start(t.Context(), "fourth", Consumer)
	End(root, false)
	tr.Close(t.Context())
	if len(c.spans) != 1 || c.path != "/v1/traces" || c.header.Get("Api-Key") != "a b" ||
		c.header.Get("X") != "y" {
		t.Fatalf("%s %v %v", c.path, c.header, c.spans)
	}
	about := map[string]string{}
	for _, a := range c.spans[0].Resource.Attributes {
		about[a.Key] = a.Value.GetStringValue()
	}
	if len(about) != 2 || about["service.name"] != "ward" || about["service.version"] != "v1" {
		t.Errorf("%v", about) // nothing of the machine
	}
	spans := c.spans[0].ScopeSpans[0].Spans
	if len(spans) != 3 {
		t.Fatalf("%v", spans)
	}
	second, first, fourth := spans[0], spans[1], spans[2]
	of := func(s *otlp.Span) string { return hex.EncodeToString(s.TraceId) }
	if of(first) != parent[3:35] || hex.EncodeToString(first.ParentSpanId) != parent[36:52] ||
		of(second) != of(first) || string(second.ParentSpanId) != string(first.SpanId) ||
		second.Status.GetCode() != otlp.Status_STATUS_CODE_ERROR || second.Status.GetMessage() != "" ||
		first.Status.GetCode() != 0 || first.Kind != otlp.Span_SPAN_KIND_SERVER ||
		first.Attributes[1].Value.GetIntValue() != -7 || len(fourth.ParentSpanId) != 0 ||
		of(fourth) == of(first) {
		t.Errorf("%v", spans)
	}
}

// fails is an exporter that fails on demand.
type fails struct {
	sdk.SpanExporter
	err  error
	sent int
}

func (f *fails) ExportSpans(_ context.Context, spans []sdk.ReadOnlySpan) error {
	f.sent += len(spans)
	return f.err
}

// TestDeadCollector: a collector that fails is one line of the log however often, and one that is
// back is another.
func TestDeadCollector(t *testing.T) {
	var text strings.Builder
	f := &fails{err: errors.New("it is down")}
	r := &reported{SpanExporter: f, log: slog.New(slog.NewTextHandler(&text, nil))}
	export := func() string {
		text.Reset()
		if err := r.ExportSpans(t.Context(), make([]sdk.ReadOnlySpan, 3)); err != nil {
			t.Error(err) // it has been reported
		}
		return text.String()
	}
	if got := export(); !strings.Contains(got, "level=WARN") || !strings.Contains(got, "it is down") {
		t.Errorf("the first failure: %q", got)
	}
	if got := export(); got != "" {
		t.Errorf("the second failure: %q", got)
	}
	f.err = nil
	if got := export(); !strings.Contains(got, "spans_lost=6") {
		t.Errorf("back: %q", got)
	}
	if got := export(); got != "" || f.sent != 12 {
		t.Errorf("as ever: %q, %d sent", got, f.sent)
	}
}
