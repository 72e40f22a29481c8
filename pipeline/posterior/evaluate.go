package posterior

import (
	"context"
	"fmt"

	"fmp/pipeline/metric"
)

// Evaluate scores a result on labelled features (n x dx, row-major): the scores of its ensemble, or the mean of
// the scores of its ensembles.
func Evaluate(ctx context.Context, r *Result, features []float32, labels []int, threads int) (metric.Scores, error) {
	rows, err := r.Rows(ctx, features)
	if err != nil {
		return metric.Scores{}, err
	}
	all := make([]metric.Scores, 0, len(r.Ensembles))
	for i, e := range r.Ensembles {
		p, err := metric.Predict(ctx, e, rows, threads)
		if err != nil {
			return metric.Scores{}, fmt.Errorf("ensemble %d: %w", i, err)
		}
		s, err := metric.Score(p, labels)
		if err != nil {
			return metric.Scores{}, fmt.Errorf("ensemble %d: %w", i, err)
		}
		all = append(all, s)
	}
	return metric.Mean(all)
}
