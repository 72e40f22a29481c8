// Package coverage measures prediction sets with a guarantee: how often they hold the class of new
// images of the clients, of each class, and of images whose classes all have one share, and how
// large they are. The calibration points are images of the clients that take no part in the
// classifier. Beside FMP's are the sets of a softmax regression on all other images of all clients,
// from the same points.
package coverage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"fmp/models/rng"
	"fmp/onnx/dense"
	"fmp/pipeline/conformal"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/lab/rival"
	"fmp/pipeline/metric"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
)

// Options are the settings of a measurement.
type Options struct {
	experiment.Rounds       // calibration points are among the images of a client
	Calibrate         []int // calibration points a client
	Level             float64
}

// Kinds of sets: of the clients' mixture, of each class, and for equal shares of the classes.
const (
	Mixture = "mixture"
	ByClass = "by class"
	Equal   = "equal shares"
)

// randomised is the adaptive score of Romano, Sesia and Candès (2020): 1 less the sum of the
// probabilities above the class's, and less a share u of its own, with u uniform on (0, 1) for each
// image. Any score that is a function of an image and of numbers drawn for it alone keeps the
// theorems of sets. It is measured and not offered: a classifier.onnx would need a u that its
// runtime computes of an image alike on every machine, and that the server draws alike for
// calibration points, of which it has features alone.
const randomised conformal.Score = "adaptive, randomised"

// Scores are those that are measured.
var Scores = append(slices.Clone(conformal.Scores), randomised)

// scores returns the score k of every class of an image with probabilities p, and u.
func scores(k conformal.Score, p []float32, u float32) []float32 {
	if k != randomised {
		return k.Compute(p)
	}
	out := conformal.Adaptive.Compute(p)
	for c, v := range p {
		out[c] += (1 - u) * v
	}
	return out
}

// Row holds the measures of one kind of sets, from a number of calibration points of each client.
type Row struct {
	Calibrate int             `json:"calibrate"`
	Sets      string          `json:"sets"`
	Score     conformal.Score `json:"score"`
	FMP       Measure         `json:"fmp"`
	// Regression is a softmax regression on all raw images, whose penalty and temperature have the
	// smallest sets of this row on the test images.
	Regression Measure `json:"regression"`
}

// Measure is the coverage and size of sets, means over the repeats in which the points prove the
// level.
type Measure struct {
	// Held is the share of the mixture's images whose set holds their class.
	Held      float64   `json:"held"`
	HeldError float64   `json:"held_error"` // its standard error
	Equal     float64   `json:"equal"`      // the same where all classes have one share
	Classes   []float64 `json:"classes"`    // the same by class
	Size      float64   `json:"size"`       // mean number of classes in a set, of the mixture
	Repeats   int       `json:"repeats"`
	// Alike is Held on images that are drawn as the points are, those that no client has, over the
	// repeats that have enough of each class; Held is on the data set's own test images.
	Alike        float64 `json:"alike,omitempty"`
	AlikeRepeats int     `json:"alike_repeats,omitempty"`
	squares      float64
}

// minAlike is the least number of images of each class that no client has for a repeat to count in
// Alike.
const minAlike = 20

// addAlike adds the outcome on images that no client has.
func (m *Measure) addAlike(o outcome, shares []float64) {
	for c, share := range shares {
		if o.of[c] < minAlike && share > 0 {
			return
		}
	}
	m.Alike = (m.Alike*float64(m.AlikeRepeats) + floats.Dot(shares, o.held)) /
		float64(m.AlikeRepeats+1)
	m.AlikeRepeats++
}

// add adds a repeat's outcome to the running means. shares are the classes' in the mixture. A mean
// m of n values becomes (n m + v)/(n + 1).
func (m *Measure) add(o outcome, shares []float64) {
	if m.Classes == nil {
		m.Classes = make([]float64, len(shares))
	}
	n := float64(m.Repeats)
	m.Repeats++
	mean := func(to *float64, v float64) { *to = (*to*n + v) / (n + 1) }
	for c, v := range o.held {
		mean(&m.Classes[c], v)
	}
	held := floats.Dot(shares, o.held)
	mean(&m.Held, held)
	mean(&m.squares, held*held)
	mean(&m.Equal, stat.Mean(o.held, nil))
	mean(&m.Size, floats.Dot(shares, o.size))
	// With the variance v of denominator N = n + 1 the standard error of a mean is sqrt(v / (N-1)).
	if n > 0 {
		m.HeldError = math.Sqrt(max(m.squares-m.Held*m.Held, 0) / n)
	}
}

// images are features of images, their classes, and a number between 0 and 1 of each.
type images struct {
	features []float32
	labels   []int
	u        []float32
}

