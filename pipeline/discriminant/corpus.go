package discriminant

import (
	"fmt"
	"math"

	"fmp/pipeline/internal/moment"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// Constants of a corpus, chosen on ten classes of CIFAR-100 (docs/notes/moments.md).
const (
	corpusShare = 0.3 // s: of its covariance within classes in the target of W
	// corpusOdds is the log prior odds against a corpus, in nats. As a calibration point counts
	// pointWeight, the points must tell 4 nats more with it than without.
	corpusOdds = 2.0
)

// outside are shares of the variance of class means that a corpus leaves to directions beyond those
// of its own class means. Each is a candidate: the more the clients' classes are the corpus's, the
// smaller it is.
var outside = []float64{0.5, 0.2}

// corpus is a prior of class means and covariance from the moments of a server's own images, of any
// classes:
//
//	W = (nu0 ((1 - s) t I + s t W0) + S) / (nu0 + nu)
//	mu_c ~ N(m0, B),   B = b ((1 - g) F F' / tr(W^-1 F F') + g W / k)
//
// W0 is the corpus's covariance within classes, at the size tr W0 = k, and F F' the covariance of
// its class means, F [k, classes]. b = tr(W^-1 B) = k tau is estimated from the clients' class
// means, so that only shape is the corpus's. Without a
// corpus s = 0 and g = 1. The candidates, and none at all, are compared by the probability of the
// classes of the calibration points, over the prior of kappa.
type corpus struct {
	within  *mat.SymDense
	between *mat.Dense // F, [k, classes]
	outside float64    // g
}

// newCorpus returns the prior of a corpus's moments; nil where it has fewer than two classes or no
// scatter.
func newCorpus(u *Client, k int) (*corpus, error) {
	p, err := pool([]Client{*u})
	if err != nil {
		return nil, fmt.Errorf("corpus: %w", err)
	}
	if p.k != k {
		return nil, fmt.Errorf("discriminant: the corpus has rows of %d numbers, and the "+
			"clients' have %d; make both behind one client graph", p.k, k)
	}
	p.addCalibration()
	classes := held(p.n)
	trace := mat.Trace(p.scatter)
	if classes < 2 || !(trace > 0) || math.IsInf(trace, 0) {
		return nil, nil
	}
	c := &corpus{within: mat.NewSymDense(k, nil), between: mat.NewDense(k, classes, nil)}
	c.within.ScaleSym(float64(k)/trace, p.scatter)
	centre := make([]float64, k)
	for y, n := range p.n {
		if n > 0 {
			floats.AddScaled(centre, 1/float64(classes), p.mean.RawRowView(y))
		}
	}
	at := 0
	for y, n := range p.n {
		if n == 0 {
			continue
		}
		for j, v := range p.mean.RawRowView(y) {
			c.between.Set(j, at, (v-centre[j])/math.Sqrt(float64(classes-1)))
		}
		at++
	}
	return c, nil
}

// add adds weight ((1 - s) I + s W0 - I) to w, the posterior of a covariance whose prior is a
// multiple of I.
func (c *corpus) add(w *mat.SymDense, weight float64) {
	if c == nil {
		return
	}
	for i := range w.SymmetricDim() {
		for j := i; j < w.SymmetricDim(); j++ {
			v := c.within.At(i, j)
			if i == j {
				v--
			}
			w.SetSym(i, j, w.At(i, j)+weight*corpusShare*v)
		}
	}
}

// shrink replaces differences of class means from m0, rows of away, by their posterior means, (I -
// noise W (n B + noise W)^-1) d, where noise is the variance of an image in units of W and b the
// scale of B. half is W^-1 d, [k, C]. n counts n_c/caution images. With a = noise + n b g/k and
// e = n b (1 - g)/tr(W^-1 F F')
//
//	n B + noise W = a W + e F F'
//	W (a W + e F F')^-1 d = (d - F (a/e I + F'W^-1 F)^-1 F'W^-1 d) / a
//
// the second by Woodbury's identity.
func (c *corpus) shrink(h *head, half *mat.Dense, n []float64, noise, b float64) error {
	k, r := c.between.Dims()
	var solved, gram mat.Dense
	if err := h.chol.SolveTo(&solved, c.between); err != nil {
		return fmt.Errorf("discriminant: the corpus's class means: %w", err)
	}
	gram.Mul(c.between.T(), &solved)
	trace := mat.Trace(&gram)
	for y, n := range n {
		if n == 0 {
			continue
		}
		images := n / caution
		a, e := noise+images*b*c.outside/float64(k), images*b*(1-c.outside)/trace
		inner := moment.Symmetric(&gram)
		for i := range r {
			inner.SetSym(i, i, inner.At(i, i)+a/e)
		}
		var chol mat.Cholesky
		if !chol.Factorize(inner) {
			return fmt.Errorf("discriminant: the corpus's class means are no numbers that a " +
				"prior can be made of; leave the corpus out")
		}
		along, in := mat.NewVecDense(r, nil), mat.NewVecDense(k, nil)
		along.MulVec(c.between.T(), half.ColView(y))
		if err := chol.SolveVecTo(along, along); err != nil {
			return fmt.Errorf("discriminant: the corpus's class means: %w", err)
		}
		in.MulVec(c.between, along)
		row := h.away.RawRowView(y)
		floats.Scale(1-noise/a, row)
		floats.AddScaled(row, noise/a, in.RawVector().Data)
	}
	return nil
}

// choose returns values of kappa and their weights given the calibration points, under the
// candidate of most evidence, which it keeps for the heads; evidence is that of the best corpus.
func (p *pooled) choose(o Options) (kappas, weights []float64, evidence float64, err error) {
	h, err := p.head(p.rows)
	if err != nil {
		return nil, nil, 0, err
	}
	kappas, weights, base, err := p.calibrate(h, o)
	if err != nil || o.Corpus == nil {
		return kappas, weights, 0, err
	}
	known, err := newCorpus(o.Corpus, p.k)
	if err != nil || known == nil {
		p.unread = "the corpus's images are of one class, or do not differ within classes"
		return kappas, weights, 0, err
	}
	p.unread = ""
	evidence = math.Inf(-1)
	for _, g := range outside {
		c := *known
		c.outside = g
		try := *p
		try.prior = &c
		if h, err = try.head(p.rows); err != nil {
			return nil, nil, 0, err
		}
		k, w, e, err := try.calibrate(h, o)
		if err != nil {
			return nil, nil, 0, err
		}
		if e -= base + corpusOdds; e > evidence {
			if evidence = e; e > 0 {
				kappas, weights, p.prior = k, w, &c
			}
		}
	}
	return kappas, weights, evidence, nil
}
