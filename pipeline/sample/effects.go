package sample

import (
	"gonum.org/v1/gonum/mat"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/engine"
)

// Shifted returns the predictor that reads phi - (phi A - c) in place of softened features phi, or phi - c where a, A [dx, dx], is nil. Class
// means are read alike.
func (c *Conjugate) Shifted(e engine.Engine, a *mat.Dense, centre []float64) (*Conjugate, error) {
	dx, k := c.config.Dx, c.config.K
	m := onnx.Clone(c.model)
	values := m.Graph.Initializers
	v, origin := mat.NewDense(dx, k, doubles(values[models.ConjMap].F32())), doubles(values[models.ConjOrigin].F32())
	var by mat.VecDense
	by.MulVec(v.T(), mat.NewVecDense(dx, centre))
	sign := 1.0
	if a != nil {
		var av mat.Dense
		av.Mul(a, v)
		v.Sub(v, &av)
		sign = -1
	}
	for j := range origin {
		origin[j] += sign * by.AtVec(j)
	}
	values[models.ConjMap], values[models.ConjOrigin] = onnx.NewTensor(singles(v.RawMatrix().Data), dx, k), onnx.NewTensor(singles(origin), k)
	return NewConjugate(e, m)
}

func doubles(x []float32) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}

func singles(x []float64) []float32 {
	out := make([]float32, len(x))
	for i, v := range x {
		out[i] = float32(v)
	}
	return out
}
