package domains

import (
	"math"
	"testing"

	"gonum.org/v1/gonum/mat"

	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/pipeline/internal/moment"
	"fmp/pipeline/point"
)

// drawn returns n rows of a Gaussian whose covariance is that of a random matrix with the given
// scale.
func drawn(n, d int, scale, mean float64, name string) *mat.Dense {
	r := rng.New(1, "align", name)
	var x, mix = mat.NewDense(n, d, nil), mat.NewDense(d, d, nil)
	x.Apply(func(_, _ int, _ float64) float64 { return r.NormFloat64() }, x)
	mix.Apply(func(i, j int, _ float64) float64 { return scale * r.NormFloat64() }, mix)
	x.Mul(x, mix)
	x.Apply(func(_, j int, v float64) float64 { return v + mean*float64(j) }, x)
	return x
}

func near(t *testing.T, name string, a, b mat.Matrix, tolerance float64) {
	t.Helper()
	if !mat.EqualApprox(a, b, tolerance) {
		t.Errorf("%s: %.4g\nwant %.4g", name, mat.Formatted(a), mat.Formatted(b))
	}
}

// TestTransport: at strength 0 features are as they were; at 1 a client's mean and covariance are
// the barycenter's; halfway its distance to the barycenter is half of the whole, as on a geodesic.
func TestTransport(t *testing.T) {
	var of []gaussian
	rows := []*mat.Dense{drawn(60, 4, 1, 0, "a"), drawn(30, 4, 2, 1, "b"), drawn(10, 4, 0.5, -1, "c")}
	for _, x := range rows {
		of = append(of, must.Get(gaussianOf(x))(t))
	}
	center := barycenter(of)
	for m, g := range of {
		p := g.onto(center)
		near(t, "strength 0", p.along(rows[m], 0), rows[m], 1e-12)
		var moved mat.Dense
		moved.Product(p.a, g.cov, p.a)
		near(t, "covariance at strength 1", &moved, center.cov, 1e-6)
		near(t, "mean at strength 1", p.along(mat.NewDense(1, 4, g.mean), 1),
			mat.NewDense(1, 4, center.mean), 1e-9)
		// The squared Bures-Wasserstein distance of the covariances, tr C + tr S - 2 tr (C^1/2 S
		// C^1/2)^1/2.
		squared := func(c mat.Symmetric) float64 {
			root, _ := roots(c)
			cross, _ := roots(sandwich(root, center.cov))
			return mat.Trace(c) + mat.Trace(center.cov) - 2*mat.Trace(cross)
		}
		half := mat.NewDense(4, 4, nil)
		for i := range 4 {
			half.Set(i, i, 1)
		}
		half.Add(half, p.a)
		half.Scale(0.5, half)
		if whole, of := squared(g.cov), squared(sandwich(half, g.cov)); math.Abs(of/whole-0.25) > 1e-4 {
			t.Errorf("halfway the squared distance is %v of the whole; want 0.25", of/whole)
		}
	}
}

// TestBarycenter: of Gaussians whose covariances commute it is the weighted mean of their square
// roots, squared; of one it is that one. Its fixed point has the weighted mean of the transports
// from it as the identity.
func TestBarycenter(t *testing.T) {
	a := gaussian{30, []float64{0, 0}, mat.NewSymDense(2, []float64{1, 0, 0, 4})}
	b := gaussian{10, []float64{4, 8}, mat.NewSymDense(2, []float64{25, 0, 0, 16})}
	got := barycenter([]gaussian{a, b})
	near(t, "covariance", got.cov, mat.NewSymDense(2, []float64{4, 0, 0, 6.25}), 1e-6)
	near(t, "mean", mat.NewDense(1, 2, got.mean), mat.NewDense(1, 2, []float64{1, 2}), 1e-12)
	if one := barycenter([]gaussian{b}); !mat.EqualApprox(one.cov, b.cov, 1e-9) {
		t.Errorf("the barycenter of one is %v", mat.Formatted(one.cov))
	}
	var of []gaussian
	for _, x := range []*mat.Dense{drawn(60, 5, 1, 0, "a"), drawn(20, 5, 2, 1, "b"), drawn(8, 5, 0.5, -1, "c")} {
		of = append(of, must.Get(gaussianOf(x))(t))
	}
	center := barycenter(of)
	sum, identity := mat.NewDense(5, 5, nil), mat.NewDense(5, 5, nil)
	for _, g := range of {
		p := center.onto(g)
		var part mat.Dense
		part.Scale(g.n/center.n, p.a)
		sum.Add(sum, &part)
	}
	for i := range 5 {
		identity.Set(i, i, 1)
	}
	near(t, "mean transport from the barycenter", sum, identity, 1e-5)
}

// TestAligned: two clients of one distribution, whose features have other scales and means, have
// the same features on the average at strength 1, and their classes and weights as before; more
// features than are aligned become principal components.
func TestAligned(t *testing.T) {
	for _, d := range []int{3, most + 40} {
		v := view{scored: [][]float32{nil}}
		var unlabelled [][]float32
		for m := range 2 {
			x := drawn(30, d, 1, 0, "x")
			x.Apply(func(_, _ int, v float64) float64 { return v*float64(1+m) + float64(3*m) }, x)
			c := point.New(30, d, 2)
			for i := range c.N {
				c.Row(i)[d+i%2], c.W[i] = 1, 2
			}
			v.clients = append(v.clients, withFeatures(c, x))
			if m == 1 {
				v.scored[0], unlabelled = float32s(x), [][]float32{float32s(x)}
			}
		}
		views := must.Get(aligned(v, unlabelled))(t)
		if len(views) != len(strengths) {
			t.Fatalf("%d views of %d strengths", len(views), len(strengths))
		}
		last := views[len(views)-1]
		a, b := last.clients[0], last.clients[1]
		if (a.Dx == d) != (d <= most) || a.Dx > d || a.W[3] != 2 || a.Row(3)[a.Dx+1] != 1 ||
			a.Row(3)[a.Dx] != 0 {
			t.Errorf("a client's points have %d features of %d, weight %v and label %v",
				a.Dx, d, a.W[3], a.Row(3)[a.Dx:])
		}
		near(t, "clients at strength 1", features(a), features(b), 1e-2)
		near(t, "images of a domain at strength 1", moment.Rows(last.scored[0], a.Dx), features(b), 1e-3)
		if mat.EqualApprox(features(views[0].clients[0]), features(views[0].clients[1]), 0.1) {
			t.Error("at the least strength the clients are alike already")
		}
	}
}
