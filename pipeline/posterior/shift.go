package posterior

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/pipeline/sample"
)

// shiftLeast is the smallest variance of effects, relative to the largest, of a direction in which shifts are estimated.
const shiftLeast = 1e-6

// shiftParts returns the estimate of the effect of a client to come from images without labels; nil where no client has an effect. The
// covariance of effects is theirs, class means are the posterior's, and the head is the mean of the ensemble's.
func (t *FMP) shiftParts(f *Form, e Ensemble, j *Judgement) (*models.ShiftParts, error) {
	a, err := t.apart()
	if err != nil || !a.effects.Any() || t.in.For > 0 || len(e) == 0 || isWide(f, t.in.Samples) {
		return nil, err
	}
	white, back, err := t.in.Open.White()
	if err != nil {
		return nil, err
	}
	to, from, variance, err := directions(a.effects.Covariance(), white, back)
	if err != nil {
		return nil, err
	}
	means := t.capped(a.soft)
	if j != nil {
		for m := range means {
			means[m] = reweighted(a.soft[m], func(y int) float64 { return j.Honest[m] * j.share[m*t.c+y] })
		}
	}
	stats, err := t.in.Open.Pool(means)
	if err != nil {
		return nil, err
	}
	q, err := t.in.Open.Posterior(stats)
	if err != nil {
		return nil, err
	}
	own := q.Means()
	if p := t.in.Open.Projection; p != nil {
		var wide mat.Dense
		wide.Mul(own, p.T())
		own = &wide
	}
	var at mat.Dense
	at.Mul(own, to)
	k := e[0].D - 1
	head := make([]float64, (k+1)*t.c)
	for _, h := range e {
		floats.AddScaled(head, 1/float64(len(e)), h.W)
	}
	dx, r := to.Dims()
	return &models.ShiftParts{
		To: onnx.NewTensor(narrow(to.RawMatrix().Data), dx, r), Back: onnx.NewTensor(narrow(from.RawMatrix().Data), r, dx),
		Means: onnx.NewTensor(narrow(at.RawMatrix().Data), t.c, r), Variance: onnx.NewTensor(narrow(variance), r),
		Head: onnx.NewTensor(narrow(head[:k*t.c]), k, t.c), Bias: onnx.NewTensor(narrow(head[k*t.c:]), t.c),
	}, nil
}

// directions returns the maps of features to the principal directions of effects with a covariance [dx, dx], and back, and the variances
// along them. white and back are those of coordinates in which the covariance within classes is I.
func directions(effects *mat.SymDense, white, back *mat.Dense) (to, from *mat.Dense, variance []float64, err error) {
	var half, whole mat.Dense
	half.Mul(effects, white)
	whole.Mul(white.T(), &half)
	k, _ := whole.Dims()
	sym := mat.NewSymDense(k, nil)
	for i := range k {
		for j := i; j < k; j++ {
			sym.SetSym(i, j, (whole.At(i, j)+whole.At(j, i))/2)
		}
	}
	var eigen mat.EigenSym
	if !eigen.Factorize(sym, true) {
		return nil, nil, nil, fmt.Errorf("client effects: eigenvalues of their covariance did not converge; check that class means are finite")
	}
	values := eigen.Values(nil) // ascending
	var all mat.Dense
	eigen.VectorsTo(&all)
	first := 0
	for first < k-1 && values[first] < shiftLeast*values[k-1] {
		first++
	}
	u := mat.DenseCopyOf(all.Slice(0, k, first, k))
	to, from = new(mat.Dense), new(mat.Dense)
	to.Mul(white, u)
	from.Mul(u.T(), back)
	return to, from, values[first:], nil
}

func narrow(x []float64) []float32 {
	out := make([]float32, len(x))
	for i, v := range x {
		out[i] = float32(v)
	}
	return out
}

// Adapt returns the result for an owner who took no part, given feature rows of images without labels: its coordinates leave out the
// shift that the rows have in common. It has no intervals. It is an error where no client of the round has an effect.
func (r *Result) Adapt(features []float32) (*Result, error) {
	form, ok := r.Coordinates.(interface{ Graph() *onnx.Model })
	if r.Shift == nil || !ok {
		return nil, fmt.Errorf("adapting to images without labels: no client of the round has another camera")
	}
	shifting, err := models.WithShift(form.Graph(), *r.Shift)
	if err != nil {
		return nil, err
	}
	eng, err := pure.New(engine.Options{Threads: 1})
	if err != nil {
		return nil, err
	}
	s, err := eng.Load(shifting)
	if err != nil {
		return nil, err
	}
	dx := shifting.Graph.Inputs[0].Shape[1].Size
	in := onnx.NewTensor(features, len(features)/dx, dx)
	out, err := engine.Eval(s, map[string]*onnx.Tensor{shifting.Graph.Inputs[0].Name: in}, models.ShiftOutput)
	if err != nil {
		return nil, err
	}
	b := make([]float64, dx)
	for i, v := range out[models.ShiftOutput].F32() {
		if b[i] = float64(v); math.IsNaN(b[i]) {
			return nil, fmt.Errorf("adapting to images without labels: the shift is not finite; check the features")
		}
	}
	from, ok := r.Coordinates.(interface {
		Shifted(e engine.Engine, a *mat.Dense, centre, b []float64) (*sample.Conjugate, error)
	})
	if !ok {
		return nil, fmt.Errorf("adapting to images without labels: coordinates %T cannot be shifted", r.Coordinates)
	}
	moved := *r
	moved.Intervals, moved.Shift = nil, nil
	moved.Coordinates, err = from.Shifted(eng, nil, nil, b)
	return &moved, err
}
