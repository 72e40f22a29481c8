package erm

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	"gonum.org/v1/gonum/floats"

	"fmp/onnx/alloctest"
	"fmp/onnx/must"
	"fmp/pipeline/point"
)

// random is a problem of n points around class means with soft labels and uneven weights.
func random(seed uint64, n, dx, c int, l2 float64) *Problem {
	r := rand.New(rand.NewPCG(seed, 7))
	s := point.New(n, dx, c)
	for i := range n {
		row := s.Row(i)
		for j := range dx {
			row[j] = float32(r.NormFloat64())
			if j%c == i%c {
				row[j]++
			}
		}
		var sum float64
		soft := make([]float64, c)
		for k := range soft {
			soft[k] = math.Exp(r.NormFloat64())
			if k == i%c {
				soft[k] += 10
			}
			sum += soft[k]
		}
		for k, v := range soft {
			row[dx+k] = float32(v / sum)
		}
		s.W[i] = float32(0.2 + 2*r.Float64())
	}
	p, err := FromSets(l2, s)
	if err != nil {
		panic(err)
	}
	return p
}

// part is the problem of n points, from from on.
func (p *Problem) part(from, n int) *Problem {
	out, to := *p, from+n
	out.N, out.X, out.Y, out.W = n, p.X[from*p.D():to*p.D()], p.Y[from*p.C:to*p.C], p.W[from:to]
	return &out
}

// TestGradientVanishes recomputes the gradient by an objective that TestObjectiveDerivatives checks.
func TestGradientVanishes(t *testing.T) {
	for _, k := range []struct {
		n, dx, c int
		l2       float64
		centre   bool
	}{{20, 5, 3, 3, false}, {7, 30, 4, 0.1, false}, {300, 64, 10, 3, false}, {150, 10, 2, 1e-3, false},
		{40, 6, 1, 1, false},
		{2000, 3, 5, 10, false}, {7, 30, 4, 0.1, true}, {300, 64, 10, 3, true}} {
		p := random(1, k.n, k.dx, k.c, k.l2)
		centre := NewTheta(p.D(), k.c)
		if k.centre {
			p.Centre = withHead(p)
			centre = *p.Centre
		}
		s := must.Get(Solve(context.Background(), p, Options{Tolerance: 1e-12}))(t)
		o := NewObjective(p)
		at, from, g := make([]float64, o.Dim()), make([]float64, o.Dim()), make([]float64, o.Dim())
		transpose(s.Theta.W, at, p.D(), k.c)
		transpose(centre.W, from, p.D(), k.c)
		o.Gradient(at, g)
		floats.AddScaled(g, -k.l2, from)
		if m := maxAbs(g); m > 1e-7 {
			t.Errorf("%+v: largest gradient at the minimum is %v, want 0; reported norm %v", k,
				m, s.GradientNorm)
		}
		t.Logf("%+v: %d steps, %d products", k, s.Steps, s.Products)
	}
}

// Newton's inner iterations in float32 lead to the minimiser, and gradient, of those in float64,
// with extreme scales and penalties as well.
func TestSingle(t *testing.T) {
	for i, k := range []struct {
		n, dx, c  int
		l2, scale float64
	}{{300, 64, 10, 3, 1}, {1000, 20, 3, 1, 1}, {500, 33, 13, 0.01, 1}, {200, 64, 20, 3, 1e-3},
		{400, 40, 7, 0.01, 30}, {50, 90, 5, 1, 10}, {60, 20, 4, 1e74, 1e37}} {
		p := random(uint64(i), k.n, k.dx, k.c, k.l2)
		scale(p, k.scale)
		var fits [2]Theta
		var products [2]int
		for j, double := range []bool{true, false} {
			s := must.Get(Solve(context.Background(), p, Options{Double: double, Tolerance: 1e-13}))(t)
			fits[j], products[j] = s.Theta, s.Products
		}
		top := 0.0
		for _, v := range fits[0].W {
			top = math.Max(top, math.Abs(v))
		}
		if d := furthest(fits[0].W, fits[1].W); !(d <= 1e-6*top) {
			t.Errorf("case %d: minimisers whose largest weight is %v differ by %v", i, top, d)
		}
		if products[1] > 2*products[0] {
			t.Errorf("case %d: %d Hessian products in float32, %d in float64", i,
				products[1], products[0])
		}
	}
}

