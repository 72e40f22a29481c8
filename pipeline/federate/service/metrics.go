package service

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/attribute"

	"fmp/pipeline/federate/trace"
	"fmp/pipeline/privacy"
)

// metrics are the server's Prometheus metrics.
// Handlers add to counters and histograms without the server's lock: the client library's own
// operations are safe for concurrent use.
type metrics struct {
	handler  http.Handler
	taken    prometheus.Counter
	refused  *prometheus.CounterVec // by the code of the refusal
	failed   prometheus.Counter
	pooled   prometheus.Histogram     // buckets from 10 ms to 11 min
	requests *prometheus.HistogramVec // by route and status; buckets from half a ms to 12 s
}

// Gauges are read from the server under its lock at each scrape, so that they need no upkeep. No
// label is a client's name or address.
// The registry is the server's own, so that several servers fit into one process.
func newMetrics(s *Server) *metrics {
	r := prometheus.NewRegistry()
	m := &metrics{
		taken: prometheus.NewCounter(prometheus.CounterOpts{Name: "fmp_uploads_taken_total",
			Help: "Uploads taken since the start, replacements included."}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fmp_requests_refused_total",
			Help: "Requests refused since the start, by reason."}, []string{"code"}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{Name: "fmp_pooling_failed_total",
			Help: "Poolings that failed."}),
		pooled: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "fmp_pooling_seconds",
			Help:    "Time to make a version of the classifier.",
			Buckets: prometheus.ExponentialBuckets(0.01, 4, 9)}),
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "fmp_request_seconds",
			Help:    "Time to answer a request.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2.5, 12)}, []string{"route", "status"}),
	}
	// of is called under s.mu, and so takes no lock of the server's itself.
	count := func(name, help string, of func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
			func() float64 {
				s.mu.Lock()
				defer s.mu.Unlock()
				return float64(of())
			})
	}
	r.MustRegister(m.taken, m.refused, m.failed, m.pooled, m.requests,
		count("fmp_uploads_in", "Uploads that are in.", func() int { return len(s.in) }),
		count("fmp_clients", "Clients of the roster.",
			func() int { return s.clients.Load().Len() }),
		count("fmp_clients_refused", "Clients with an upload in quarantine.",
			func() int { return len(s.refused) }),
		count("fmp_versions", "Versions of the classifier.", func() int { return len(s.versions) }),
		count("fmp_version_unserved",
			"1 while the latest version makes no predictions, as the engine does not run it.",
			func() int { return one(s.unserved != "") }),
		count("fmp_withdrawals", "Clients that withdrew their uploads.",
			func() int { return len(s.gone) }),
		count("fmp_versions_superseded", "Versions that hold an upload that was withdrawn.",
			func() int { return len(s.void) }),
		count("fmp_superseded_latest",
			"1 while no version has taken the place of one that holds a withdrawn upload.",
			func() int { return one(s.stale()) }),
		count("fmp_erasure_pending",
			"1 while bytes of withdrawn or replaced uploads are still to be erased from the state, "+
				"or withdrawals to be recorded.",
			func() int { return one(s.owes()) }),
		count("fmp_state_free_bytes",
			"Free bytes on the disk of the state; -1 where the system or an external store "+
				"does not tell.", func() int { return int(s.Store.Space().Free) }),
		count("fmp_state_low", "1 while the disk of the state is low on space.",
			func() int { return one(s.Store.Space().Low) }),
		count("fmp_state_full", "1 while the disk of the state is full, and uploads are refused.",
			func() int { return one(s.Store.Space().Full) }), privacyGauge(s.Round.Privacy),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	r.MustRegister(s.predictions.watch.collectors()...)
	m.handler = promhttp.HandlerFor(r, promhttp.HandlerOpts{})
	return m
}

// one is 1 of true and 0 of false, as gauges have them.
func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// privacyGauge returns a gauge of the round's epsilon, with the rest of the budget as labels.
// A round that is not private has the value 0 and no labels.
// The budget is settled before the round begins, so that the value is set once.
func privacyGauge(b *privacy.Budget) prometheus.Collector {
	o := prometheus.GaugeOpts{Name: "fmp_round_epsilon",
		Help: "Epsilon of a private round; 0 where the round is not private."}
	var epsilon float64
	if b != nil {
		epsilon = b.Epsilon
		o.ConstLabels = prometheus.Labels{"delta": strconv.FormatFloat(b.Delta, 'g', -1, 64),
			"unit": b.Unit, "relation": b.Relation, "noise": b.Noise}
	}
	g := prometheus.NewGauge(o)
	g.Set(epsilon)
	return g
}

// observe measures the duration of a route's requests.
// The label is the pattern of the route, and not the path, which callers choose.
// A pattern has few values, so that the number of time series is bounded however many paths
// callers try.
func (s *Server) observe(pattern string, next http.HandlerFunc) http.Handler {
	return traced(s.Tracer, pattern, func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		next(w, r)
		s.metrics.requests.WithLabelValues(pattern,
			strconv.Itoa(w.(*watched).status)).Observe(time.Since(start).Seconds())
	})
}

// traced records a span of each request of a route, below that of the caller. Probes and scrapes
// have none.
// A status of 500 or above ends the span as an error.
// The caller's span comes in the header that trace.Header names. Without a tracer requests are
// served all the same, with their status recorded.
func traced(t *trace.Tracer, pattern string, next http.HandlerFunc) http.Handler {
	method, path, _ := strings.Cut(pattern, " ")
	probe := slices.Contains([]string{"/healthz", "/readyz", "/metrics", "/v2/health/live",
		"/v2/health/ready"}, path)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen := &watched{ResponseWriter: w, status: http.StatusOK}
		if t == nil || probe {
			next(seen, r)
			return
		}
		ctx, span := t.Start(trace.From(r.Context(), r.Header.Get(trace.Header)),
			pattern, trace.Server, attribute.String("http.request.method", method),
			attribute.String("http.route", path))
		next(seen, r.WithContext(ctx))
		span.SetAttributes(attribute.Int("http.response.status_code", seen.status))
		trace.End(span, seen.status >= http.StatusInternalServerError)
	})
}

// watched records the status of a reply.
type watched struct {
	http.ResponseWriter
	status int // 200 until a handler writes one, as of net/http
}

// WriteHeader keeps the last status, which is the final one where informational ones come before
// it.
func (w *watched) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Flush lets gRPC write headers before trailers.
func (w *watched) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Unwrap lets http.ResponseController reach the connection.
func (w *watched) Unwrap() http.ResponseWriter { return w.ResponseWriter }
