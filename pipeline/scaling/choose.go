// Package scaling calibrates the probabilities of a classifier by labelled images that took no part
// in making it: a temperature, or, where scores on images left out speak for it, factors and
// offsets of the classes, or a matrix ([models.Scaling]).
package scaling

import (
	"context"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"

	"fmp/models"
	"fmp/models/rng"
	"fmp/pipeline/metric"
)

// None is the kind of a [Trial] of the classifier as it is.
const None = "none"

// Kinds are the scalings that are tried, the plainest first.
var Kinds = []string{models.Temperature, models.Vector, models.Matrix}

const (
	// Folds is the number of parts into which images are dealt, class by class.
	Folds = 5
	// least is the number of images of each class from which its own parameters are tried: one a
	// part.
	least = Folds
	// Least is the number of images from which on a scaling is tried.
	Least = 2 * Folds
	// mostMixed is the number of classes up to which a matrix is tried: its numbers are their
	// square.
	mostMixed = 64
	// beyond is how many standard errors a richer kind must gain by over the plainer one.
	beyond = 2
)

// Trial is one kind of scaling, scored on images that it was not fitted to.
type Trial struct {
	Kind   string               `json:"kind"`
	Scores models.ScalingScores `json:"scores"`
	// Gain is the negative log-likelihood that the kind takes off the plainer one chosen before it,
	// an image's mean, with its standard error over images.
	Gain      float64 `json:"gain"`
	GainError float64 `json:"gain_error"`
	Chosen    bool    `json:"chosen,omitempty"`
	// Skipped says why the kind was not tried.
	Skipped string `json:"skipped,omitempty"`

	losses []float64
}

// Choose fits the given kinds of scaling to all parts of the images but one, in turn, and scores
// them there. A temperature is chosen where it lowers the negative log-likelihood, a richer kind
// where it does by two standard errors of the mean difference. The chosen scaling is then fitted to
// all images; it is nil where the classifier is better as it is. The first trial is the classifier
// as it is. While it fits, report is told again and again how many fits of how many of a kind are
// done.
func Choose(ctx context.Context, x *Images, kinds []string,
	report func(stage string, done, total int)) ([]Trial, *models.Scaling, error) {
	n := len(x.Labels)
	if n < Least {
		return nil, nil, fmt.Errorf("scaling: %d labelled images: want %d or more", n, Least)
	}
	now, err := x.trial(None, x.Stated)
	if err != nil {
		return nil, nil, err
	}
	trials, best := []Trial{now}, 0
	part := x.deal()
	for _, kind := range kinds {
		if why := x.skip(kind); why != "" {
			trials = append(trials, Trial{Kind: kind, Skipped: why})
			continue
		}
		p, err := x.cross(ctx, kind, part, report)
		if err != nil {
			return nil, nil, err
		}
		t, err := x.trial(kind, p)
		if err != nil {
			return nil, nil, err
		}
		gains := make([]float64, n)
		for i := range gains {
			gains[i] = trials[best].losses[i] - t.losses[i]
		}
		mean, sd := stat.MeanStdDev(gains, nil)
		t.Gain, t.GainError = mean, sd/math.Sqrt(float64(n))
		trials = append(trials, t)
		if t.Gain > beyond*t.GainError || kind == models.Temperature && t.Gain > 0 {
			best = len(trials) - 1
		}
	}
	if trials[best].Chosen = true; best == 0 {
		return trials, nil, nil
	}
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	stage := fmt.Sprintf("fit of the %s to all images", trials[best].Kind)
	s, err := x.fit(ctx, trials[best].Kind, all, func() { report(stage, 0, 1) })
	report(stage, 1, 1)
	return trials, &s, err
}

// skip says why a kind is not tried.
func (x *Images) skip(kind string) string {
	count := make([]int, x.C)
	for _, y := range x.Labels {
		count[y]++
	}
	if kind == models.Temperature {
		if slices.Max(count) == len(x.Labels) {
			return "all images are of one class, and they tell nothing of the others"
		}
		return ""
	}
	if fewest := slices.Min(count); fewest < least {
		return fmt.Sprintf("a class has %d images, and it wants %d of each", fewest, least)
	}
	if kind == models.Matrix && x.C > mostMixed {
		return fmt.Sprintf("it wants at most %d classes", mostMixed)
	}
	return ""
}

// deal returns the part of each image: those of each class are dealt in turn, in a drawn order.
func (x *Images) deal() []int {
	part, next := make([]int, len(x.Labels)), 0
	for c := range x.C {
		var of []int
		for i, y := range x.Labels {
			if y == c {
				of = append(of, i)
			}
		}
		for _, k := range rng.New(uint64(c), "scaling folds").Perm(len(of)) {
			part[of[k]] = next % Folds
			next++
		}
	}
	return part
}

// cross returns the probabilities [n, C] of each image by the scaling that the other parts' images
// make.
func (x *Images) cross(ctx context.Context, kind string, part []int,
	report func(stage string, done, total int)) ([]float64, error) {
	stage := fmt.Sprintf("fits of a %s", kind)
	p := make([]float64, len(x.Labels)*x.C)
	for f := range Folds {
		var of []int
		for i := range part {
			if part[i] != f {
				of = append(of, i)
			}
		}
		s, err := x.fit(ctx, kind, of, func() { report(stage, f, Folds) })
		if err != nil {
			return nil, err
		}
		for i := range part {
			if part[i] == f {
				x.Apply(&s, i, p[i*x.C:(i+1)*x.C])
			}
		}
	}
	report(stage, Folds, Folds)
	return p, nil
}

// trial scores probabilities [n, C].
func (x *Images) trial(kind string, p []float64) (Trial, error) {
	t := Trial{Kind: kind}
	scores, err := metric.Score(&metric.Probabilities{N: len(x.Labels), C: x.C, P: p}, x.Labels)
	if err != nil {
		return t, err
	}
	c := scores.Curve.Calibration()
	t.Scores = models.ScalingScores{NLL: scores.NLL, ECE: scores.ECE,
		Perfect: c.Perfect, Gap: c.Gap}
	for i, y := range x.Labels {
		t.losses = append(t.losses, -math.Log(math.Max(p[i*x.C+y], 1e-12)))
	}
	return t, nil
}
