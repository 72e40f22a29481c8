package erm

import (
	"fmt"

	"gonum.org/v1/gonum/floats"
)

// Theta is the head of a softmax regression: W holds D x C numbers, row-major, one column per
// class. D is dx + 1; the last row is the bias.
type Theta struct {
	D, C int
	W    []float64
}

// NewTheta returns a head of zeros, under which every class is equally likely.
func NewTheta(d, c int) Theta { return Theta{D: d, C: c, W: make([]float64, d*c)} }

// Row returns the C weights of feature i (i = D-1: the biases). It shares memory with the head.
func (t Theta) Row(i int) []float64 { return t.W[i*t.C : (i+1)*t.C] }

// Logits sets out, [C], to those of a row x of dx features, W'[x, 1]. Products are added feature by
// feature, so that equal rows have equal logits to the last bit. Ensembles at many rows go by
// metric.Predict, whose products are those of matrices.
func (t Theta) Logits(row []float32, out []float64) {
	copy(out, t.Row(len(row)))
	for j, v := range row {
		floats.AddScaled(out, float64(v), t.Row(j))
	}
}

// checkFinite returns an error if a head, called kind in it, cannot be used with p.
func (t Theta) checkFinite(kind string, p *Problem) error {
	if t.D != p.D() || t.C != p.C || len(t.W) != p.D()*p.C {
		return fmt.Errorf(
			"erm: %s is %d x %d with %d numbers; these points want %d x %d (dx + 1 by classes)",
			kind, t.D,
			t.C, len(t.W), p.D(), p.C)
	}
	for i, v := range t.W {
		if !finite(v) {
			return fmt.Errorf("erm: %s holds %v in row %d, class %d; want finite numbers", kind,
				v, i/t.C, i%t.C)
		}
	}
	return nil
}
