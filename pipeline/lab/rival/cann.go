package rival

import (
	"context"

	"gonum.org/v1/gonum/floats"

	"fmp/pipeline/erm"
	"fmp/pipeline/posterior"
)

// cann averages the clients' fits. Each uses a share l2 / M of the regulariser, so that the shares add up to ANN's.
var cann = method{
	Info{Name: "CANN", Family: Fits, Cost: 1, Title: "average of the clients' fits", Group: OneShot, Cite: citeZinkevich, Param: ParamL2, Grid: gridL2},
	func(ctx context.Context, t *Task, s Settings) (*posterior.Result, error) {
		e, err := t.localFits(ctx, s.L2/float64(len(t.in.Clients)), s)
		if err != nil {
			return nil, err
		}
		mean := erm.NewTheta(t.dx+1, t.c)
		for _, theta := range e {
			floats.Add(mean.W, theta.W)
		}
		floats.Scale(1/float64(len(e)), mean.W)
		return &posterior.Result{Ensembles: []posterior.Ensemble{{mean}}, UploadBytes: t.headBytes(1)}, nil
	},
}
