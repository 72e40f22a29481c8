package rival

import (
	"context"
	"fmt"

	"fmp/pipeline/posterior"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
)

// minVariance keeps the precision finite for a coordinate whose samples agree.
const minVariance = 1e-8

// maxDense bounds the dense matrices of full covariances and of BNN preconditioners (dimension dx+1
// times C). One matrix of that dimension takes 512 MiB.
const maxDense = 8192

// weightings are the values that the tuned protocol tries.
var weightings = []Param{{ParamWeighting, []float64{0, 1}}}

// consensus combines the i-th samples of all clients, weighted by precision (Scott et al. 2016,
// section 3):
//
//	theta_i = (sum_m P_m)^-1 sum_m P_m theta_mi,   P_m = inverse covariance of client m's samples,
//
// which is exact for Gaussian subposteriors. The covariance is diagonal, or full with shrinkage.
// With a weighting of 0 the clients count equally: P_m = I.
//
// All clients have as many samples, S, two at least, and heads of one size D x C. The diagonal form
// costs O(M S D C) for M clients.
func consensus(ctx context.Context, locals []posterior.Ensemble,
	s Settings) (posterior.Ensemble, error) {
	samples := len(locals[0])
	if samples < 2 {
		return nil, fmt.Errorf("consensus from %d sample a client; covariances need at least 2: "+
			"raise posterior.samples", samples)
	}
	if s.Covariance == Full && s.Weighting == 1 {
		return fullConsensus(ctx, locals)
	}
	d, c := locals[0][0].D, locals[0][0].C
	out := make(posterior.Ensemble, samples)
	for i := range out {
		out[i] = posterior.Theta{D: d, C: c, W: make([]float64, d*c)}
	}
	total, column := make([]float64, d*c), make([]float64, samples)
	for _, e := range locals {
		for k := range total {
			for i := range e {
				column[i] = e[i].W[k]
			}
			// Of equal weights the consensus is the mean of the clients' i-th samples.
			precision := 1.0
			if s.Weighting == 1 {
				precision = 1 / max(stat.Variance(column, nil), minVariance)
			}
			total[k] += precision
			for i, v := range column {
				out[i].W[k] += precision * v
			}
		}
	}
	for i := range out {
		floats.Div(out[i].W, total)
	}
	return out, nil
}

// fullConsensus is [consensus] with full covariances: one Cholesky decomposition of sum_m P_m
// solves for all samples. With p = D C numbers a head, and S samples fewer than p, it costs O(M S
// p^2 + p^3). It holds some matrices of p x p. A head of more than maxDense numbers is an error.
func fullConsensus(ctx context.Context, locals []posterior.Ensemble) (posterior.Ensemble, error) {
	d, c, samples := locals[0][0].D, locals[0][0].C, len(locals[0])
	dim := d * c
	if dim > maxDense {
		return nil, fmt.Errorf("full covariance of %d numbers a head; allowed are %d: "+
			"use the diagonal", dim, maxDense)
	}
	total := mat.NewSymDense(dim, nil)
	sum := mat.NewDense(samples, dim, nil)
	for m, e := range locals {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		x := mat.NewDense(samples, dim, nil)
		for i := range e {
			x.SetRow(i, e[i].W)
		}
		p, err := shrunkPrecision(x)
		if err != nil {
			return nil, fmt.Errorf("client %d: %w", m, err)
		}
		total.AddSym(total, p)
		var weighted mat.Dense
		weighted.Mul(x, p)
		sum.Add(sum, &weighted)
	}
	var chol mat.Cholesky
	if !chol.Factorize(total) {
		return nil, fmt.Errorf("the sum of the clients' precisions is singular; use the diagonal")
	}
	var solved mat.Dense // dim x samples
	if err := chol.SolveTo(&solved, sum.T()); err != nil {
		return nil, fmt.Errorf("the sum of the clients' precisions: %w; use the diagonal", err)
	}
	out := make(posterior.Ensemble, samples)
	for i := range out {
		out[i] = posterior.Theta{D: d, C: c, W: mat.Col(nil, i, &solved)}
	}
	return out, nil
}

