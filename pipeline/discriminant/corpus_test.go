package discriminant

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mat"

	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/pipeline/moments"
)

// corpusOf returns the moments of n images of a world.
func corpusOf(t *testing.T, w *world, n int) *Client {
	t.Helper()
	x, y := w.draw(7, n)
	means, within := must.Get2(moments.Compute(x, k, y, c, "corpus"))(t)
	return &Client{Means: means, Within: within}
}

// TestCorpusMeans: class means under a corpus are the posterior means of B = b((1-g) FF'/tr(W^-1
// FF') + g W/k), computed densely.
func TestCorpusMeans(t *testing.T) {
	w := newWorld(1, 0)
	p := must.Get(pool(w.clients(t, 4, 20)))(t)
	without := must.Get(p.head(nil))(t)
	known := must.Get(newCorpus(corpusOf(t, w, 200), k))(t)
	const noise, b = 0.8, 3.0
	for _, g := range []float64{0.05, 0.5} {
		h := &head{chol: without.chol, away: mat.NewDense(c, k, nil)}
		half := mat.NewDense(k, c, nil)
		for y := range c {
			for j := range k {
				h.away.Set(y, j, p.mean.At(y, j)-without.origin[j])
			}
		}
		must.Do(t, h.chol.SolveTo(half, h.away.T()))
		d := mat.DenseCopyOf(h.away)
		of := *known
		of.outside = g
		must.Do(t, of.shrink(h, half, p.n, noise, b))
		var ff, solved mat.Dense
		ff.Mul(of.between, of.between.T())
		must.Do(t, h.chol.SolveTo(&solved, &ff))
		trace := mat.Trace(&solved)
		for y := range c {
			n := p.n[y] / caution
			sum, prior := mat.NewDense(k, k, nil), mat.NewDense(k, k, nil)
			prior.Apply(func(i, j int, v float64) float64 {
				return b * ((1-g)*v/trace + g*without.within.At(i, j)/k)
			}, &ff)
			sum.Apply(func(i, j int, v float64) float64 { return n*v + noise*without.within.At(i, j) },
				prior)
			var inner, want mat.VecDense
			must.Do(t, inner.SolveVec(sum, d.RowView(y)))
			want.MulVec(prior, &inner)
			want.ScaleVec(n, &want)
			if got := h.away.RowView(y); !mat.EqualApprox(got, &want, 1e-9) {
				t.Errorf("g %v, class %d: %v, want %v", g, y, mat.Formatted(got.T()),
					mat.Formatted(want.T()))
			}
		}
	}
}

// TestCorpusCovariance: the prior of W is a mixture of a multiple of I and of the corpus's
// covariance of the same trace.
func TestCorpusCovariance(t *testing.T) {
	w := newWorld(1, 0)
	p := must.Get(pool(w.clients(t, 4, 20)))(t)
	known := must.Get(newCorpus(corpusOf(t, newWorld(2, 4), 200), k))(t)
	p.prior = known
	got, _, _, err := p.within()
	must.Do(t, err)
	unit := mat.Trace(p.scatter) / p.dof / k
	want := mat.NewSymDense(k, nil)
	for i := range k {
		for j := range k {
			target := corpusShare * known.within.At(i, j) * k / mat.Trace(known.within)
			if i == j {
				target += 1 - corpusShare
			}
			want.SetSym(i, j, (strength*k*unit*target+p.scatter.At(i, j))/(strength*k+p.dof))
		}
	}
	if !mat.EqualApprox(got, want, 1e-12) {
		t.Errorf("%v, want %v", mat.Formatted(got), mat.Formatted(want))
	}
}

// TestCorpus: a corpus of the clients' classes has evidence, and makes predictions from few images
// better; one of classes that lie apart elsewhere is not believed, and the heads are those without
// it, number for number.
func TestCorpus(t *testing.T) {
	const k, c = 120, 6
	// classes lie apart in c of the coordinates
	draw := func(seed uint64, n, from int) ([]float32, []int) {
		x, y := make([]float32, n*k), make([]int, n)
		rng.Normal(rng.New(seed, "rows"), x)
		for i := range y {
			y[i] = i % c
			x[i*k+from+y[i]] += 2.5
		}
		return x, y
	}
	send := func(x []float32, y []int, name string) Client {
		means, within := must.Get2(moments.Compute(x, k, y, c, name))(t)
		return Client{Means: means, Within: within}
	}
	corpusFrom := func(from int) *Client {
		x, y := draw(7, 600, from)
		u := send(x, y, "corpus")
		return &u
	}
	var clients []Client
	for m := range 10 {
		x, y := draw(uint64(100+m), 20, 0)
		clients = append(clients, send(x, y, fmt.Sprint(m)))
	}
	kappas := []float64{Unknown.Median}
	x, y := draw(9, 600, 0)
	fit := func(corpus *Client) (*Posterior, float64) {
		p := of(t, clients, Options{Seed: 1, Corpus: corpus})
		pooled := must.Get(pool(clients))(t)
		o := Options{Kappa: Unknown, Seed: 1, Stream: "test", Corpus: corpus}
		_, _, _, err := pooled.choose(o)
		must.Do(t, err)
		rows := mat.NewDense(len(y), k, nil)
		for i, v := range x {
			rows.RawMatrix().Data[i] = float64(v)
		}
		h := must.Get(pooled.head(rows))(t)
		return p, -must.Get(pooled.logLikelihood(h, rows, y, kappas, o))(t)[0] / float64(len(y))
	}
	base, plain := fit(nil)
	good, better := fit(corpusFrom(0))
	if !(good.Corpus > 0) || better > plain-0.02 {
		t.Errorf("a corpus of the same classes: evidence %.2f, NLL %.3f of %.3f",
			good.Corpus, better, plain)
	}
	pooled := must.Get(pool(clients))(t)
	evidence := func(prior *corpus) float64 {
		p := *pooled
		p.prior = prior
		h := must.Get(p.head(p.rows))(t)
		_, _, e, err := p.calibrate(h, Options{Kappa: Unknown, Seed: 1, Stream: "test"})
		must.Do(t, err)
		return e
	}
	known := must.Get(newCorpus(corpusFrom(0), k))(t)
	best := math.Inf(-1)
	for _, known.outside = range outside {
		best = max(best, evidence(known)-evidence(nil)-corpusOdds)
	}
	if math.Abs(good.Corpus-best) > 1e-9 {
		t.Errorf("evidence %v, want %v, prior odds included", good.Corpus, best)
	}
	bad, _ := fit(corpusFrom(k - c))
	for i, h := range bad.Heads {
		if !slices.Equal(h.W, base.Heads[i].W) {
			t.Fatalf("a corpus of other classes changed head %d; its evidence is %.2f", i, bad.Corpus)
		}
	}
	if !(bad.Corpus < 0) {
		t.Errorf("a corpus of other classes: evidence %.2f", bad.Corpus)
	}
	if one, _ := fit(&Client{Means: corpusFrom(0).Means, Within: &moments.Within{K: k}}); one.Corpus != 0 {
		t.Errorf("a corpus without scatter: evidence %.2f", one.Corpus)
	}
	must.Fail(newCorpus(corpusFrom(0), k+1))(t, "rows of 120 numbers, and the clients' have 121")
}
