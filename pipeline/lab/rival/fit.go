package rival

import (
	"context"
	"fmt"

	"fmp/pipeline/erm"
	"fmp/pipeline/internal/memo"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
)

// ermOptions are those of all fits of the task. Results do not depend on the number of threads.
func (t *Task) ermOptions(s Settings) erm.Options {
	return erm.Options{Tolerance: s.Tolerance, Threads: t.in.Threads}
}

// fits returns one fit per set. The penalty is l2/2 times the square of a head, in the sum form of
// package erm. The objective is sum_i w_i (-log p(y_i | x_i)) + l2/2 |T|^2. It grows with the
// number of points, so that a penalty weighs less against more of them.
func (t *Task) fits(ctx context.Context, sets []*point.Set, l2 float64,
	s Settings) (posterior.Ensemble, error) {
	problems := make([]*erm.Problem, len(sets))
	for i, set := range sets {
		p, err := erm.FromSets(l2, set)
		if err != nil {
			return nil, err
		}
		problems[i] = p
	}
	opt := t.ermOptions(s)
	opt.Double = true // chains start at these fits, and follow the last bit of where they start
	solved, err := erm.SolveAll(ctx, problems, opt)
	if err != nil {
		return nil, err
	}
	out := make(posterior.Ensemble, len(sets))
	for i, v := range solved {
		out[i] = v.Theta
	}
	return out, nil
}

// fitOnce returns one fit per set, remembered under the sets' name. The memory lasts as long as the
// task, and two callers at a time wait for one fit. Heads are shared: nobody may write them. A name
// must stand for the same sets throughout the task.
func (t *Task) fitOnce(ctx context.Context, name string, sets []*point.Set, l2 float64,
	s Settings) (posterior.Ensemble, error) {
	return memo.Once(t.memo, fmt.Sprint("fit/", name, "/", l2, s.Tolerance),
		func() (posterior.Ensemble, error) { return t.fits(ctx, sets, l2, s) })
}

// localFits returns the clients' own fits. There is one for each client, in the order of clients.
func (t *Task) localFits(ctx context.Context, l2 float64, s Settings) (posterior.Ensemble, error) {
	return t.fitOnce(ctx, "clients", t.in.Clients, l2, s)
}

// pooledFit returns the fit to all clients' points.
func (t *Task) pooledFit(ctx context.Context, l2 float64, s Settings) (posterior.Theta, error) {
	e, err := t.fitOnce(ctx, "pooled", []*point.Set{t.pooled()}, l2, s)
	if err != nil {
		return posterior.Theta{}, err
	}
	return e[0], nil
}
