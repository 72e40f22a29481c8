package candidate

import (
	"testing"

	"gonum.org/v1/gonum/mat"

	"fmp/models/rng"
	"fmp/onnx/must"
)

// TestBetween: class means drawn by a prior from a corpus are B (B + W/n)^-1 m by dense matrices,
// of a basis of its own and of a fold that is taken away from the whole's, and the head is W^-1 of
// them.
func TestBetween(t *testing.T) {
	w := newWorld(3)
	r := &Round{K: w.k, C: w.c}
	for _, images := range []int{20, 20, 20, 1} { // the last is taken away from the whole's basis
		x, y := w.rows(images)
		r.Clients = append(r.Clients, upload(t, x, w.k, y, w.c))
	}
	random := rng.New(5, "between")
	means := make([]float32, 6*w.k)
	rng.Normal(random, means)
	r.Corpora = []Corpus{{Within: w.covariance(false), Means: means}}
	cands := must.Get(r.candidates())(t)
	s := must.Get(r.sum(1))(t)
	tried := 0
	for _, c := range cands {
		if c.prior == nil {
			continue
		}
		tried++
		p := s.without(3)
		whole := p.whole()
		b := whole.in(*c.target)
		own := b.at(c.strength, c.prior)
		got := b.head(own.linear())
		want := denseBetween(whole, own, &c)
		near(t, c.name+", by dense matrices", got.W[:len(want)], want, 1e-8)
		f := s.fold(p, c.target)
		if f.down == nil {
			t.Fatal("the fold has a basis of its own")
		}
		far := f.basis.head(f.at(c.strength, c.prior))
		near(t, c.name+", of a fold", far.W, got.W, 1e-6)
	}
	if tried != len(evens)*len(strengths[betweenStrengths:]) {
		t.Errorf("%d candidates have a prior of class means", tried)
	}
}

// denseBetween returns the weights of a head, [K, C], by dense matrices on features.
func denseBetween(p *pool, h *discriminant, c *candidate) []float64 {
	k := p.k
	v := mat.NewDense(k, k, h.v)
	var scaled, precision, within mat.Dense
	scaled.Apply(func(_, j int, x float64) float64 { return x * h.precision[j] }, v)
	precision.Mul(&scaled, v.T())
	if err := within.Inverse(&precision); err != nil {
		panic(err)
	}
	rows := mat.NewDense(len(c.prior.rows)/k, k, c.prior.rows)
	var low, along mat.Dense
	low.Mul(rows.T(), rows)
	along.Mul(&low, &precision)
	low.Scale((1-c.prior.even)/h.n0*float64(k)/mat.Trace(&along), &low)
	var even mat.Dense
	even.Scale(c.prior.even/h.n0, &within)
	low.Add(&low, &even)
	out := make([]float64, k*p.c)
	for y, n := range p.n {
		m := mat.NewVecDense(k, nil)
		for j := range k {
			m.SetVec(j, p.mean[y*k+j]-p.m0[j])
		}
		var all mat.Dense
		all.Scale(1/n, &within)
		all.Add(&all, &low)
		var x, mean, w mat.VecDense
		if err := x.SolveVec(&all, m); err != nil {
			panic(err)
		}
		mean.MulVec(&low, &x)
		w.MulVec(&precision, &mean)
		for j := range k {
			out[j*p.c+y] = w.AtVec(j)
		}
	}
	return out
}