// BenchmarkSolve fits the points of a round, of a client, and of one behind wide features.
func BenchmarkSolve(b *testing.B) {
	for name, size := range map[string][2]int{"round": {300, 64}, "client": {120, 64}, "wide": {120, 512}} {
		b.Run(name, func(b *testing.B) {
			p := random(1, size[0], size[1], 10, 3)
			for b.Loop() {
				must.Get(Solve(context.Background(), p, Options{}))(b)
			}
		})
	}
}

// Fits that share points have the minimisers and derivatives of fits to all their points, also
// where points are fewer than features, and where others are solved at the same time.
func TestFits(t *testing.T) {
	const shared, own, count = 40, 30, 5
	for _, dx := range []int{9, 100} {
		all := random(uint64(dx), shared+2*count*own, dx, 4, 0.5)
		part := all.part
		common := part(0, shared)
		var mine [2][]*Problem
		for i := range 2 * count {
			mine[i/count] = append(mine[i/count], part(shared+i*own, own))
		}
		first := must.Get(NewFits(common, mine[0]))(t)
		defer first.Close()
		second := must.Get(first.With(mine[1]))(t)
		defer second.Close()
		check := func(f *Fits, k, i int) error {
			s, err := f.Solve(context.Background(), i, Options{Tolerance: 1e-12})
			if err != nil {
				return err
			}
			cotangent := NewTheta(all.D(), all.C)
			for j := range cotangent.W {
				cotangent.W[j] = math.Sin(float64(j + i))
			}
			g, err := f.Backward(i, cotangent, Options{})
			if err != nil {
				return err
			}
			h := f.Shared(i)
			whole := join(1, common, mine[k][i])
			want, err := Solve(context.Background(), whole, Options{Tolerance: 1e-12})
			if err != nil {
				return err
			}
			wanted, err := backward(whole, want.Theta, cotangent)
			if err != nil {
				return err
			}
			for name, pair := range map[string][2][]float64{
				"minimiser": {s.Theta.W, want.Theta.W},
				"points":    {slices.Concat(h.Points, g.Points), wanted.Points},
				"labels":    {slices.Concat(h.Labels, g.Labels), wanted.Labels},
				"weights":   {slices.Concat(h.Weights, g.Weights), wanted.Weights},
			} {
				if d := furthest(pair[0], pair[1]); !(d < 1e-7) {
					return fmt.Errorf("dx %d, fit %d: %s differs by %v", dx, i, name, d)
				}
			}
			return nil
		}
		var work errgroup.Group
		for k, f := range []*Fits{first, second} {
			must.Do(t, check(f, k, 0))
			for i := 1; i < count; i++ {
				work.Go(func() error { return check(f, k, i) })
			}
		}
		must.Do(t, work.Wait())
		other := *mine[0][1]
		other.L2 *= 2
		must.Fail(first.With([]*Problem{&other}))(t, "",
			"a problem with another penalty than the shared points' was taken")
	}
}

// TestWarmStart: a fit that starts at the minimum stays there, also where points are fewer than
// features, two of them alike or not; one that starts far away gets there.
func TestWarmStart(t *testing.T) {
	few, alike := random(3, 12, 40, 5, 1), random(3, 12, 40, 5, 1)
	copy(alike.X[3*alike.D():4*alike.D()], alike.X[:alike.D()])
	many := random(3, 60, 12, 5, 1)
	var cold *Solution
	for i, p := range []*Problem{few, alike, many} {
		cold = must.Get(Solve(context.Background(), p, Options{}))(t)
		p.Start = &cold.Theta
		warm := must.Get(Solve(context.Background(), p, Options{Tolerance: 2e-9}))(t)
		if d := furthest(warm.Theta.W, cold.Theta.W); warm.Steps != 0 || d > 1e-9 {
			t.Errorf("case %d: started at the minimum, %d steps moved the head by %v; want none", i,
				warm.Steps, d)
		}
	}
	p := many
	far := NewTheta(p.D(), p.C)
	for i := range far.W {
		far.W[i] = 40 * math.Sin(float64(i))
	}
	p.Start = &far
	back := must.Get(Solve(context.Background(), p, Options{}))(t)
	if d := furthest(back.Theta.W, cold.Theta.W); d > 1e-6 {
		t.Errorf("from far away the minimiser differs by %v", d)
	}
}

