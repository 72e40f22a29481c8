package erm

import "fmt"

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