// drawn returns images with their numbers, drawn from a stream of that name.
func (b *bench) drawn(features []float32, labels []int, name string, repeat int) images {
	r := rng.New(b.Seed, "coverage", name, repeat)
	x := images{features, labels, make([]float32, len(labels))}
	for i := range x.u {
		x.u[i] = float32(r.Float64())
	}
	return x
}

// outcome is the share held and the mean size of sets on the images of each class, and their
// number.
type outcome struct{ held, size, of []float64 }

// bench is a measurement at work. Rows are in the order of numbers of points, kinds and scores.
type bench struct {
	Options
	p    *experiment.Prepared
	rows []Row
}

// Run measures sets over repeats of a round. A row says in how many of them the points prove the
// level.
func Run(ctx context.Context, p *experiment.Prepared, o Options) ([]Row, error) {
	if err := cmp.Or(needed(p), scored(p.Data.TestLabels, p.Manifest.Classes)); err != nil {
		return nil, err
	}
	b := &bench{Options: o, p: p}
	for _, each := range o.Calibrate {
		for _, sets := range []string{Mixture, ByClass, Equal} {
			for _, score := range Scores {
				b.rows = append(b.rows, Row{Calibrate: each, Sets: sets, Score: score})
			}
		}
	}
	for repeat := range o.Repeats {
		for k := range o.Calibrate {
			if err := b.round(ctx, repeat, k); err != nil {
				return nil, err
			}
			o.Report("rounds", repeat*len(o.Calibrate)+k+1, o.Repeats*len(o.Calibrate))
		}
	}
	return b.rows, nil
}

// round draws a round and scores its sets, from the k-th number of calibration points. Sets of FMP
// and of the regression are from the same points. A row whose points prove no sets counts in
// neither.
func (b *bench) round(ctx context.Context, repeat, k int) error {
	bank, each := b.p.Data.Clients, b.Calibrate[k]
	drawn, err := bank.Partition(rng.New(b.Seed, "coverage", repeat), b.Clients, b.Points, b.Alpha)
	if err != nil {
		return err
	}
	shares := make([]float64, bank.C)
	var clients []*point.Set
	var chosen, left []int // calibration points, and rows of no client
	taken := make([]bool, bank.Len())
	for _, own := range drawn {
		for _, i := range own {
			// The mixture weighs clients alike, as all have as many images.
			shares[bank.Labels[i]] += 1 / float64(b.Clients*b.Points)
			taken[i] = true
		}
		chosen = append(chosen, own[:each]...) // the partition draws a client's rows one by one
		clients = append(clients, bank.Points(own[each:], nil))
	}
	for i := range bank.Len() {
		if !taken[i] {
			left = append(left, i)
		}
	}
	stream := fmt.Sprint("coverage/", repeat)
	r, err := b.sampled(ctx, b.p, clients, stream)
	if err != nil {
		return err
	}
	x, y := bank.Points(chosen, nil).Labelled()
	points := b.drawn(x, y, "points", repeat)
	x, y = bank.Points(left, nil).Labelled()
	rest := b.drawn(x, y, "rest", repeat)
	test := b.drawn(b.p.Data.Test, b.p.Data.TestLabels, "test", repeat)
	mine, err := b.sets(ctx, r, 1, points, test)
	if err != nil {
		return err
	}
	alike, err := b.sets(ctx, r, 1, points, rest)
	if err != nil {
		return err
	}
	best, err := b.regression(ctx, clients, stream, points, test, shares)
	if err != nil {
		return err
	}
	for i, o := range mine {
		row := &b.rows[k*len(mine)+i]
		if o.held != nil {
			row.FMP.add(o, shares)
			row.FMP.addAlike(alike[i], shares)
			row.Regression.add(best[i], shares)
		}
	}
	return nil
}

// sampled returns FMP's posterior of the clients' class means.
func (o *Options) sampled(ctx context.Context, p *experiment.Prepared, clients []*point.Set,
	stream string) (*posterior.Result, error) {
	means, err := p.Tools.Conjugate.Compress(ctx, clients)
	if err != nil {
		return nil, err
	}
	fmp, err := posterior.New(posterior.Input{Conjugate: p.Tools.Conjugate, ClassMeans: means,
		Named: true, Samples: o.Samples, Honesty: true, Seed: o.Seed, Stream: stream,
		Threads: o.Threads})
	if err != nil {
		return nil, err
	}
	return fmp.Sample(ctx)
}

// predicted returns the probabilities that heads in a result's coordinates state of features.
func (o *Options) predicted(ctx context.Context, r *posterior.Result, heads posterior.Ensemble,
	features []float32) ([][]float32, error) {
	x, err := r.Rows(ctx, slices.Clone(features))
	if err != nil {
		return nil, err
	}
	p, err := metric.Predict(ctx, heads, x, o.Threads)
	if err != nil {
		return nil, err
	}
	out := make([][]float32, p.N)
	for i := range out {
		out[i] = dense.As[float32](p.Row(i))
	}
	return out, nil
}

