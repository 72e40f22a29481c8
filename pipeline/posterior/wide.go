package posterior

import (
	"context"
	"slices"

	"fmp/models"
	"fmp/pipeline/open"
	"fmp/pipeline/point"
	"fmp/pipeline/sample"
)

// A round of many classes and coordinates is wide: its latents are in steps of one byte
// (models.NewWideClassifier), and its samples are all given the clients that are more likely honest
// than not.

// isWide reports whether a predictor's samples make a wide classifier, by their number.
func isWide(k Conjugate, samples int) bool {
	if f, ok := k.(*Form); ok {
		k = f.Conjugate
	}
	w, ok := k.(interface{ Wide(samples int) bool })
	return ok && w.Wide(samples)
}

// whole returns the class means of the union of sets.
func whole(sets []*point.Set) *point.Set { return open.Means(sets...).Set() }

// likely returns, for each sample, the clients that are more likely honest than not.
func likely(j *Judgement, samples int) [][]bool {
	z := make([]bool, len(j.Honest))
	for m, p := range j.Honest {
		z[m] = p >= 0.5
	}
	return slices.Repeat([][]bool{z}, samples)
}

// Wide returns the parts of a wide classifier; nil where the round is not wide.
func (k *conjugateIntervals) Wide(ctx context.Context) (*models.WideParts, error) {
	p, ok := k.predictor.(interface {
		WideParts(ctx context.Context, d sample.Drawn, level float64) (*models.WideParts, error)
	})
	if !ok || !isWide(k.predictor, len(k.drawn.Uniform)) {
		return nil, nil
	}
	return p.WideParts(ctx, k.drawn, IntervalLevel)
}
