package protocols

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
)

// seen is a span as a collector has it.
type seen struct {
	name, service, trace, id, parent string
	attributes                       map[string]any
}

// collector takes spans as OpenTelemetry's collector does.
type collector struct {
	url   string
	mu    sync.Mutex
	spans []seen
}

func newCollector(t *testing.T) *collector {
	c := &collector{}
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		data, _ := io.ReadAll(r.Body)
		request := ptraceotlp.NewExportRequest()
		if err := request.UnmarshalProto(data); err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v: %s", r.URL.Path, err, data)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, of := range request.Traces().ResourceSpans().All() {
			service, _ := of.Resource().Attributes().Get("service.name")
			for _, scope := range of.ScopeSpans().All() {
				for _, s := range scope.Spans().All() {
					if s.EndTimestamp() < s.StartTimestamp() ||
						time.Since(s.StartTimestamp().AsTime()) > time.Hour {
						t.Errorf("%s from %v to %v", s.Name(), s.StartTimestamp(), s.EndTimestamp())
					}
					c.spans = append(c.spans,
						seen{s.Name(), service.Str(), s.TraceID().String(), s.SpanID().String(),
							s.ParentSpanID().String(), s.Attributes().AsRaw()})
				}
			}
		}
	}))
	t.Cleanup(srv.Close)
	c.url = srv.URL
	return c
}

// find waits for a span of a trace.
func (c *collector) find(t *testing.T, trace, service, name string) seen {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		c.mu.Lock()
		for _, s := range c.spans {
			if s.trace == trace && s.service == service && s.name == name {
				c.mu.Unlock()
				return s
			}
		}
		c.mu.Unlock()
	}
	t.Fatalf("no span %s of %s in trace %s: %v", name, service, trace, c.spans)
	return seen{}
}

// TestTrace: one trace reaches from a client's upload over the server and its queue to a worker, in
// the collector's own decoder, and nothing in it names the client.
func TestTrace(t *testing.T) {
	const token, trace = "a token of the test's own", "4bf92f3577b34da6a3ce929d0e0e4736"
	queue, err := natsserver.NewServer(&natsserver.Options{Host: "127.0.0.1", Port: -1,
		JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true, Authorization: token})
	if err != nil {
		t.Fatal(err)
	}
	queue.Start()
	t.Cleanup(queue.Shutdown)
	if !queue.ReadyForConnections(time.Minute) {
		t.Fatal("NATS did not start")
	}
	file := filepath.Join(t.TempDir(), "nats.token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newCollector(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.url)
	// The open form leaves its samples to workers; one posterior is made in one piece by the server.
	r := serving(t, "--scope", "open", "--workers", "--nats", queue.ClientURL(), "--nats-token-file", file)
	w := command(t, r.dir, "fmp", "worker", "--nats", queue.ClientURL(), "--nats-token-file", file,
		"--engine.name", "pure")
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Process.Kill(); _ = w.Wait() })
	t.Setenv("TRACEPARENT", "00-"+trace+"-00f067aa0ba902b7-01")
	r.join(t)
	upload := c.find(t, trace, "fmp serve", "PUT /v1/rounds/{round}/uploads/{client}")
	pool := c.find(t, trace, "fmp serve", "pool")
	job := c.find(t, trace, "fmp worker", "process fmp.jobs")
	if upload.parent == "" || pool.parent != upload.id || job.parent != pool.id {
		t.Errorf("upload %+v, pool %+v, job %+v", upload, pool, job)
	}
	if upload.attributes["http.response.status_code"] != int64(201) ||
		pool.attributes["fmp.uploads"] != int64(1) ||
		job.attributes["messaging.system"] != "nats" {
		t.Errorf("%v %v %v", upload.attributes, pool.attributes, job.attributes)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.spans {
		for k, v := range s.attributes {
			if text, ok := v.(string); ok &&
				(strings.Contains(text, "127.0.0.1") || strings.HasSuffix(text, "/a")) {
				t.Errorf("%s: %s is %q", s.name, k, text)
			}
		}
	}
}
