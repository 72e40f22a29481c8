package posterior

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/dense"
	"fmp/onnx/engine"
	"fmp/pipeline/internal/effect"
	"fmp/pipeline/internal/moment"
	"fmp/pipeline/point"
)

// shiftParts returns the estimate of a shift from images without labels: the effect of a client to
// come or, of one that took part, the error of the estimate of its effect. It is nil where no
// client has an effect. Class means are the posterior's, and the head is the mean of the
// ensemble's. Clients count by P(honest) and their shares. A classifier for one client has the law
// of its own error, given its upload.
func (t *FMP) shiftParts(f *Form, e Ensemble, j *Judgement) (*models.ShiftParts, error) {
	a, err := t.withoutEffects()
	if err != nil || !a.effects.Any() || len(e) == 0 || isWide(f, t.in.Samples) {
		return nil, err
	}
	means := t.capped(a.soft)
	if j != nil {
		for m := range means {
			means[m] = reweighted(a.soft[m],
				func(y int) float64 { return j.Honest[m] * j.share(m*t.c+y) })
		}
	}
	from := t.in.Open
	if t.in.For > 0 {
		from = a.open // moved to this client's
	}
	stats, err := from.Pool(means)
	if err != nil {
		return nil, err
	}
	q, err := from.Posterior(stats)
	if err != nil {
		return nil, err
	}
	own := q.Means()
	if p := t.in.Open.Projection; p != nil {
		var wide mat.Dense
		wide.Mul(own, p.T())
		own = &wide
	}
	return newShift(a.effects, t.in.For, own, e, means), nil
}

// newShift returns the estimate of a shift given class means [C, dx], the heads and the clients'
// class means with masses. client is the number, from 1, of the one that the result is for; 0 for a
// client to come.
// The head is the mean of the ensemble's: weights [k, C] and intercepts [C].
func newShift(effects *effect.Effects, client int, means *mat.Dense, e Ensemble,
	sets []*point.Set) *models.ShiftParts {
	law := effects.ToCome()
	if client > 0 {
		law = effects.Left(client - 1)
	}
	k, c := e[0].D-1, e[0].C
	head := make([]float64, (k+1)*c)
	for _, h := range e {
		floats.AddScaled(head, 1/float64(len(e)), h.W)
	}
	d := law.Directions()
	out := &models.ShiftParts{Means: moment.Tensor(means), Rest: float32(d.Rest),
		Trace:  float32(d.Trace),
		Shares: onnx.Vector(dense.As[float32](shares(sets))...),
		Head:   onnx.NewTensor(dense.As[float32](head[:k*c]), k, c),
		Bias:   onnx.NewTensor(dense.As[float32](head[k*c:]), c)}
	if d.To != nil {
		out.To, out.Back, out.Variance = moment.Tensor(d.To), moment.Tensor(d.Back),
			onnx.Vector(dense.As[float32](d.Variance)...)
	}
	return out
}

// Concentrations that shares weighs, from few classes at each client to the same shares at all.
const (
	minConcentration = 0.1
	maxConcentration = 1e4
)

// shares returns the parameters a p, [C], of the Dirichlet distribution of clients' shares of the
// classes. The mean p is that of all images and one more of each class. The concentration a is that
// of greatest likelihood given each client's images n_my of each class (Minka 2000, Estimating a
// Dirichlet distribution):
//
//	sum_m (lnG(a) - lnG(a + n_m) + sum_y (lnG(n_my + a p_y) - lnG(a p_y))),   n_m = sum_y n_my
//
// with G the gamma function. The search is a grid of a from 0.1 to 1e4 with a ratio of 1.2.
// These are 64 values, of O(clients C) each.
func shares(sets []*point.Set) []float64 {
	counts := make([][]float64, len(sets))
	mean := make([]float64, sets[0].C)
	for m, set := range sets {
		counts[m] = make([]float64, set.C)
		_, labels := set.Labelled()
		for i, y := range labels {
			counts[m][y] += float64(set.W[i])
		}
		floats.Add(mean, counts[m])
	}
	floats.AddConst(1, mean)
	floats.Scale(1/floats.Sum(mean), mean)
	gamma := func(x float64) float64 { v, _ := math.Lgamma(x); return v }
	best, most := 0.0, math.Inf(-1)
	for a := minConcentration; a <= maxConcentration; a *= 1.2 {
		var l float64
		for _, n := range counts {
			l += gamma(a) - gamma(a+floats.Sum(n))
			for y, v := range n {
				if v > 0 {
					l += gamma(v+a*mean[y]) - gamma(a*mean[y])
				}
			}
		}
		if l > most {
			best, most = a, l
		}
	}
	floats.Scale(best, mean)
	return mean
}

// Adapt returns the result for an owner who took no part, given feature rows of images without
// labels: its coordinates leave out the shift that the rows have in common. It has no intervals. It
// is an error where no client of the round has an effect. r is not changed, and the heads are
// shared.
func (r *Result) Adapt(features []float32) (*Result, error) {
	form, ok := r.Coordinates.(interface{ Graph() *onnx.Model })
	if r.Shift == nil || !ok {
		return nil, fmt.Errorf("adapting to images without labels: no client of the round has " +
			"another camera")
	}
	shifting, err := models.WithShift(form.Graph(), *r.Shift)
	if err != nil {
		return nil, err
	}
	dx := shifting.Graph.Inputs[0].Shape[1].Size
	at, err := embedded(shifting, dx)
	if err != nil {
		return nil, err
	}
	in := onnx.NewTensor(features, len(features)/dx, dx)
	out, err := engine.Eval(at.session, map[string]*onnx.Tensor{shifting.Graph.Inputs[0].Name: in},
		models.ShiftOutput)
	if err != nil {
		return nil, err
	}
	for _, v := range out[models.ShiftOutput].F32() {
		if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
			return nil, fmt.Errorf("adapting to images without labels: the shift is not finite; " +
				"check the features")
		}
	}
	adapted, err := models.Adapted(shifting, out[models.ShiftOutput])
	if err != nil {
		return nil, err
	}
	moved := *r
	moved.Intervals, moved.Shift = nil, nil
	moved.Coordinates, err = embedded(adapted, dx)
	return &moved, err
}
