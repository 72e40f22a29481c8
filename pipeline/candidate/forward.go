package candidate

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/sampleuv"

	"fmp/pipeline/erm"
)

// Forward resamples the predictive (Fong, Holmes and Walker 2023): it draws images from a
// component's own prediction, updates the statistics with each, and returns the head before the
// first batch and after every one. An image has a class with the shares of the round, and features
// of N(m_c, W + v_c W) with v_c = 1/(n_c + n0). Within a batch class means follow each image; W, n0
// and the basis follow each batch. Heads are the discriminant's, without refit, at the component's
// temperature. A regression has no such prediction.
func (c *Component) Forward(batches, images int, r *rand.Rand) ([]erm.Theta, error) {
	if c.resample == nil {
		return nil, errors.New("candidate: resampling: " + c.Name + " is a regression, which " +
			"draws no features")
	}
	p := c.resample.pool
	out := []erm.Theta{c.resample.head(p)}
	for range batches {
		next, err := c.resample.of(p).resampled(images, r)
		if err != nil {
			return nil, err
		}
		p = next
		out = append(out, c.resample.head(p))
	}
	return out, nil
}

// resample is a candidate of a round, which other statistics may have too.
type resample struct {
	*candidate
	pool        *pool
	temperature float64
}

// of returns the candidate's discriminant with the statistics of p.
func (a *resample) of(p *pool) *discriminant { return p.in(*a.target).at(a.strength, a.prior) }

// head returns that discriminant's head, its logits divided by the temperature.
func (a *resample) head(p *pool) erm.Theta {
	h := a.of(p)
	return h.head(*h.linear().over(a.temperature))
}

// resampled returns the discriminant's pool with images drawn from its prediction. Each
// image is of class c with probability n_c/sum n, which drawn images do not change.
// Coordinates of the basis are independent given the class. It costs O(k^3) for the way back from
// the basis, and O(k^2) for each image.
func (h *discriminant) resampled(images int, r *rand.Rand) (*pool, error) {
	var back mat.Dense // u = V'(x - m0)
	if err := back.Inverse(mat.NewDense(h.k, h.k, h.v)); err != nil {
		return nil, fmt.Errorf("candidate: resampling: %w", err)
	}
	k, c := h.k, h.c
	out := &pool{k: k, c: c, n: slices.Clone(h.n), mean: slices.Clone(h.mean),
		scatter: slices.Clone(h.scatter), dof: h.dof, m0: h.m0}
	means := slices.Clone(h.m) // in the basis, drawn towards the grand mean
	classes := sampleuv.NewWeighted(slices.Clone(h.n), rand.NewPCG(r.Uint64(), r.Uint64()))
	row := make([]float64, k)
	for range images {
		y, _ := classes.Take()
		classes.Reweight(y, h.n[y])
		wide := math.Sqrt(1 + 1/(out.n[y]+h.n0))
		m := means[y*k:][:k]
		for j, v := range h.precision {
			row[j] = m[j] + wide*r.NormFloat64()/math.Sqrt(v)
		}
		for j := range m { // the posterior mean of the class, which is a martingale
			m[j] += (row[j] - m[j]) / (out.n[y] + h.n0 + 1)
		}
		x := times(row, back.RawMatrix().Data, 1, k, k)
		axpy(1, h.m0, x)
		out.see(x, y)
	}
	out.finish()
	return out, nil
}

// see adds one image of class y: its class's mean, and the scatter about it, upper triangle. With n
// images of the class seen (Welford's update)
//
//	S += n/(n + 1) (x - mean)(x - mean)',   mean += (x - mean)/(n + 1)
//
// The row is overwritten by its difference from the mean.
func (p *pool) see(row []float64, y int) {
	mean := p.mean[y*p.k:][:p.k]
	n := p.n[y]
	p.n[y]++
	for j, v := range row {
		row[j] = v - mean[j]
		mean[j] += row[j] / (n + 1)
	}
	if n == 0 {
		return
	}
	p.dof++
	for i, v := range row {
		axpy(n/(n+1)*v, row[i:], p.scatter[i*p.k+i:(i+1)*p.k])
	}
}
