package rival

import (
	"context"

	"fmp/pipeline/posterior"
)

// lmp is the martingale posterior of each client's own points.
var lmp = method{
	Info{Name: "LMP", Family: Martingales, Cost: 80, Title: "martingale posterior of each client's points; mean over clients", Group: Local,
		Cite: "Fong, Holmes and Walker 2023, Martingale posterior distributions, JRSS B 85(5); " + citeFMP, Param: ParamL2, Grid: gridL2, Draws: true},
	func(ctx context.Context, t *Task, s Settings) (*posterior.Result, error) {
		e, err := t.localMartingales(ctx, s.L2, s)
		if err != nil {
			return nil, err
		}
		return &posterior.Result{Ensembles: e}, nil
	},
}