// needed returns an error where a run lacks FMP's predictor.
func needed(p *experiment.Prepared) error {
	if p.Tools.Conjugate == nil {
		return errors.New("coverage: no conjugate predictor for this data set; fmp train " +
			"conjugate makes one")
	}
	return nil
}

// scored returns an error where a class has no test image: no figure over classes holds without it.
func scored(labels []int, classes []string) error {
	for c, name := range classes {
		if !slices.Contains(labels, c) {
			return fmt.Errorf("coverage: class %s: none of the %d test images is of it; take more "+
				"of them (dataset.test), or classes that have some (dataset.classes)", name,
				len(labels))
		}
	}
	return nil
}

// regression returns the sets of a softmax regression on all images of the clients, those of least
// size over penalties and temperatures. A fit is made for each of three penalties, and scored at
// seven temperatures.
func (b *bench) regression(ctx context.Context, clients []*point.Set, stream string, points,
	test images, shares []float64) ([]outcome, error) {
	m, err := rival.Lookup("ANN")
	if err != nil {
		return nil, err
	}
	t, err := rival.NewTask(rival.Input{Clients: clients, Seed: b.Seed, Stream: stream,
		Threads: b.Threads})
	if err != nil {
		return nil, err
	}
	var best []outcome
	for _, l2 := range []float64{0.3, 3, 30} {
		s := rival.DefaultSettings()
		s.L2 = l2
		r, err := m.Run(ctx, t, s)
		if err != nil {
			return nil, err
		}
		for _, temperature := range []float64{0.25, 0.35, 0.5, 0.7, 1, 1.4, 2} {
			got, err := b.sets(ctx, r, temperature, points, test)
			if err != nil {
				return nil, err
			}
			if best == nil {
				best = got
			}
			for i, o := range got {
				if o.held != nil && floats.Dot(shares, o.size) < floats.Dot(shares, best[i].size) {
					best[i] = o
				}
			}
		}
	}
	return best, nil
}

// sets returns the outcomes of all kinds of sets of a result, in the order of the rows; those
// without held prove no sets. Heads are divided by the temperature.
func (b *bench) sets(ctx context.Context, r *posterior.Result, temperature float64, calibration,
	on images) ([]outcome, error) {
	heads := rival.Cooled(r, temperature).Ensembles[0]
	stated, err := b.predicted(ctx, r, heads, calibration.features)
	if err != nil {
		return nil, err
	}
	var points conformal.Points
	for i, p := range stated {
		if err := points.Add(p, calibration.labels[i]); err != nil {
			return nil, err
		}
		// Points.Add knows the product's scores alone.
		own := scores(randomised, p, calibration.u[i])[calibration.labels[i]]
		points.True[randomised] = append(points.True[randomised], own)
	}
	if stated, err = b.predicted(ctx, r, heads, on.features); err != nil {
		return nil, err
	}
	classes := b.p.Data.Clients.C
	equal, err := conformal.Shares("equal", nil, classes)
	if err != nil {
		return nil, err
	}
	var out []outcome
	of := map[conformal.Score][][]float32{}
	for _, k := range Scores {
		for i, p := range stated {
			of[k] = append(of[k], scores(k, p, on.u[i]))
		}
	}
	for _, d := range []conformal.Design{{Clients: true}, {Clients: true, ByClass: true},
		{Clients: true, Proportions: equal}} {
		for _, k := range Scores {
			var o outcome
			// Points that prove no such sets are no error.
			if sets, err := points.Sets(d, b.Level, k, classes); err == nil {
				o = count(stated, of[k], on.labels, sets.Thresholds, classes)
			}
			out = append(out, o)
		}
	}
	return out, nil
}

// count returns the outcome of sets of the given thresholds on images, by their stated
// probabilities and the scores of these. Thresholds are one for all classes or one for each. A
// class of the largest probability is in every set, as in a classifier's.
func count(stated, scores [][]float32, labels []int, thresholds []float32, classes int) outcome {
	o := outcome{make([]float64, classes), make([]float64, classes), make([]float64, classes)}
	for i, p := range stated {
		y, top := labels[i], slices.Max(p)
		o.of[y]++
		for c, v := range scores[i] {
			if v >= thresholds[min(c, len(thresholds)-1)] || p[c] == top {
				o.size[y]++
				if c == y {
					o.held[y]++
				}
			}
		}
	}
	for c, n := range o.of {
		o.held[c], o.size[c] = o.held[c]/max(n, 1), o.size[c]/max(n, 1)
	}
	return o
}
