package trace

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// FuzzParse: a traceparent that is read is one by the recommendation, and comes out again as version 00.
func FuzzParse(f *testing.F) {
	for _, text := range []string{parent, "", parent[:54] + "0", parent + "-x", "cc" + parent[2:] + "-x", strings.ToUpper(parent),
		"00-" + strings.Repeat("0", 32) +
			"-b7ad6b7169203331-01"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, ok := parse(text)
		got := Parent(From(context.Background(), text))
		if !ok {
			if got != "" {
				t.Fatalf("%q: %q", text, got)
			}
			return
		}
		want := "00" + text[2:53] + "00"
		if r.sampled {
			want = "00" + text[2:53] + "01"
		}
		if got != want {
			t.Fatalf("%q: %q; want %q", text, got, want)
		}
	})
}

func TestParse(t *testing.T) {
	for text, ok := range map[string]bool{parent: true, parent[:53] + "00": true, "01" + parent[2:] + "-more": true, "": false,
		parent + "-x":     false,
		"ff" + parent[2:]: false, strings.ToUpper(parent): false, parent[:54]: false, strings.Replace(parent, "b7ad6b7169203331",
			"0000000000000000", 1): false,
		strings.Replace(parent, "-b7", "_b7", 1): false} {
		if _, got := parse(text); got != ok {
			t.Errorf("%q: %v; want %v", text, got, ok)
		}
	}
}

// collector is a collector of traces that keeps the bodies of requests.
type collector struct {
	*httptest.Server
	mu     sync.Mutex
	bodies [][]byte
	header http.Header
	path   string
}

func newCollector(t *testing.T) *collector {
	c := &collector{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.bodies, c.header, c.path = append(c.bodies, data), r.Header, r.URL.Path
	}))
	t.Cleanup(c.Close)
	return c
}

func environment(pairs ...string) func(string) string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return m[name] }
}

// TestOff: without an endpoint there is no tracer, and all methods take none.
func TestOff(t *testing.T) {
	for _, env := range []func(string) string{environment(), environment("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1",
		"OTEL_SDK_DISABLED", "true")} {
		tr, err := New(env, "s", "v", slog.New(slog.DiscardHandler))
		if tr != nil || err != nil {
			t.Fatal(tr, err)
		}
		ctx, span := tr.Start(From(t.Context(), parent), "x", Internal)
		span.Set("a", 1)
		span.End(true)
		tr.Close(ctx)
		if Parent(ctx) != parent {
			t.Errorf("%q is passed on; want %q", Parent(ctx), parent)
		}
	}
	if _, err := New(environment("OTEL_EXPORTER_OTLP_ENDPOINT", "127.0.0.1:4318"), "s", "v", slog.New(slog.DiscardHandler)); err == nil ||
		!strings.Contains(err.Error(), "http://127.0.0.1:4318") {
		t.Errorf("an endpoint without a scheme: %v", err)
	}
}

// TestExport: spans are children of the caller's, those of a caller that does not record are not, and requests carry the headers
// that the variables state.
func TestExport(t *testing.T) {
	c := newCollector(t)
	tr, err := New(environment("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL+"/", "OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b, x=y",
		"OTEL_SERVICE_NAME",
		"ward"), "s", "v1", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, a := tr.Start(From(t.Context(), parent), "first", Server, "text", "é", "number", -7)
	_, b := tr.Start(ctx, "second", Internal)
	b.End(true)
	a.End(false)
	_, none := tr.Start(From(t.Context(), parent[:53]+"00"), "third", Server)
	none.End(false)
	_, root := tr.Start(t.Context(), "fourth", Consumer)
	root.End(false)
	tr.Close(t.Context())
	var got struct {
		ResourceSpans []struct {
			Resource   struct{ Attributes []any }
			ScopeSpans []struct {
				Spans []struct {
					TraceID, SpanID, ParentSpanID, Name, StartTimeUnixNano, EndTimeUnixNano string
					Kind                                                                    int
					Status                                                                  struct{ Code int }
				}
			}
		}
	}
	if len(c.bodies) != 1 || json.Unmarshal(c.bodies[0], &got) != nil || c.path != "/v1/traces" || c.header.Get("Api-Key") != "a b" ||
		c.header.Get("X") != "y" || c.header.Get("Content-Type") != "application/json" {
		t.Fatalf("%s %v %s", c.path, c.header, c.bodies)
	}
	spans := got.ResourceSpans[0].ScopeSpans[0].Spans
	if len(spans) != 3 || !bytes.Contains(c.bodies[0], []byte(`"stringValue":"ward"`)) || !bytes.Contains(c.bodies[0],
		[]byte(`"intValue":"-7"`)) {
		t.Fatalf("%s", c.bodies[0])
	}
	second, first, fourth := spans[0], spans[1], spans[2]
	if first.TraceID != parent[3:35] || first.ParentSpanID != parent[36:52] || second.TraceID != first.TraceID ||
		second.ParentSpanID != first.SpanID || second.Status.Code != 2 || first.Status.Code != 0 || first.Kind != Server ||
		fourth.ParentSpanID != "" || fourth.TraceID == first.TraceID || len(fourth.TraceID) != 32 ||
		first.EndTimeUnixNano < first.StartTimeUnixNano {
		t.Errorf("%+v", spans)
	}
}

// lines counts the lines of a log.
type lines struct{ warnings, infos atomic.Int64 }

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }
func (l *lines) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *lines) WithGroup(string) slog.Handler            { return l }
func (l *lines) Handle(_ context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		l.warnings.Add(1)
	} else {
		l.infos.Add(1)
	}
	return nil
}

// TestDeadCollector: spans beyond the bound are dropped, a collector that fails is one line of the log however often, and one that is back
// is another.
func TestDeadCollector(t *testing.T) {
	c := newCollector(t)
	var dead atomic.Bool
	dead.Store(true)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if dead.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		c.Config.Handler.ServeHTTP(w, r)
	}))
	defer front.Close()
	log := &lines{}
	// Without its goroutine, so that nothing depends on time.
	tr := &Tracer{url: front.URL, headers: http.Header{}, log: slog.New(log), client: front.Client(), wake: make(chan struct{}, 1)}
	end := func(n int) {
		for range n {
			_, s := tr.Start(t.Context(), "x", Internal)
			s.End(false)
		}
	}
	end(maxWaiting + 10)
	if len(tr.waiting) != maxWaiting || tr.lost != 10 {
		t.Fatalf("%d wait, %d are lost", len(tr.waiting), tr.lost)
	}
	for range 3 {
		if tr.export() {
			t.Error("more is sent to a collector that failed")
		}
	}
	if log.warnings.Load() != 1 || tr.lost != 10+3*maxExported {
		t.Errorf("%d warnings, %d lost", log.warnings.Load(), tr.lost)
	}
	dead.Store(false)
	if tr.export() || log.infos.Load() != 1 || tr.lost != 0 || len(c.bodies) != 1 || strings.Count(string(c.bodies[0]),
		"spanId") != maxExported {
		t.Errorf("%d lines, %d lost, %d bodies", log.infos.Load(), tr.lost, len(c.bodies))
	}
	end(1)
	if tr.export() || log.infos.Load() != 1 {
		t.Errorf("%d lines", log.infos.Load())
	}
}
