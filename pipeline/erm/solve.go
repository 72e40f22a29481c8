package erm

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"slices"
)

// Defaults of Options.
const (
	DefaultTolerance = 1e-9
	DefaultMaxSteps  = 50
)

// Options are the settings of a fit. The zero value selects the defaults.
type Options struct {
	// Tolerance on the norm of the gradient, relative to sum_i w_i |x_i| (which bounds that norm,
	// without the regulariser, up to a factor of 1.5). Default 1e-9; allowed are 1e-14 to 0.1.
	Tolerance float64
	// MaxSteps bounds the steps of Newton's method. Default 50.
	MaxSteps int
	// MaxProducts bounds the products with the Hessian that Newton's method takes in [Solve] and
	// [SolveAll]. A fit that wants more, or more than MaxSteps, ends there: Solution.Stopped. At 0,
	// the default, there is no bound, and to want more than MaxSteps is an error.
	MaxProducts int
	// Residual is the relative residual at which Fits.Backward's linear solve stops. Default 1e-9;
	// allowed are 1e-14 to 0.1. For stochastic training 1e-4 is enough.
	Residual float64
	// Double does Newton's inner iterations in float64. In float32, the default, they take half the
	// time, and minimisers are as good by Tolerance: callers that depend on their last bits need
	// it, such as Markov chains that start there.
	Double bool
	// Threads is how many problems of a batch are solved at a time; 0: one per processor. Results
	// do not depend on it.
	Threads int
}

// spent reports whether MaxProducts are.
func (o Options) spent(products int) bool { return o.MaxProducts > 0 && products >= o.MaxProducts }

// left returns the products that remain of MaxProducts, at most most.
func (o Options) left(spent, most int) int {
	if o.MaxProducts > 0 {
		return min(most, o.MaxProducts-spent)
	}
	return most
}

// withDefaults returns the options with defaults in place of zeros, or an error that names the
// first one out of bounds.
func (o Options) withDefaults() (Options, error) {
	o.Tolerance = cmp.Or(o.Tolerance, DefaultTolerance)
	o.Residual = cmp.Or(o.Residual, backwardTolerance)
	o.MaxSteps = cmp.Or(o.MaxSteps, DefaultMaxSteps)
	if o.Threads <= 0 {
		o.Threads = runtime.GOMAXPROCS(0)
	}
	if !(o.Tolerance >= 1e-14 && o.Tolerance <= 0.1) {
		return o, fmt.Errorf("erm: tolerance is %v; allowed are 1e-14 to 0.1", o.Tolerance)
	}
	if !(o.Residual >= 1e-14 && o.Residual <= 0.1) {
		return o, fmt.Errorf("erm: residual is %v; allowed are 1e-14 to 0.1", o.Residual)
	}
	if o.MaxSteps < 1 {
		return o, fmt.Errorf("erm: max steps is %d; allowed are numbers from 1", o.MaxSteps)
	}
	if o.MaxProducts < 0 {
		return o, fmt.Errorf("erm: max products is %d; allowed are numbers from 0", o.MaxProducts)
	}
	return o, nil
}

// Solution is a minimiser with statistics of the solve.
type Solution struct {
	Theta        Theta
	Objective    float64 // J at Theta
	GradientNorm float64 // |grad J| there
	Steps        int     // Newton steps taken
	Products     int     // Hessian products spent on them
	// Stopped says that MaxProducts, MaxSteps or a step without a decrease ended the fit. The
	// objective is at most that where Newton's method began, the gradient above the tolerance.
	Stopped bool
}

// Solve fits one problem. It is an error, which reports the norm, if the gradient does not fall
// below the tolerance.
func Solve(ctx context.Context, p *Problem, opt Options) (*Solution, error) {
	s, err := SolveAll(ctx, []*Problem{p}, opt)
	if err != nil {
		return nil, err
	}
	return s[0], nil
}

