package erm

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"fmp/onnx/must"
)

// withHead sets a head of random numbers.
func withHead(p *Problem) *Theta {
	r := rand.New(rand.NewPCG(3, 9))
	t := NewTheta(p.D(), p.C)
	for i := range t.W {
		t.W[i] = .2 * r.NormFloat64()
	}
	return &t
}

// Fits in float32 end where the gradient, recomputed in float64 by other code, is within the
// tolerance, and report that gradient and objective.
func TestApproach(t *testing.T) {
	const tolerance = 1e-6
	for _, k := range []struct {
		n, dx, c        int
		l2              float64
		centred, warmer bool
	}{
		{n: 300, dx: 64, c: 10, l2: 3}, {n: 1000, dx: 20, c: 3, l2: 1}, {n: 333, dx: 300, c: 5, l2: 3},
		{n: 333, dx: 300, c: 12, l2: 3}, {n: 150, dx: 300, c: 3, l2: 2, centred: true, warmer: true},
		{n: 500, dx: 30, c: 2, l2: 1}, {n: 501, dx: 40, c: 2, l2: 3, centred: true},
		{n: 700, dx: 33, c: 11, l2: 2, warmer: true},
	} {
		name := fmt.Sprintf("%+v", k)
		p := random(5, k.n, k.dx, k.c, k.l2)
		if k.centred {
			p.Centre = withHead(p)
		}
		if k.warmer {
			p.Start = withHead(p)
		}
		s := must.Get(Solve(t.Context(), p, Options{Tolerance: tolerance}))(t)
		if s.Steps != 0 || s.Products < 2 {
			t.Errorf("%s: %d steps of Newton's method after %d products; want none", name, s.Steps,
				s.Products)
		}
		if k.c > 2 { // two become one head before
			opt, _ := Options{Tolerance: tolerance}.withDefaults()
			if direct, _, _, err := new(approach).fit(t.Context(), p, opt); err != nil || direct == nil {
				t.Errorf("%s: Newton's method had to check, %v", name, err)
			}
		}
		var w workspace
		w.prepare(p, nil)
		transposeInto(w.theta, &s.Theta, w.d, w.c)
		w.forward(w.theta, w.logits)
		f := w.loss(w.logits, w.prob)
		w.gradient()
		f += p.L2 / 2 * dot(w.away, w.away)
		norm := math.Sqrt(dot(w.grad, w.grad))
		if limit := tolerance * w.own.scale; !(norm <= limit*(1+1e-6)) ||
			math.Abs(norm-s.GradientNorm) > 1e-6*limit {
			t.Errorf("%s: gradient %v, reported %v, limit %v", name, norm, s.GradientNorm, limit)
		}
		if math.Abs(f-s.Objective) > 1e-9*f {
			t.Errorf("%s: objective %v, reported %v", name, f, s.Objective)
		}
	}
}

// Where directions differ too much for the diagonal, Newton's method takes over.
func TestApproachGivesUp(t *testing.T) {
	p := random(1, 60, 50, 4, 1e-4)
	for i := range p.N {
		row := p.X[i*p.D():][:p.Dx]
		for range 2 {
			for j := range row[1:] {
				row[j+1] += row[j]
			}
		}
	}
	s := must.Get(Solve(t.Context(), p, Options{Tolerance: 1e-6}))(t)
	if s.Steps == 0 {
		t.Errorf("the approach did it in %d products", s.Products)
	}
}

// A fit to two classes as one head has the minimiser of two heads, also where labels do not quite
// sum to 1, with a centre whose mean is not 0, and from a start.
func TestTwoClasses(t *testing.T) {
	for _, k := range []struct {
		n, dx        int
		sum          float64
		centred, far bool
	}{{n: 200, dx: 30, sum: 1}, {n: 40, dx: 90, sum: .9995}, {n: 200, dx: 30, sum: 1.0005, centred: true},
		{n: 30, dx: 60, sum: 1, centred: true, far: true}} {
		p := random(8, k.n, k.dx, 2, .5)
		for i := range p.Y {
			p.Y[i] *= k.sum
		}
		if k.centred {
			p.Centre = withHead(p)
		}
		if k.far {
			p.Start = withHead(p)
		}
		opt := must.Get(Options{Tolerance: 1e-12}.withDefaults())(t)
		for _, double := range []bool{false, true} {
			opt.Double = double
			got := must.Get(Solve(context.Background(), p, opt))(t)
			var w workspace
			w.prepare(p, nil)
			want := must.Get(w.solve(t.Context(), p.Start, opt, nil))(t)
			if d := furthest(got.Theta.W, want.Theta.W); !(d <= 1e-8) {
				t.Errorf("%+v, double %t: heads differ by %v", k, double, d)
			}
			if math.Abs(got.Objective-want.Objective) > 1e-10*want.Objective {
				t.Errorf("%+v: objective %v, want %v", k, got.Objective, want.Objective)
			}
		}
	}
}

// The diagonal is renewed as that of the Hessian, computed by other code, whether points are read by
// rows or not and however many blocks they make.
func TestRenew(t *testing.T) {
	for _, k := range []struct{ n, dx, c int }{{30, 60, 3}, {30, 300, 3}, {checkPoints + 44, 310, 12}} {
		p := random(7, k.n, k.dx, k.c, 2)
		p.Start = withHead(p)
		a := new(approach)
		a.prepare(p)
		a.precondition()
		a.renew()
		h := NewObjective(p).Hessian(a.theta)
		for i, v := range a.inverse {
			if want := h.At(i, i); math.Abs(1/v-want) > 1e-9*want {
				t.Fatalf("%+v: the diagonal's number %d is %v; want %v", k, i, 1/v, want)
			}
		}
	}
}