func TestHardProblems(t *testing.T) {
	for name, change := range map[string]func(p *Problem){
		"features of 1e4":       func(p *Problem) { scale(p, 1e4) },
		"features of 1e-6":      func(p *Problem) { scale(p, 1e-6) },
		"l2 of 1e-6, separable": func(p *Problem) { p.L2 = 1e-6 },
		"l2 of 1e9":             func(p *Problem) { p.L2 = 1e9 },
		"weights of 0": func(p *Problem) {
			for i := range p.W {
				p.W[i] = 0
			}
		},
		"one point of weight 1e6":    func(p *Problem) { p.W[0] = 1e6 },
		"fewer points than features": func(p *Problem) { *p = *random(6, 25, 60, 4, 1) },
		"fewer points than features, two alike": func(p *Problem) {
			*p = *random(6, 25, 60, 4, 1)
			copy(p.X[3*p.D():4*p.D()], p.X[:p.D()])
		},
		"all points alike": func(p *Problem) {
			for i := 1; i < p.N; i++ {
				copy(p.X[i*p.D():], p.X[:p.D()])
			}
		},
	} {
		p := random(5, 25, 8, 4, 1)
		change(p)
		s, err := Solve(context.Background(), p, Options{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !finite(s.Objective) || !finite(maxAbs(s.Theta.W)) {
			t.Errorf("%s: objective %v, largest weight %v", name, s.Objective, maxAbs(s.Theta.W))
		}
		t.Logf("%s: %d steps, %d products, gradient %.2g", name, s.Steps, s.Products, s.GradientNorm)
	}
}

// TestMaxProducts: a fit of Newton's method that wants more products stops there, below its start, of
// two classes and in the span of the points too.
func TestMaxProducts(t *testing.T) {
	for name, p := range map[string]*Problem{"": random(1, 60, 12, 4, 1e-7), "two": random(1, 60, 12, 2, 1e-7),
		"span": random(1, 25, 60, 4, 1e-7)} {
		whole := must.Get(Solve(t.Context(), p, Options{Tolerance: 1e-12, Double: true}))(t)
		start := floats.Sum(p.W) * math.Log(float64(p.C))
		most := whole.Products / 3
		for _, o := range []Options{{MaxProducts: most}, {MaxProducts: most, Double: true},
			{MaxProducts: 1e6, MaxSteps: 1}} {
			o.Tolerance = 1e-12
			s := must.Get(Solve(t.Context(), p, o))(t)
			if !s.Stopped || s.Products > o.MaxProducts || !(s.Objective < start) || s.Objective < whole.Objective {
				t.Errorf("%s, %+v: stopped %v after %d products of %d, objective %v; %v at the start, %v at the end",
					name, o, s.Stopped, s.Products, whole.Products, s.Objective, start, whole.Objective)
			}
		}
		s := must.Get(Solve(t.Context(), p, Options{Tolerance: 1e-12, Double: true, MaxProducts: 1e6}))(t)
		if s.Stopped || !slices.Equal(s.Theta.W, whole.Theta.W) {
			t.Errorf("%s: a bound that is not met changes the fit", name)
		}
	}
}

// TestDoubleWithinABound: a fit beyond the range of float32 goes on in float64 with a bound too.
func TestDoubleWithinABound(t *testing.T) {
	for _, dx := range []int{20, 65} {
		p := random(5, 300, dx, 2, 60)
		centre := NewTheta(p.D(), p.C)
		p.X[0], p.Centre = 1e39, &centre
		want := must.Get(Solve(t.Context(), p, Options{}))(t)
		s := must.Get(Solve(t.Context(), p, Options{MaxProducts: 100}))(t)
		if s.Stopped || !slices.Equal(s.Theta.W, want.Theta.W) {
			t.Errorf("%d features: stopped %v after %d products, %d without a bound", dx, s.Stopped, s.Products,
				want.Products)
		}
	}
}

func scale(p *Problem, by float64) {
	for i := range p.X {
		if i%p.D() != p.Dx {
			p.X[i] *= by
		}
	}
}

func TestErrors(t *testing.T) {
	set := func(change func(s *point.Set)) func() error {
		return func() error {
			s := point.New(2, 2, 2)
			copy(s.Z, []float32{1, 2, 1, 0, 3, 4, 0, 1})
			change(s)
			_, err := FromSets(1, s)
			return err
		}
	}
	solve := func(change func(p *Problem), opt Options) func() error {
		return func() error {
			p := random(1, 20, 4, 3, 1)
			change(p)
			_, err := Solve(context.Background(), p, opt)
			return err
		}
	}
	nan := float32(math.NaN())
	for want, do := range map[string]func() error{
		"feature 1 of point 0 is NaN": set(func(s *point.Set) { s.Z[1] = nan }),
		"feature 0 of point 1 is +Inf": set(
			func(s *point.Set) { s.Z[4] = float32(math.Inf(1)) }),
		"label of point 0 has probability -1": set(
			func(s *point.Set) { s.Z[2], s.Z[3] = -1, 2 }),
		"label of point 1 sums to 0":           set(func(s *point.Set) { s.Z[7] = 0 }),
		"label of point 1 has probability NaN": set(func(s *point.Set) { s.Z[7] = nan }),
		"weight of point 1 is -0.5":            set(func(s *point.Set) { s.W[1] = -0.5 }),
		"weight of point 1 is NaN":             set(func(s *point.Set) { s.W[1] = nan }),
		"want N (dx + C) numbers":              set(func(s *point.Set) { s.Z = s.Z[:7] }),
		"l2 is 0":                              solve(func(p *Problem) { p.L2 = 0 }, Options{}),
		"l2 is NaN":                            solve(func(p *Problem) { p.L2 = math.NaN() }, Options{}),
		"the last column of X is 2 at point 1": solve(func(p *Problem) { p.X[9] = 2 }, Options{}),
		"feature 2 of point 0 is NaN":          solve(func(p *Problem) { p.X[2] = math.NaN() }, Options{}),
		"weight of point 3 is -1":              solve(func(p *Problem) { p.W[3] = -1 }, Options{}),
		"tolerance is 2":                       solve(func(*Problem) {}, Options{Tolerance: 2}),
		"max products is -1":                   solve(func(*Problem) {}, Options{MaxProducts: -1}),
		"not converged after 1 Newton steps: gradient ": solve(func(p *Problem) { p.L2 = 1e-8 },
			Options{MaxSteps: 1}),
		"warm start is 2 x 3": solve(
			func(p *Problem) { s := NewTheta(2, 3); p.Start = &s }, Options{}),
		"numbers in X": solve(func(p *Problem) { p.X = p.X[1:] }, Options{}),
		"context canceled": func() error {
			ctx, stop := context.WithCancel(context.Background())
			stop()
			_, err := Solve(ctx, random(1, 20, 4, 3, 1), Options{})
			return err
		},
		"problem 1 of 2: erm: l2 is -1": func() error {
			bad := random(1, 9, 2, 2, 1)
			bad.L2 = -1
			_, err := SolveAll(context.Background(), []*Problem{random(1, 9, 2, 2, 1), bad}, Options{})
			return err
		},
		"cotangent holds NaN in row 1, class 0": func() error {
			p := random(1, 9, 2, 2, 1)
			c := NewTheta(3, 2)
			c.W[2] = math.NaN()
			_, err := backward(p, NewTheta(3, 2), c)
			return err
		},
	} {
		must.Fail(do())(t, want)
	}
}

// TestObjectiveDerivatives compares gradient and Hessian with central differences.
func TestObjectiveDerivatives(t *testing.T) {
	p := random(4, 15, 4, 3, 0.8)
	o := NewObjective(p)
	at := make([]float64, o.Dim())
	for i := range at {
		at[i] = math.Cos(float64(i))
	}
	grad, up, down := make([]float64, o.Dim()), make([]float64, o.Dim()), make([]float64, o.Dim())
	o.Gradient(at, grad)
	hessian := o.Hessian(at)
	const h = 1e-5
	for i := range at {
		was := at[i]
		at[i] = was + h
		fUp := o.Gradient(at, up)
		at[i] = was - h
		fDown := o.Gradient(at, down)
		at[i] = was
		if want := (fUp - fDown) / (2 * h); math.Abs(grad[i]-want) > 1e-6 {
			t.Errorf("gradient %d is %v, central difference %v", i, grad[i], want)
		}
		for j := range at {
			if want := (up[j] - down[j]) / (2 * h); math.Abs(hessian.At(i, j)-want) > 1e-6 {
				t.Errorf("Hessian %d,%d is %v, central difference %v", i, j, hessian.At(i, j), want)
			}
		}
	}
}

// TestSolveShared: fits that share points and are led by one to some of them reach what fits of
// their own reach, to the tolerance; also where points are fewer than features, and where labels do
// not sum to one exactly.
func TestSolveShared(t *testing.T) {
	for name, k := range map[string]struct{ shared, own, dx, c int }{
		"a few points":         {30, 20, 6, 4},
		"ten classes":          {100, 100, 64, 10},
		"one class":            {30, 20, 6, 1},
		"two classes":          {31, 9, 5, 2},
		"fewer than features":  {10, 12, 40, 3},
		"one own point":        {50, 1, 6, 4},
		"more own than shared": {8, 90, 20, 5},
		"many points":          {400, 100, 12, 5},
	} {
		all := random(1, k.shared+10*k.own, k.dx, k.c, 0.7)
		for j := range all.Y {
			all.Y[j] *= 1 + 1e-4*math.Sin(float64(j))
		}
		part := all.part
		shared := part(0, k.shared)
		var own, whole []*Problem
		for i := range 10 {
			p := part(k.shared+i*k.own, k.own)
			own, whole = append(own, p), append(whole, join(1, shared, p))
		}
		opt := Options{Tolerance: 1e-11}
		var want, first []*Solution
		for _, threads := range []int{1, 3} {
			opt.Threads = threads
			alone := must.Get(SolveAll(context.Background(), whole, opt))(t)
			if want == nil {
				want = alone
			} else if d := cmp.Diff(want, alone); d != "" {
				t.Errorf("%s: fits of their own on 1 and 3 threads differ: %s", name, d)
			}
			got := must.Get(SolveShared(context.Background(), shared, own, opt))(t)
			for i := range got {
				if d := furthest(got[i].Theta.W, want[i].Theta.W); d > 1e-8 {
					t.Errorf("%s: problem %d differs from its own fit by %v", name, i, d)
				}
				if math.Abs(got[i].Objective-want[i].Objective) > 1e-9*math.Abs(want[i].Objective) {
					t.Errorf("%s: problem %d has objective %v, its own fit %v", name, i,
						got[i].Objective, want[i].Objective)
				}
			}
			if first == nil {
				first = got
			} else if d := cmp.Diff(first, got); d != "" {
				t.Errorf("%s: 1 and 3 threads differ: %s", name, d)
			}
		}
		if name == "many points" {
			opt.Tolerance = 1e-6
			alone := must.Get(SolveAll(context.Background(), whole, opt))(t)
			together := must.Get(SolveShared(context.Background(), shared, own, opt))(t)
			if a, b := products(alone), products(together); 3*b > 2*a {
				t.Errorf("%s: %d Hessian products together, %d alone; want at most two thirds",
					name, b, a)
			}
		}
	}
	bad := random(1, 5, 3, 2, 2)
	must.Fail(SolveShared(context.Background(), random(1, 9, 3, 2, 1), []*Problem{bad}, Options{}))(t, "l2 2")
}

func products(all []*Solution) int {
	n := 0
	for _, s := range all {
		n += s.Products
	}
	return n
}

// A fit by the diagonal and one by the inverse have the same minimiser, whichever of them the first
// step chooses, wide or not.
func TestPreconditioners(t *testing.T) {
	for _, c := range []struct {
		name        string
		n, d        int
		strength    float64 // of a direction that all points share
		centred     bool
		slow, tried bool
	}{
		{name: "narrow", n: 400, d: 150, tried: true},
		{name: "wide", n: 200, d: 400, tried: true},
		{name: "wide, one strong direction", n: 60, d: 200, strength: 30, tried: true, slow: true},
		{name: "narrow, one strong direction", n: 150, d: 120, strength: 30, tried: true, slow: true},
		{name: "wide, with a centre", n: 100, d: 150, strength: 30, centred: true,
			tried: true, slow: true},
	} {
		r := rand.New(rand.NewPCG(1, 2))
		p := &Problem{N: c.n, Dx: c.d, C: 4, X: make([]float64, c.n*(c.d+1)), Y: make([]float64, c.n*4),
			W: make([]float64, c.n), L2: .5}
		turn := make([]float64, 12*c.d)
		for i := range turn {
			turn[i] = r.NormFloat64()
		}
		for i := range c.n {
			row := p.X[i*(c.d+1):][:c.d+1]
			for k := range 12 {
				z := c.strength / float64(k+1) * r.NormFloat64()
				for j := range c.d {
					row[j] += z * turn[k*c.d+j]
				}
			}
			for j := range c.d {
				row[j] += r.NormFloat64()
			}
			row[c.d], p.Y[i*4+i%4], p.W[i] = 1, 1, 1
			row[i%4]++
		}
		if c.centred {
			centre := NewTheta(c.d+1, 4)
			for i := range centre.W {
				centre.W[i] = .1 * r.NormFloat64()
			}
			p.Centre = &centre
		}
		w := &workspace{}
		opt := must.Get(Options{Tolerance: 1e-8}.withDefaults())(t)
		if tried := patience(p) >= minPatience; tried != c.tried {
			t.Errorf("%s: the diagonal is tried: %t, want %t", c.name, tried, c.tried)
		}
		got := must.Get(w.fit(t.Context(), p, opt))(t)
		if slow := w.diagonal == nil; slow != c.slow {
			t.Errorf("%s: the inverse took over: %t, want %t", c.name, slow, c.slow)
		}
		want := must.Get(w.byInverse(t.Context(), p, opt))(t)
		// where the first step tells; at most twice the worth of the inverse where a later one does
		most := patience(p)
		if c.n > c.d {
			most *= 2 * productsOfFirst
		}
		if c.slow && got.Products > want.Products+most {
			t.Errorf("%s: %d products, of which the diagonal may have %d, and %d by the inverse",
				c.name, got.Products, most, want.Products)
		}
		var apart, size float64
		for i, v := range want.Theta.W {
			apart, size = max(apart, math.Abs(v-got.Theta.W[i])), max(size, math.Abs(v))
		}
		if !(apart <= 1e-4*size) {
			t.Errorf("%s: minimisers differ by %.1e of %.1e", c.name, apart, size)
		}
	}
}

// A fit that starts at a head which hardly errs has an objective far smaller than the rounding of
// its logits.
func TestSmallObjective(t *testing.T) {
	for seed := range uint64(80) {
		r := rand.New(rand.NewPCG(seed, 1))
		const n, k, c = 190, 640, 10
		p := &Problem{N: n, Dx: k, C: c, X: make([]float64, n*(k+1)), Y: make([]float64, n*c),
			W: make([]float64, n), L2: 60}
		centre := NewTheta(k+1, c)
		for i := range centre.W {
			centre.W[i] = r.NormFloat64()
		}
		for i := range n {
			row := p.X[i*(k+1) : (i+1)*(k+1)]
			y := i % c
			for j := range k {
				row[j] = r.NormFloat64() + (0.16+0.0005*float64(seed))*centre.W[j*c+y]
			}
			row[k], p.Y[i*c+y], p.W[i] = 1, 1, 0.5
		}
		p.Centre = &centre
		must.Get(Solve(context.Background(), p, Options{}))(t)
	}
}

// TestSharedPointsAreHeldOnce: what fits of S problems that share N points allocate is the sum of
// what goes with S (heads, the points of their own) and what goes with N: nothing goes with both.
func TestSharedPointsAreHeldOnce(t *testing.T) {
	alloctest.NoRace(t)
	// it empties pools, of which there is one a processor
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const dx, c, own, most, problems = 8, 4, 20, 4000, 40
	all := random(1, most+problems*own, dx, c, 1)
	part := all.part
	allocated := func(s, n int) int64 {
		shared, ps := part(0, n), make([]*Problem, s)
		for i := range ps {
			ps[i] = part(most+i*own, own)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		must.Get(SolveShared(context.Background(), shared, ps,
			Options{Threads: 1, Tolerance: 1e-6}))(t)
		runtime.ReadMemStats(&after)
		return int64(after.TotalAlloc - before.TotalAlloc)
	}
	allocated(problems, most)
	few, heavy := allocated(10, 200), allocated(problems, most)
	onlyS, onlyN := allocated(problems, 200), allocated(10, most)
	if both := heavy - onlyS - onlyN + few; both > 1<<16 {
		t.Errorf("%d bytes for 10 problems on 200 points, %d for %d, %d for %d points, %d for both: %d "+
			"go with both", few, onlyS, problems, onlyN, most, heavy, both)
	}
}