// shrunkPrecision returns the inverse of the covariance of the rows of x (n x p), shrunk as
// [LedoitWolf] says. Where there are fewer samples than dimensions it comes from the Woodbury
// identity: (a I + b X'X)^-1 = (I - X' (a/b I + G)^-1 X) / a with G = XX'. Here a = r mu, with the
// floor minVariance, and b = (1-r)/n. That costs O(n^2 p + n p^2) in place of O(n p^2 + p^3).
func shrunkPrecision(x *mat.Dense) (*mat.SymDense, error) {
	n, p := x.Dims()
	centred := mat.NewDense(n, p, nil)
	column := make([]float64, n)
	for j := range p {
		mat.Col(column, j, x)
		mean := stat.Mean(column, nil)
		for i, v := range column {
			centred.Set(i, j, v-mean)
		}
	}
	r, mu, outer, err := LedoitWolf(centred)
	if err != nil {
		return nil, err
	}
	return inverse(centred, outer, max(r*mu, minVariance), (1-r)/float64(n))
}

// LedoitWolf returns the share r and the variance mu that the covariance S = X'X/n of centred rows
// X (n x p) is shrunk with:
//
//	(1-r) S + r mu I,   mu = tr(S)/p,   r = min(b^2, d^2) / d^2,
//	d^2 = |S - mu I|^2,   b^2 = 1/n^2 sum_k |x_k x_k' - S|^2
//
// (Ledoit and Wolf 2004, "A well-conditioned estimator for large-dimensional covariance matrices"),
// and the smaller of XX' and X'X, which has the trace and the norm of n S. That makes the cost
// O(n p min(n, p)). Rows that are all alike are an error.
func LedoitWolf(centred *mat.Dense) (r, mu float64, outer *mat.SymDense, err error) {
	n, p := centred.Dims()
	outer = &mat.SymDense{}
	fn := float64(n)
	few := n < p
	if few {
		outer.SymOuterK(1, centred)
	} else {
		outer.SymOuterK(1, centred.T())
	}
	trace := mat.Trace(outer) / fn
	norm := mat.Norm(outer, 2) / fn
	square := norm * norm
	var product mat.Dense
	if few {
		product.CloneFrom(outer)
	} else {
		product.Mul(centred, outer)
	}
	mu = trace / float64(p)
	if !(mu > 0) {
		return 0, 0, nil, fmt.Errorf("the samples are all alike; a covariance needs " +
			"samples that differ")
	}
	d2 := square - mu*mu*float64(p) // <S, mu I> = |mu I|^2 = p mu^2
	var b2 float64
	for k := range n {
		row := centred.RawRowView(k)
		length := floats.Dot(row, row)
		// |x_k x_k' - S|^2 = |x_k|^4 - 2 x_k' S x_k + |S|^2.
		// n x_k' S x_k: the square of G's row k, or x_k' (X'X) x_k.
		along := floats.Dot(product.RawRowView(k), product.RawRowView(k))
		if !few {
			along = floats.Dot(product.RawRowView(k), row)
		}
		b2 += (length*length - 2*along/fn + square) / (fn * fn)
	}
	r = 1
	if d2 > 0 {
		r = min(b2/d2, 1)
	}
	return r, mu, outer, nil
}

// inverse returns (aI + bX'X)^-1. outer is X'X, or XX' where that is smaller (by Woodbury's
// identity), and is overwritten.
func inverse(x *mat.Dense, outer *mat.SymDense, a, b float64) (*mat.SymDense, error) {
	n, p := x.Dims()
	out := mat.NewSymDense(p, nil)
	if n >= p {
		out.ScaleSym(b, outer)
		for j := range p {
			out.SetSym(j, j, out.At(j, j)+a)
		}
		var chol mat.Cholesky
		if !chol.Factorize(out) {
			return nil, fmt.Errorf("covariance of %d samples of %d numbers is singular at "+
				"shrinkage %v; raise posterior.samples", n, p, 1-b*float64(n))
		}
		return out, chol.InverseTo(out)
	}
	for j := range p {
		out.SetSym(j, j, 1/a)
	}
	if b == 0 {
		return out, nil
	}
	for k := range n {
		outer.SetSym(k, k, outer.At(k, k)+a/b)
	}
	var chol mat.Cholesky
	if !chol.Factorize(outer) {
		return nil, fmt.Errorf("the Gram matrix of %d samples is singular at shrinkage %v; raise "+
			"posterior.samples", n, 1-b*float64(n))
	}
	// outer = L L', so X' outer^-1 X is the Gram matrix of L^-1 X.
	var l mat.TriDense
	chol.LTo(&l)
	var half mat.Dense
	if err := half.Solve(&l, x); err != nil {
		return nil, fmt.Errorf("the Gram matrix of %d samples: %w; raise posterior.samples", n, err)
	}
	var correction mat.SymDense
	correction.SymOuterK(-1/a, half.T())
	out.AddSym(out, &correction)
	return out, nil
}
