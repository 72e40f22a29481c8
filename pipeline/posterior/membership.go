package posterior

import (
	"context"
	"fmt"

	"gonum.org/v1/gonum/mat"

	"fmp/pipeline/metric"
)

// Plain are the features themselves as Coordinates.
type Plain struct{}

// Of returns its argument.
func (Plain) Of(_ context.Context, features []float32) ([]float32, error) { return features, nil }

// membership is how well an attacker tells a client's own points from others of their class who sees the class means
// that the client uploads: the area under the ROC curve, mean over uploaded means weighted by their points. .5 gives
// nothing away. The attacker is a strong one, who knows the class's mean and the covariance within classes, of which
//
//	t(x) = (x - mu_c)' W^-1 (xbar_mc - mu_c)
//
// is the likelihood ratio's statistic for a Gaussian class (Homer et al. 2008, PLoS Genetics 4(8), for means of
// genotypes): it is about Phi(sqrt(k / 2n)) for k numbers and n points behind a mean. mu_c and W are those of the test
// points, which are also the others. Coordinates of results' class means are Result.Means; of results without, and of
// test points too few for W, there is no figure.
func (t *Task) membership(ctx context.Context, by Coordinates, k *Test) (*float64, error) {
	if by == nil {
		return nil, nil
	}
	test, err := by.Of(ctx, k.Features)
	if err != nil {
		return nil, fmt.Errorf("membership: %w", err)
	}
	dx := len(test) / len(k.Labels)
	if len(k.Labels) <= dx+t.c {
		return nil, nil
	}
	known := newStatistics(dx, t.c)
	for i, y := range k.Labels {
		known.count[y]++
		row := known.sum.RawRowView(y)
		for j, v := range test[i*dx : (i+1)*dx] {
			row[j] += float64(v)
		}
	}
	means := known.means()
	rest := mat.NewDense(len(k.Labels), dx, nil)
	less := func(row []float32, class int, to []float64) {
		for j, v := range row {
			to[j] = float64(v) - means.At(class, j)
		}
	}
	for i, y := range k.Labels {
		less(test[i*dx:(i+1)*dx], y, rest.RawRowView(i))
	}
	within := mat.NewSymDense(dx, nil)
	within.SymOuterK(1/float64(len(k.Labels)-t.c), rest.T())
	var chol mat.Cholesky
	if !chol.Factorize(within) {
		return nil, nil // features that say the same
	}
	var sum, members float64
	for _, set := range t.in.Clients {
		features, labels := set.Labelled()
		rows, err := by.Of(ctx, features)
		if err != nil {
			return nil, fmt.Errorf("membership: %w", err)
		}
		own := mat.NewDense(set.N, dx, nil)
		count, uploaded := make([]float64, t.c), mat.NewDense(t.c, dx, nil)
		for i, y := range labels {
			less(rows[i*dx:(i+1)*dx], y, own.RawRowView(i))
			count[y]++
			for j, v := range own.RawRowView(i) {
				uploaded.Set(y, j, uploaded.At(y, j)+v)
			}
		}
		for c, n := range count {
			if n == 0 || known.count[c] == 0 {
				continue
			}
			var direction mat.VecDense // a factor of 1/n orders nothing anew
			if err := chol.SolveVecTo(&direction, uploaded.RowView(c)); err != nil {
				return nil, fmt.Errorf("membership: covariance of the test points: %w", err)
			}
			scores := func(m *mat.Dense, labels []int) (out []float64) {
				for i, y := range labels {
					if y == c {
						out = append(out, mat.Dot(m.RowView(i), &direction))
					}
				}
				return out
			}
			area, err := metric.AUROC(scores(own, labels), scores(rest, k.Labels))
			if err != nil {
				return nil, fmt.Errorf("membership: %w", err)
			}
			sum += n * area
			members += n
		}
	}
	if members == 0 {
		return nil, nil
	}
	sum /= members
	return &sum, nil
}
