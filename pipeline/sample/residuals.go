package sample

import (
	"context"
	"slices"

	"gonum.org/v1/gonum/floats"

	"fmp/pipeline/erm"
)

// minHalf keeps residuals finite where all samples are alike.
const minHalf = 1e-9

// Residuals returns how far the log odds of a limit of infinite data lie from the middle of
// intervals of the given level, in units of their half width without [Refit.Ends]: for each feature
// row at the class that the limit finds most probable, and at the one whose interval lies highest:
//
//	(log odds of the limit - (low + high)/2) / ((high - low)/2)
//
// They are counted upwards at the latter and downwards at others, as the ends are ([models.Ends]).
func (f *Refit) Residuals(ctx context.Context, d Drawn, limit erm.Theta, features []float32,
	level float64) ([]float64, error) {
	plain := &Refit{Conjugate: f.Conjugate, Penalty: f.Penalty, Doubt: f.Doubt, Scale: f.Scale}
	graph, err := plain.IntervalGraph(ctx, d, level)
	if err != nil {
		return nil, err
	}
	part := &lazy{engine: f.engine, model: graph}
	defer part.Close()
	low, high, err := f.oddsEnds(ctx, part, nil, features)
	if err != nil {
		return nil, err
	}
	rows, err := f.Map(ctx, features)
	if err != nil {
		return nil, err
	}
	c, k := limit.C, limit.D-1
	var out []float64
	middle, z := make([]float64, c), make([]float64, c)
	for i := range len(rows) / k {
		limit.Logits(rows[i*k:(i+1)*k], z)
		for y := range middle {
			middle[y] = (low[i*c+y] + high[i*c+y]) / 2
		}
		named := floats.MaxIdx(middle)
		for _, y := range []int{floats.MaxIdx(z), named} {
			rest := slices.Delete(slices.Clone(z), y, y+1)
			r := (z[y] - floats.LogSumExp(rest) - middle[y]) / max(high[i*c+y]-middle[y], minHalf)
			if y != named {
				r = -r
			}
			out = append(out, r)
		}
	}
	return out, nil
}
