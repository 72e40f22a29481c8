package open

import (
	"fmt"
	"slices"

	"fmp/pipeline/internal/moment"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
)

// White returns the map [dx, k] of differences of class means of softened features to coordinates
// in which the covariance within the corpus's classes is I, and the map [k, dx] of these to
// differences of class means.
func (p *Predictor) White() (to, back *mat.Dense, err error) {
	k := len(p.M0)
	at, err := p.frame()
	if err != nil {
		return nil, nil, fmt.Errorf("open predictor: %w", err)
	}
	var inv mat.Dense
	if err := inv.Solve(&at.l, mat.NewDiagDense(k, slices.Repeat([]float64{1}, k))); err != nil {
		return nil, nil, fmt.Errorf("open predictor: covariance within classes: %w", err)
	}
	to, back = mat.DenseCopyOf(inv.T()), mat.DenseCopyOf(at.l.T())
	if p.Projection != nil { // of orthonormal columns
		var a, b mat.Dense
		a.Mul(p.Projection, to)
		b.Mul(back, p.Projection.T())
		to, back = &a, &b
	}
	return to, back, nil
}

// Moved returns the predictor for images whose features are all shifted by b [dx].
func (p *Predictor) Moved(b []float64) *Predictor {
	out := *p
	by := p.project(b)
	out.M0 = make([]float64, len(by))
	floats.AddTo(out.M0, p.M0, by)
	out.Known = mat.DenseCopyOf(p.Known)
	classes, _ := out.Known.Dims()
	for y := range classes {
		floats.Add(out.Known.RawRowView(y), by)
	}
	return &out
}

// Wider returns the predictor for images of clients whose effects have a covariance [dx, dx]: it
// adds to that within classes.
func (p *Predictor) Wider(effects *mat.SymDense) *Predictor {
	out := *p
	if p.Projection != nil {
		var half, of mat.Dense
		half.Mul(p.Projection.T(), effects)
		of.Mul(&half, p.Projection)
		effects = moment.Symmetric(&of)
	}
	out.W = new(mat.SymDense)
	out.W.AddSym(p.W, effects)
	return &out
}

// Unshift returns an image's estimate of its client's effect b, a linear map of its softened
// features phi: E[b | phi] = phi A - c, with A [dx, dx] and c [dx]. effects [dx, dx] is the
// covariance of b. It reads the coordinates o in which the corpus's class means do not differ, and
// W is I:
//
//	E[b | phi] = Cov(b, o) (I + Cov(o_b))^-1 o,  o_b = the part of b there
//
// as an image's own noise is I there, beside its client's o_b. The corpus's classes do
// not move o, so that it tells of the effect alone.
// A is nil where the corpus's class means differ in all coordinates.
func (p *Predictor) Unshift(effects *mat.SymDense) (a *mat.Dense, c []float64, err error) {
	at, err := p.frame()
	if err != nil {
		return nil, nil, fmt.Errorf("client effects: %w", err)
	}
	if at.span == nil {
		return nil, nil, nil
	}
	white, _, err := p.White()
	if err != nil {
		return nil, nil, err
	}
	dx, k := white.Dims()
	q := mat.NewDense(k, k, nil) // projects on the complement of the span
	q.Mul(at.span, at.span.T())
	q.Scale(-1, q)
	for i := range k {
		q.Set(i, i, q.At(i, i)+1)
	}
	var out, cross, within mat.Dense
	out.Mul(white, q)        // [dx, k]
	cross.Mul(effects, &out) // Cov(b, o) [dx, k]
	within.Mul(out.T(), &cross)
	for i := range k {
		within.Set(i, i, within.At(i, i)+1)
	}
	var gain mat.Dense // (I + Cov(o))^-1 Cov(o, b) [k, dx]
	if err := gain.Solve(&within, cross.T()); err != nil {
		return nil, nil, fmt.Errorf("client effects: %w", err)
	}
	a = mat.NewDense(dx, dx, nil)
	a.Mul(&out, &gain)
	var u, o, b mat.VecDense
	if err := u.SolveVec(&at.l, mat.NewVecDense(k, p.M0)); err != nil {
		return nil, nil, fmt.Errorf("client effects: %w", err)
	}
	o.MulVec(q, &u)
	b.MulVec(gain.T(), &o)
	return a, b.RawVector().Data, nil
}
