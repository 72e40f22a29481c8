package sample

import (
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/dense"
	"fmp/onnx/engine"
)

// Shifted returns the predictor that reads phi - b - ((phi - b) A - c) in place of softened
// features phi, for A [dx, dx] and c and b [dx], each of which may be nil for zero. Class means are
// read alike. As w = phi V - m0, the map V becomes V - A V, and m0
//
//	m0 - V'c + (V - A V)'b
//
// c stays as it is, and a, centre and b are only read. The map costs O(dx² k). In the graph it
// costs nothing, as a shift and a projection of features fold into map and origin.
func (c *Conjugate) Shifted(e engine.Engine, a *mat.Dense, centre,
	b []float64) (*Conjugate, error) {
	dx, k := c.config.Dx, c.config.K
	m := onnx.Clone(c.model)
	values := m.Graph.Initializers
	v, origin := mat.NewDense(dx, k, dense.As[float64](values[models.ConjMap].F32())),
		dense.As[float64](values[models.ConjOrigin].F32())
	add := func(sign float64, by []float64) {
		if by == nil {
			return
		}
		var w mat.VecDense
		w.MulVec(v.T(), mat.NewVecDense(dx, by))
		floats.AddScaled(origin, sign, w.RawVector().Data)
	}
	// V'c is of the map before A, and (V - AV)'b of the one behind it: the order matters.
	add(-1, centre)
	if a != nil {
		var av mat.Dense
		av.Mul(a, v)
		v.Sub(v, &av)
	}
	add(1, b)
	values[models.ConjMap], values[models.ConjOrigin] = onnx.NewTensor(
		dense.As[float32](v.RawMatrix().Data), dx, k), onnx.NewTensor(dense.As[float32](origin), k)
	return NewConjugate(e, m)
}
