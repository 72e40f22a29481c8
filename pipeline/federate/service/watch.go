package service

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"fmp/models"
	"fmp/pipeline/classify"
	"fmp/pipeline/conformal"
)

const (
	// maxWatched bounds the classes that predictions are counted by; the others are counted as one.
	// Each class is a time series of its own in Prometheus.
	maxWatched = 100
	otherClass = "other"
)

// The references that images are held against: those that calibrated the classifier, and where it
// has none those since it was loaded.
const (
	ofCalibration = "calibration"
	sinceStart    = "start"
)

// watch counts the predictions of a server for Prometheus, and tests whether images are drawn like
// those that calibrated the classifier.
// The counters outlive a version, and drift is the version's own.
type watch struct {
	classes                                *prometheus.CounterVec
	confidence, entropy, disagreement, set prometheus.Histogram
	open                                   prometheus.Counter
	// predictions whose most probable class has less are open too
	reject float64

	mu sync.Mutex // guards each test of drift, and which of them is shown
	// drift is the test of the version that makes predictions.
	drift *conformal.Drift
}

// newWatch returns counters of no predictions, and a test of drift without a reference. Buckets of
// nats are .001 times powers of 2.5.
// The last bound is 0.001 · 2.5^9 = 3.8 nats, near the entropy of 45 equal classes.
func newWatch() *watch {
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help,
			Buckets: buckets})
	}
	nats := prometheus.ExponentialBuckets(0.001, 2.5, 10)
	w := &watch{drift: conformal.NewDrift(1, nil),
		classes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fmp_predictions_total",
			Help: "Predictions by their most probable class; classes after the first 100 are one."},
			[]string{"class"}),
		confidence: histogram("fmp_prediction_confidence", "Probability of the most "+
			"probable class.", []float64{.1, .2, .3, .4, .5, .6, .7, .8, .9, .95, .99, .999, 1}),
		entropy: histogram("fmp_prediction_entropy_nats", "Entropy of the probabilities.", nats),
		disagreement: histogram("fmp_prediction_disagreement_nats",
			"Disagreement of the heads (mutual information): large for new kinds of image.", nats),
		set: histogram("fmp_prediction_set_classes", "Classes in the prediction set.",
			[]float64{0, 1, 2, 3, 5, 10, 20, 50, 100}),
		open: prometheus.NewCounter(prometheus.CounterOpts{Name: "fmp_predictions_open_total",
			Help: "Predictions whose set has not one class alone, or that are less sure " +
				"than --reject: for people."}),
	}
	// The series exists from the start, so that a rate of it is 0 and not missing.
	w.classes.WithLabelValues(otherClass)
	return w
}

// collectors are the metrics.
func (w *watch) collectors() []prometheus.Collector {
	return []prometheus.Collector{w.classes, w.confidence, w.entropy, w.disagreement, w.set,
		w.open, drifting{w}}
}

// drifting collects the metrics of the test of drift, whose label is the reference that acts.
type drifting struct{ *watch }

func driftMetric(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, []string{"reference"}, nil)
}

var (
	driftImages = driftMetric("fmp_drift_images",
		"Images since the classifier was loaded, which the test of drift has seen.")
	driftBefore = driftMetric("fmp_drift_reference_images",
		"Images that calibrated the classifier, which the test of drift holds images "+
			"against; 0 where it has none.")
	driftWealth = driftMetric("fmp_drift_wealth_decades",
		"Decimal logarithm of the wealth of the test of drift.")
	driftHighest = driftMetric("fmp_drift_wealth_decades_highest",
		"The highest of it since the classifier was loaded: 2 is evidence of drift at a "+
			"level of .01.")
)

// Describe is [prometheus.Collector].
// The registry calls it once, to find names that collide.
func (d drifting) Describe(to chan<- *prometheus.Desc) {
	for _, m := range []*prometheus.Desc{driftImages, driftBefore, driftWealth, driftHighest} {
		to <- m
	}
}

// Collect is [prometheus.Collector].
// All four numbers are read under one lock, and so belong to one moment.
func (d drifting) Collect(to chan<- prometheus.Metric) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now, highest := d.drift.Wealth()
	reference := sinceStart
	if d.drift.Reference() > 0 {
		reference = ofCalibration
	}
	for m, v := range map[*prometheus.Desc]float64{driftImages: float64(d.drift.Images()),
		driftBefore: float64(d.drift.Reference()), driftWealth: now, driftHighest: highest} {
		to <- prometheus.MustNewConstMetric(m, prometheus.GaugeValue, v, reference)
	}
}

// newDrift returns the test of drift of a classifier, against the images that calibrated its sets.
// They took no part in making it, and their scores are in it already.
// It holds probabilities alone, and no image.
func newDrift(f models.Manifest) (*conformal.Drift, error) {
	o, err := models.ReadOrigin(f)
	if err != nil {
		return nil, err
	}
	var reference []float32
	if o.Sets != nil {
		reference = o.Sets.Top
	}
	return conformal.NewDrift(1, reference), nil
}

// show makes a test of drift the one that the metrics tell of. Counts and histograms go on, as
// Prometheus has them of a process and not of a classifier.
// A test of drift goes on with its version, also while another's is shown.
func (w *watch) show(drift *conformal.Drift) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drift = drift
}

// add counts predictions, whose images the test of drift of their version sees.
// A prediction is open where its set has not one class, or its most probable class has less than
// reject. One lock orders the images, which the test of drift takes one by one.
// Lengths of sets count classes, and confidence is the probability as it is stated. The cost is
// O(classes) an image, under the lock.
func (w *watch) add(v *served, c *classify.Classifier, ps []classify.Prediction) {
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
		v.drift.Add(float64(slices.Max(p.Scored))) // as the calibration's
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
