package service

import (
	"errors"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"fmp/models"
	"fmp/onnx/engine"
	"fmp/pipeline/federate/store"
	"fmp/pipeline/federate/trace"
)

// Classifier serves one classifier without a round: predictions under the paths of a round's
// server, the classifier's file under /classifier.onnx, and metrics of predictions under /metrics.
// Where page is not nil, so is the page that classifies photographs, to which / leads. Predictions
// whose most probable class has less than reject are counted as left to people.
// The function that it returns closes the classifier. A classifier of feature rows is an error.
// The classifier is version 1 of the interfaces that name versions. No token is asked for.
// The bytes are held for downloads for as long as it serves. The handler is safe for concurrent
// requests.
func Classifier(eng engine.Engine, data []byte, page http.Handler, reject float64, log *slog.Logger,
	t *trace.Tracer) (http.Handler, func(), error) {
	p := newPredictor(eng, quietly(log), t)
	p.watch.reject = reject
	v := store.Version{Number: 1, Digest: models.DigestBytes(data), Bytes: len(data)}
	if err := p.serve(v, data, nil); err != nil {
		return nil, nil, err
	}
	if of := p.version(); of != nil && of.images.TakesRows() {
		p.close()
		return nil, nil, errors.New("it takes feature rows; served are classifiers of images, " +
			"as fmp pool makes them without --rows")
	}
	r := prometheus.NewRegistry()
	r.MustRegister(append(p.watch.collectors(), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))...)
	mux := http.NewServeMux()
	// Metrics count the requests of no round, and so the gauges of rounds are left out.
	for _, r := range append(p.routes(),
		route{"GET /metrics", false, promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP},
		route{"GET /classifier.onnx", false,
			func(w http.ResponseWriter, r *http.Request) { serveModel(w, r, v.Digest, data) }}) {
		mux.Handle(r.pattern, traced(t, r.pattern, p.stated(r)))
	}
	if page != nil {
		mux.Handle("GET /{$}", http.RedirectHandler("/page/predict.html", http.StatusSeeOther))
		mux.Handle("GET /page/", page)
	}
	return headers(mux), p.close, nil
}
