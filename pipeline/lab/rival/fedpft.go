package rival

import (
	"context"
	"math"

	"fmp/models/rng"
	"fmp/pipeline/internal/memo"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
)

// fedpft is parametric feature transfer (Beitollahi et al. 2024, arXiv 2402.01862, algorithm 1)
// with one Gaussian per class and a diagonal covariance: each client uploads the count, mean and
// variances of the classes that it holds; the server draws as many features from each Gaussian as
// the client has points, and fits a softmax regression to them.
//
// A client with one point of a class reports a variance of 0, as a Gaussian fitted by maximum
// likelihood does. The paper draws once; here the draws come from a stream of the task.
var fedpft = method{
	Info{Name: "FedPFT", Title: "softmax regression on draws from the clients' class Gaussians",
		Group: OneShot,
		Cite:  citeFedPFT, Param: ParamL2, Grid: gridL2},
	func(ctx context.Context, t *Task, s Settings) (*posterior.Result, error) {
		drawn, err := memo.Once(t.memo, "fedpft", t.classGaussians)
		if err != nil {
			return nil, err
		}
		e, err := t.fitOnce(ctx, "fedpft", []*point.Set{drawn}, s.L2, s)
		if err != nil {
			return nil, err
		}
		return &posterior.Result{Ensembles: []posterior.Ensemble{e},
			UploadBytes: t.meansBytes() / float64(t.dx+2) * float64(2*t.dx+2)}, nil
	},
}

// classGaussians replaces every client's points of a class by as many draws from the Gaussian
// fitted to them: N(m, diag(E x^2 - m^2)) by maximum likelihood. Rounding can make a difference of
// nearly equal numbers negative; its variance is 0 then. A point with several classes counts in the
// likeliest. Each client has a stream of its own.
func (t *Task) classGaussians() (*point.Set, error) {
	var all []*point.Set
	for m, set := range t.in.Clients {
		r := rng.New(t.in.Seed, t.in.Stream, "fedpft", m)
		_, labels := set.Labelled()
		for c := range t.c {
			var rows []int
			for i, y := range labels {
				if y == c {
					rows = append(rows, i)
				}
			}
			if len(rows) == 0 {
				continue
			}
			mean, square := make([]float64, t.dx), make([]float64, t.dx)
			for _, i := range rows {
				for j, v := range set.Row(i)[:t.dx] {
					mean[j] += float64(v) / float64(len(rows))
					square[j] += float64(v) * float64(v) / float64(len(rows))
				}
			}
			drawn := point.New(len(rows), t.dx, t.c)
			for i := range rows {
				row := drawn.Row(i)
				for j := range t.dx {
					row[j] = float32(mean[j] +
						math.Sqrt(max(square[j]-mean[j]*mean[j], 0))*r.NormFloat64())
				}
				row[t.dx+c] = 1
			}
			all = append(all, drawn)
		}
	}
	return point.Pool(all...)
}
