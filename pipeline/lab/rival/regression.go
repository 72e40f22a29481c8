package rival

import (
	"context"

	"fmp/pipeline/internal/memo"
	"fmp/pipeline/lab/score"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
)

// regression is the softmax regression on the clients' class means, each with its mass: a server's
// fit to the smallest uploads with FMP's fit, without drawing any points.
var regression = method{
	Info{Name: "Regression", Title: "softmax regression on the clients' class means and masses",
		Group: OneShot, Cite: citeFMP, Param: ParamL2, Grid: gridL2},
	func(ctx context.Context, t *Task, s Settings) (*posterior.Result, error) {
		// A mean weighs as much as its images do: l2 stands against as many points as in a fit to
		// all of them.
		pooled, err := memo.Once(t.memo, "means", func() (*point.Set, error) {
			var all []*point.Set
			for _, set := range t.in.Clients {
				// Only counts and sums enter an upload; the second moment is computed and left out.
				own := newStatistics(t.dx, t.c)
				own.add(set)
				all = append(all, own.points())
			}
			return point.Pool(all...)
		})
		if err != nil {
			return nil, err
		}
		e, err := t.fitOnce(ctx, "means", []*point.Set{pooled}, s.L2, s)
		if err != nil {
			return nil, err
		}
		return &posterior.Result{Ensembles: []posterior.Ensemble{e}, Means: score.Plain{},
			UploadBytes: t.meansBytes()}, nil
	},
}
