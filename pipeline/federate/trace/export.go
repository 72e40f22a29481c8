package trace

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Bounds of the spans that wait for the collector, those of OpenTelemetry's batch processor.
const (
	maxWaiting  = 2048
	maxExported = 512
	every       = 5 * time.Second
	timeout     = 10 * time.Second
)

// Tracer sends ended spans to a collector, in the background. A nil tracer records nothing; all methods take it.
type Tracer struct {
	url     string
	headers http.Header
	service string
	version string
	log     *slog.Logger
	client  *http.Client

	mu      sync.Mutex
	waiting []*Span
	lost    int  // since the last export that succeeded
	failing bool // and it has been logged
	wake    chan struct{}
	stop    chan struct{}
	done    chan struct{}
	close   sync.Once
}

// New returns the tracer that the variables of OpenTelemetry ask for, nil where they name no collector: the endpoint is
// OTEL_EXPORTER_OTLP_TRACES_ENDPOINT as it is, or OTEL_EXPORTER_OTLP_ENDPOINT with /v1/traces; OTEL_EXPORTER_OTLP_TRACES_HEADERS or
// OTEL_EXPORTER_OTLP_HEADERS are added to requests; OTEL_SERVICE_NAME replaces service; OTEL_SDK_DISABLED=true turns it off.
func New(getenv func(string) string, service, version string, log *slog.Logger) (*Tracer, error) {
	address := getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	if base := getenv("OTEL_EXPORTER_OTLP_ENDPOINT"); address == "" && base != "" {
		address = strings.TrimSuffix(base, "/") + "/v1/traces"
	}
	if address == "" || strings.EqualFold(getenv("OTEL_SDK_DISABLED"), "true") {
		return nil, nil
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, fmt.Errorf("traces: the endpoint of OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is no http:// or " +
			"https:// address; set it to that of a collector that takes OTLP over HTTP, such as http://127.0.0.1:4318")
	}
	t := &Tracer{url: address, headers: http.Header{"Content-Type": {"application/json"}}, service: service, version: version, log: log,
		client: &http.Client{Timeout: timeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		wake:   make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	if name := getenv("OTEL_SERVICE_NAME"); name != "" {
		t.service = name
	}
	extra := getenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS")
	if extra == "" {
		extra = getenv("OTEL_EXPORTER_OTLP_HEADERS")
	}
	for _, pair := range strings.Split(extra, ",") {
		k, v, ok := strings.Cut(pair, "=")
		if v, err := url.PathUnescape(strings.TrimSpace(v)); ok && err == nil {
			t.headers.Set(strings.TrimSpace(k), v)
		}
	}
	log.Info("traces are sent", "host", u.Host)
	go t.run()
	return t, nil
}

// queue adds an ended span to those that wait; where too many do it is lost.
func (t *Tracer) queue(s *Span) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.waiting) >= maxWaiting {
		t.lost++
		return
	}
	t.waiting = append(t.waiting, s)
	if len(t.waiting) >= maxExported {
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}
}

// run exports until Close.
func (t *Tracer) run() {
	defer close(t.done)
	for last := false; !last; {
		select {
		case <-t.stop:
			last = true
		case <-t.wake:
		case <-time.After(every):
		}
		for t.export() {
		}
	}
}

// export sends the spans that have waited longest, and reports whether there may be more.
func (t *Tracer) export() bool {
	t.mu.Lock()
	n := min(len(t.waiting), maxExported)
	spans := t.waiting[:n]
	t.waiting = t.waiting[n:]
	t.mu.Unlock()
	if n == 0 {
		return false
	}
	err := t.send(spans)
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.lost += n // they are not sent again
		if !t.failing {
			t.log.Warn("the collector of traces does not take them; they are dropped until it does", "error", err)
		}
		t.failing = true
		return false
	}
	if t.lost > 0 {
		t.log.Info("traces are sent again", "spans_lost", t.lost)
	}
	t.lost, t.failing = 0, false
	return len(t.waiting) > 0
}

// send posts spans to the collector.
func (t *Tracer) send(spans []*Span) error {
	data, err := t.encode(spans)
	if err != nil {
		return err
	}
	req, err := http.NewRequest(http.MethodPost, t.url, bytes.NewReader(data))
	if err != nil {
		return err
	}
	req.Header = t.headers
	resp, err := t.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection is used again
	if resp.StatusCode >= 300 {
		return fmt.Errorf("it answered %s", resp.Status)
	}
	return nil
}

// Close sends the spans that wait, for as long as the context lasts.
func (t *Tracer) Close(ctx context.Context) {
	if t == nil {
		return
	}
	t.close.Do(func() { close(t.stop) })
	select {
	case <-t.done:
	case <-ctx.Done():
	}
}

// object is a JSON object of OTLP.
type object map[string]any

func pair(key string, value any) object {
	if n, ok := value.(int); ok {
		return object{"key": key, "value": object{"intValue": strconv.Itoa(n)}}
	}
	return object{"key": key, "value": object{"stringValue": value}}
}

// encode returns spans as ExportTraceServiceRequest in OTLP's JSON.
func (t *Tracer) encode(spans []*Span) ([]byte, error) {
	var list []object
	for _, s := range spans {
		attributes := []object{}
		for _, a := range s.attributes {
			attributes = append(attributes, pair(a.key, a.value))
		}
		o := object{"traceId": s.trace, "spanId": s.id, "name": s.name, "kind": s.kind, "attributes": attributes,
			"startTimeUnixNano": strconv.FormatInt(s.start.UnixNano(), 10), "endTimeUnixNano": strconv.FormatInt(s.end.UnixNano(), 10)}
		if s.parent != "" {
			o["parentSpanId"] = s.parent
		}
		if s.failed {
			o["status"] = object{"code": 2}
		}
		list = append(list, o)
	}
	return json.Marshal(object{"resourceSpans": []object{{
		"resource":   object{"attributes": []object{pair("service.name", t.service), pair("service.version", t.version)}},
		"scopeSpans": []object{{"scope": object{"name": "fmp"}, "spans": list}}}}})
}
