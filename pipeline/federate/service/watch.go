package service

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"fmp/pipeline/classify"
	"fmp/pipeline/conformal"
)

const (
	// maxWatched bounds the classes that predictions are counted by; the others are counted as one.
	maxWatched = 100
	otherClass = "other"
)

// watch counts the predictions of a server for Prometheus, and tests whether the images are alike since the classifier was loaded.
type watch struct {
	classes                                *prometheus.CounterVec
	confidence, entropy, disagreement, set prometheus.Histogram
	open                                   prometheus.Counter
	reject                                 float64 // predictions whose most probable class has less are open too

	mu    sync.Mutex
	drift *conformal.Drift
}

func newWatch() *watch {
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
	}
	nats := prometheus.ExponentialBuckets(0.001, 2.5, 10)
	w := &watch{drift: conformal.NewDrift(1),
		classes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fmp_predictions_total",
			Help: "Predictions by their most probable class; classes after the first 100 are one."}, []string{"class"}),
		confidence: histogram("fmp_prediction_confidence", "Probability of the most probable class.",
			[]float64{.1, .2, .3, .4, .5, .6, .7, .8, .9, .95, .99, .999, 1}),
		entropy: histogram("fmp_prediction_entropy_nats", "Entropy of the probabilities.", nats),
		disagreement: histogram("fmp_prediction_disagreement_nats", "Disagreement of the heads (mutual information): large for new "+
			"kinds of image.", nats),
		set: histogram("fmp_prediction_set_classes", "Classes in the prediction set.", []float64{0, 1, 2, 3, 5, 10, 20, 50, 100}),
		open: prometheus.NewCounter(prometheus.CounterOpts{Name: "fmp_predictions_open_total",
			Help: "Predictions whose set has not one class alone, or that are less sure than --reject: for people."}),
	}
	w.classes.WithLabelValues(otherClass)
	return w
}

// collectors are the metrics.
func (w *watch) collectors() []prometheus.Collector {
	drift := func(name, help string, of func(d *conformal.Drift) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			w.mu.Lock()
			defer w.mu.Unlock()
			return of(w.drift)
		})
	}
	return []prometheus.Collector{w.classes, w.confidence, w.entropy, w.disagreement, w.set, w.open,
		drift("fmp_drift_images", "Images since the classifier was loaded, which the test of drift has seen.",
			func(d *conformal.Drift) float64 { return float64(d.Images()) }),
		drift("fmp_drift_wealth_decades", "Decimal logarithm of the wealth of the test of drift.",
			func(d *conformal.Drift) float64 { now, _ := d.Wealth(); return now }),
		drift("fmp_drift_wealth_decades_highest", "The highest of it since the classifier was loaded: 2 is evidence of drift at a level of .01.",
			func(d *conformal.Drift) float64 { _, highest := d.Wealth(); return highest })}
}

// restart begins the test of drift anew, with another classifier.
func (w *watch) restart() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drift = conformal.NewDrift(1)
}

// add counts predictions.
func (w *watch) add(c *classify.Classifier, ps []classify.Prediction) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range ps {
		p := &ps[i]
		first, _ := p.Top()
		name := otherClass
		if first < maxWatched {
			name = c.Class(first)
		}
		w.classes.WithLabelValues(name).Inc()
		confidence := float64(p.Probabilities[first])
		w.confidence.Observe(confidence)
		w.entropy.Observe(float64(p.Entropy))
		w.disagreement.Observe(float64(p.MutualInformation))
		w.drift.Add(confidence)
		open := confidence < w.reject
		if p.Set != nil {
			n := 0
			for _, in := range p.Set {
				if in {
					n++
				}
			}
			w.set.Observe(float64(n))
			open = open || n != 1
		}
		if open {
			w.open.Inc()
		}
	}
}
