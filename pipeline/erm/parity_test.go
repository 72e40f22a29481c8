package erm

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"testing"

	"fmp/onnx/must"
)

// parityCase is one problem of testdata/parity.json, which testdata/parity.py made with the PyTorch
// reference.
type parityCase struct {
	N, Dx, C                int
	L2, Objective           float64
	X, Y, W                 []float64
	Theta, Cotangent        []float64
	Points, Labels, Weights []float64
}

func parityCases(t *testing.T) []parityCase {
	t.Helper()
	b := must.Get(os.ReadFile("testdata/parity.json"))(t)
	var cases []parityCase
	must.Do(t, json.Unmarshal(b, &cases))
	if len(cases) == 0 {
		t.Fatal("testdata/parity.json holds no cases")
	}
	return cases
}

func (c parityCase) problem() *Problem {
	p := &Problem{N: c.N, Dx: c.Dx, C: c.C, Y: c.Y, W: c.W, L2: c.L2}
	for i := range c.N {
		p.X = append(append(p.X, c.X[i*c.Dx:(i+1)*c.Dx]...), 1)
	}
	return p
}

// furthest is the largest difference of two slices.
func furthest(a, b []float64) float64 {
	if len(a) != len(b) {
		return math.Inf(1)
	}
	var m float64
	for i := range a {
		m = math.Max(m, math.Abs(a[i]-b[i]))
	}
	return m
}

// backward returns the derivatives of a loss by those with respect to the minimiser of a problem.
func backward(p *Problem, theta, cotangent Theta) (*Gradient, error) {
	f, err := NewFits(nil, []*Problem{p})
	if err != nil {
		return nil, err
	}
	defer f.Close()
	f.fits[0].theta = &theta
	return f.Backward(0, cotangent, Options{})
}

func TestParityWithReference(t *testing.T) {
	for i, c := range parityCases(t) {
		p := c.problem()
		s := must.Get(Solve(context.Background(), p, Options{}))(t)
		if d := furthest(s.Theta.W, c.Theta); d > 1e-6 {
			t.Errorf("case %d: minimiser differs from the reference's by %v", i, d)
		}
		if d := math.Abs(s.Objective - c.Objective); d > 1e-9*(1+c.Objective) {
			t.Errorf("case %d: objective %v, the reference has %v", i, s.Objective, c.Objective)
		}
		g := must.Get(backward(p, s.Theta, Theta{p.D(), c.C, c.Cotangent}))(t)
		for name, pair := range map[string][2][]float64{"points": {g.Points, c.Points},
			"labels": {g.Labels, c.Labels}, "weights": {g.Weights, c.Weights}} {
			if d := furthest(pair[0], pair[1]); d > 1e-6 {
				t.Errorf("case %d: gradient of %s differs from the reference's by %v", i, name, d)
			}
		}
	}
}
