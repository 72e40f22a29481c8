package erm

import "fmt"

// Theta is the head of a softmax regression: W holds D x C numbers, row-major, one column a class. D is
// dx + 1; the last row is the bias.
type Theta struct {
	D, C int
	W    []float64
}

// NewTheta is the head of zeros, under which every class is equally likely.
func NewTheta(d, c int) Theta { return Theta{D: d, C: c, W: make([]float64, d*c)} }

// Row is the C weights of feature i (i = D-1: the biases). It shares memory with the head.
func (t Theta) Row(i int) []float64 { return t.W[i*t.C : (i+1)*t.C] }

// check says what is wrong with a head for points of d-1 features and c classes.
func (t Theta) check(d, c int) error {
	if t.D != d || t.C != c || len(t.W) != d*c {
		return fmt.Errorf("head of %d x %d with %d numbers; these points want %d x %d (dx + 1 by classes)", t.D, t.C, len(t.W), d, c)
	}
	return nil
}
