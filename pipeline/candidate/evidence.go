package candidate

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/lapack/lapack64"

	"fmp/models/rng"
	"fmp/pipeline/moments"
)

const (
	// evidenceDraws is the number of residuals drawn about a class mean.
	evidenceDraws = 12
	// surprises is the number of images of a random class that every round is taken to hold: where no image errs, the temperature is not 0.
	surprises = 1
)

// asked are the rows that stand for one client's images: for each class mean, its residuals' draws about it.
type asked struct {
	cells []cell
	draws int       // a cell; 1 where the client sent no scatter
	rows  []float64 // [cells, draws, K]
}

// residuals returns draws of a client's residuals, [n, K]; nil where it sent no scatter.
type residuals func(client, n int) []float64

// residuals draws from a client's scatter: root z with a root of it and z of N(0, I).
func (o *Options) residuals(r *Round) residuals {
	return func(client, n int) []float64 {
		w := r.Clients[client].Within
		if w == nil || w.Dof == 0 {
			return nil
		}
		k, at := r.K, rng.New(o.Seed, "candidate", o.Stream, "residuals", client)
		root, rank := rootOf(w)
		z := make([]float64, n*rank)
		for i := range z {
			z[i] = at.NormFloat64()
		}
		return times(z, root, n, rank, k)
	}
}

// rootOf returns F, [rank, K], with F'F the covariance of a scatter.
func rootOf(w *moments.Within) ([]float64, int) {
	k, f := w.K, 1/math.Sqrt(float64(w.Dof))
	if w.Rank > 0 {
		root := make([]float64, len(w.Data))
		widen(root, w.Data)
		scale(f, root)
		return root, w.Rank
	}
	s := make([]float64, k*k)
	w.AddTo(s)
	var mean float64
	for i := range k {
		mean += s[i*k+i] / float64(k)
	}
	for add := 1e-7 * mean; ; add *= 10 { // float32 rounded the scatter, which may not be positive definite
		a := blas64.Symmetric{N: k, Stride: k, Data: slices.Clone(s), Uplo: blas.Upper}
		for i := range k {
			a.Data[i*k+i] += add
		}
		if t, ok := lapack64.Potrf(a); ok || !(mean > 0) {
			for i := range k {
				clear(t.Data[i*k : i*k+i])
				scale(f, t.Data[i*k+i:(i+1)*k])
			}
			return t.Data, k
		}
	}
}

// asked returns the rows for which the head of the other clients is asked about a client: of classes that they hold too.
func (r *Round) asked(client int, rest *pool, draw residuals) asked {
	a := asked{draws: 1}
	for _, v := range r.Clients[client].cells() {
		if rest.held(v.class) {
			a.cells = append(a.cells, v)
		}
	}
	z := draw(client, len(a.cells)*evidenceDraws)
	if z != nil {
		a.draws = evidenceDraws
	}
	k := r.K
	a.rows = make([]float64, len(a.cells)*a.draws*k)
	for i, v := range a.cells {
		for j := range a.draws {
			at := (i*a.draws + j) * k
			row := a.rows[at : at+k]
			widen(row, v.mean)
			if z != nil {
				axpy(math.Sqrt(1-1/v.n), z[at:at+k], row)
			}
		}
	}
	return a
}

// evidence returns the log-likelihood [folds, candidates] at each temperature by leaving a group of clients out at a time.
func (r *Round) evidence(s *sums, cands []candidate, draw residuals, o *Options) ([][]moments.Curve, error) {
	out := make([][]moments.Curve, len(s.folds))
	err := each(len(s.folds), o.Threads, func(g int) error {
		out[g] = make([]moments.Curve, len(cands))
		if len(s.folds) == 1 {
			return nil
		}
		rest := s.without(g)
		var a []asked
		for _, i := range s.folds[g] {
			a = append(a, r.asked(i, rest, draw))
		}
		var others []int
		for h, fold := range s.folds {
			if h != g {
				others = append(others, fold...)
			}
		}
		slices.Sort(others)
		var b *basis
		for j := range cands {
			c := &cands[j]
			if j == 0 || c.target != cands[j-1].target {
				b = rest.in(*c.target)
			}
			h := b.at(c.strength)
			w, bias := h.weights(), h.bias
			if c.corpus != nil {
				var err error
				if w, bias, err = r.named(h, c.corpus, others, o); err != nil {
					return err
				}
			}
			for i := range a {
				u := b.of(a[i].rows, len(a[i].cells)*a[i].draws) // of small cost beside the basis
				l := timesT(u, w, len(u)/b.k, b.k, b.c)
				a[i].add(&out[g][j], l, bias, s.images)
			}
		}
		return nil
	})
	return out, err
}

// add adds the log-likelihood of a client's rows with logits l + bias, l of [rows, C].
func (a *asked) add(to *moments.Curve, l, bias []float64, images float64) {
	c := len(bias)
	p := make([]float64, c)
	for i, v := range a.cells {
		weight := v.n / float64(a.draws)
		for d := range a.draws {
			row := l[(i*a.draws+d)*c:][:c]
			var mean float64
			for y := range row {
				row[y] += bias[y]
				mean += row[y] / float64(c)
			}
			top := slices.Max(row)
			for t := range to {
				at := 1 / moments.Temperature(t)
				var sum float64
				for y, x := range row {
					p[y] = math.Exp((x - top) * at)
					sum += p[y]
				}
				lse := top*at + math.Log(sum)
				to[t] += weight * (row[v.class]*at - lse + surprises/images*(mean*at-lse))
			}
		}
	}
}