// SolveAll fits a batch, opt.Threads problems at a time. The first problem that fails stops the
// batch; the error names it.
func SolveAll(ctx context.Context, ps []*Problem, opt Options) ([]*Solution, error) {
	opt, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	out := make([]*Solution, len(ps))
	err = each(ctx, len(ps), opt.Threads, func(ctx context.Context, i int) error {
		if err := ps[i].Check(); err != nil {
			return err
		}
		w := workspaces.Get().(*workspace)
		defer workspaces.Put(w)
		var err error
		out[i], err = w.fit(ctx, ps[i], opt)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// SolveShared fits a batch of similar problems: each has its own points and those of shared, which
// are stored once. It first fits, roughly, the shared points with the first problems' own points at
// reduced weight. The problems start there, preconditioned by the inverse of the Hessian's diagonal
// blocks there, one per class, or each by one block of its own if the first problems show that to
// take fewer products. All problems must have the same C, Dx and L2.
func SolveShared(ctx context.Context, shared *Problem, own []*Problem,
	opt Options) ([]*Solution, error) {
	opt, err := opt.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := shared.Check(); err != nil {
		return nil, fmt.Errorf("shared points: %w", err)
	}
	for i, p := range own {
		if p.C != shared.C || p.Dx != shared.Dx || p.L2 != shared.L2 {
			return nil, fmt.Errorf("erm: problem %d has dx %d, C %d and l2 %v, the shared points "+
				"%d, %d and %v; want one of each",
				i, p.Dx, p.C, p.L2, shared.Dx, shared.C, shared.L2)
		}
		if p.Centre != nil {
			return nil, fmt.Errorf("erm: problem %d of %d has a centre; fit it with SolveAll", i,
				len(own))
		}
		if err := p.Check(); err != nil {
			return nil, fmt.Errorf("problem %d of %d: %w", i, len(own), err)
		}
	}
	var common rows
	common.prepare(shared)
	lead, err := leader(ctx, shared, own, opt)
	if err != nil {
		return nil, err
	}
	out := make([]*Solution, len(own))
	fit := func(ctx context.Context, i int, lead *guide) error {
		w := workspaces.Get().(*workspace)
		defer workspaces.Put(w)
		var err error
		if shared.N+own[i].N < shared.D() {
			out[i], err = w.fit(ctx, join(1, shared, own[i]), opt)
			return err
		}
		w.prepare(own[i], &common)
		out[i], err = w.solve(ctx, own[i].Start, opt, lead)
		return err
	}
	// If the problems turn out to differ, the common fit's blocks are worse than a preconditioner
	// of their own: the first ones decide.
	tried := 0
	if lead != nil {
		start := &guide{theta: lead.theta}
		tried = leaders
		if err := each(ctx, tried, opt.Threads, func(ctx context.Context, i int) error {
			return fit(ctx, i, []*guide{lead, start}[i%2])
		}); err != nil {
			return nil, err
		}
		if out[0].Products+out[2].Products > out[1].Products+out[3].Products {
			lead = start
		}
	}
	err = each(ctx, len(own), opt.Threads, func(ctx context.Context, i int) error {
		if i < tried {
			return nil
		}
		return fit(ctx, i, lead)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

const (
	leaders       = 4    // problems whose own points the common fit includes
	leadTolerance = 1e-3 // its tolerance
)

// leader returns the common fit from which the problems start: nil where they are few, or their
// points fewer than features.
func leader(ctx context.Context, shared *Problem, own []*Problem, opt Options) (*guide, error) {
	if len(own) < 2*leaders || shared.N+own[0].N < shared.D() {
		return nil, nil
	}
	w := workspaces.Get().(*workspace)
	defer workspaces.Put(w)
	w.prepare(join(1./leaders, shared, own[:leaders]...), nil)
	opt.Tolerance = max(opt.Tolerance, leadTolerance)
	if _, err := w.solve(ctx, nil, opt, nil); err != nil {
		return nil, fmt.Errorf("fit to the first %d problems: %w", leaders, err)
	}
	return w.guide()
}

// join returns the problem of all the points, with the weights of own scaled by share. X, Y and W
// are copied, so that the result shares no memory with its parts. Of one problem alone the warm
// start is kept.
func join(share float64, shared *Problem, own ...*Problem) *Problem {
	p := &Problem{N: shared.N, Dx: shared.Dx, C: shared.C, X: slices.Clone(shared.X),
		Y: slices.Clone(shared.Y), W: slices.Clone(shared.W), L2: shared.L2}
	for _, q := range own {
		p.N += q.N
		p.X, p.Y = append(p.X, q.X...), append(p.Y, q.Y...)
		for _, w := range q.W {
			p.W = append(p.W, share*w)
		}
	}
	if len(own) == 1 {
		p.Start = own[0].Start
	}
	return p
}
