package rival

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"fmp/models/rng"
	"fmp/onnx/must"
	"fmp/pipeline/point"
)

// TestFisher: the subspace whitens the shrunk covariance within classes and has no more dimensions
// than classes less one where these differ along so many; heads lie in it; on Gaussian classes they
// are as right as the discriminant.
func TestFisher(t *testing.T) {
	const dx, c = 6, 3
	w := newWorld(1, dx, c, 4)
	task := newTestTask(t, w.input(t, 2, 6, 40))
	f := must.Get(task.fisher(0.05))(t)
	if f.k != c-1 {
		t.Errorf("%d dimensions separate %d classes", f.k, c)
	}
	if !mat.EqualApprox(f.pooled, identity(f.k), 1e-5) {
		t.Errorf("covariance within classes in the subspace\n%v", mat.Formatted(f.pooled))
	}
	x, y := w.draw(rng.New(3, "test"), 2000)
	right := func(m Method) float64 {
		s := DefaultSettings()
		s.Shrinkage = 0.05
		r := must.Get(m.Run(context.Background(), task, s))(t)
		head := r.Ensembles[0][0]
		var svd mat.SVD
		if svd.Factorize(mat.NewDense(dx, c, head.W[:dx*c]), mat.SVDNone); m.Info().Name != "GH-LDA" &&
			svd.Values(nil)[f.k] > 1e-6*svd.Values(nil)[0] {
			t.Errorf("%s: weights have singular values %v in a subspace of %d dimensions",
				m.Info().Name, svd.Values(nil), f.k)
		}
		p := probabilities(t, r, x)
		n := 0.0
		for i, truth := range y {
			if floats.MaxIdx(p.Row(i)) == truth {
				n++
			}
		}
		return n / float64(len(y))
	}
	if got, want := right(fisherMix), right(ghlda); math.Abs(got-want) > 0.02 {
		t.Errorf("FisherMix is right on %.3f, GH-LDA on %.3f", got, want)
	}
}

// TestFedCGSCorpus: without shrinkage it is FedCGS; wholly shrunk its covariance is the corpus's,
// in the size of the clients' own.
func TestFedCGSCorpus(t *testing.T) {
	const dx, c = 5, 3
	w := newWorld(1, dx, c, 3)
	in := w.input(t, 2, 4, 30)
	task := newTestTask(t, in)
	run := func(m Method, shrinkage float64) []float64 {
		s := DefaultSettings()
		s.Shrinkage, s.Spread = shrinkage, 0
		return must.Get(m.Run(context.Background(), task, s))(t).Ensembles[0][0].W
	}
	if a, b := run(fedcgsCorpus, 0), run(fedcgs, 0); !floats.EqualApprox(a, b, 1e-9) {
		t.Errorf("without shrinkage %v, FedCGS %v", a[:3], b[:3])
	}
	stats := task.statistics()
	own := must.Get(stats.within())(t)
	var whole, weights mat.Dense
	whole.Scale(mat.Trace(own)/mat.Trace(in.Corpus.Within), in.Corpus.Within)
	must.Do(t, weights.Solve(&whole, stats.means().T()))
	if got := run(fedcgsCorpus, 1)[:dx*c]; !floats.EqualApprox(got, weights.RawMatrix().Data, 1e-8) {
		t.Errorf("wholly shrunk %v; want %v", got[:3], weights.RawMatrix().Data[:3])
	}
}

// TestOneImageOfAClass: where no class has two different images, methods of the covariance within
// classes say so, whatever the rounding; one that has the corpus's takes that.
func TestOneImageOfAClass(t *testing.T) {
	w := newWorld(1, 5, 3, 3)
	known := w.input(t, 1, 2, 4).Corpus
	for name, x := range map[string]struct {
		rows []int // a class's
		ok   bool
	}{
		"one":       {[]int{0}, false},
		"the same":  {[]int{0, 0, 0}, false},
		"different": {[]int{0, 1}, true},
	} {
		for seed := range uint64(8) {
			features, _ := w.draw(rng.New(seed, "points"), 2*w.c)
			in := Input{Corpus: known, Seed: 1, Stream: "test"}
			for c := range w.c {
				var rows []float32
				for _, i := range x.rows {
					rows = append(rows, features[(2*c+i)*w.dx:(2*c+i+1)*w.dx]...)
				}
				in.Clients = append(in.Clients, must.Get(point.FromLabelled(rows, w.dx,
					slices.Repeat([]int{c}, len(x.rows)), w.c))(t))
			}
			task := newTestTask(t, in)
			for _, m := range []Method{fedcgs, ghlda, ghqda, fisherMix, fedcgsCorpus} {
				_, err := m.Run(context.Background(), task, DefaultSettings())
				if ok := x.ok || m.Info().NeedsCorpus; (err == nil) != ok ||
					!ok && !strings.Contains(err.Error(), "no class has two different images") {
					t.Errorf("%s image of seed %d: %s: %v", name, seed, m.Info().Name, err)
				}
			}
		}
	}
}
