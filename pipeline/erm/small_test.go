package erm

import (
	"context"
	"math/rand/v2"
	"testing"
)

// A fit that starts at a head which hardly errs has an objective far smaller than the rounding of
// its logits.
func TestSmallObjective(t *testing.T) {
	for seed := range uint64(80) {
		r := rand.New(rand.NewPCG(seed, 1))
		const n, k, c = 190, 640, 10
		p := &Problem{N: n, Dx: k, C: c, X: make([]float64, n*(k+1)), Y: make([]float64, n*c),
			W: make([]float64, n), L2: 60}
		centre := NewTheta(k+1, c)
		for i := range centre.W {
			centre.W[i] = r.NormFloat64()
		}
		for i := range n {
			row := p.X[i*(k+1) : (i+1)*(k+1)]
			y := i % c
			for j := range k {
				row[j] = r.NormFloat64() + (0.16+0.0005*float64(seed))*centre.W[j*c+y]
			}
			row[k], p.Y[i*c+y], p.W[i] = 1, 1, 0.5
		}
		p.Centre = &centre
		_, err := Solve(context.Background(), p, Options{})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}
