package erm

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"fmp/pipeline/point"
)

// random is a problem of n points around class means with soft labels and uneven weights.
func random(seed uint64, n, dx, c int, l2 float64) *Problem {
	r := rand.New(rand.NewPCG(seed, 7))
	s := point.New(n, dx, c)
	for i := range n {
		row := s.Row(i)
		for j := range dx {
			row[j] = float32(r.NormFloat64())
			if j%c == i%c {
				row[j]++
			}
		}
		var sum float64
		soft := make([]float64, c)
		for k := range soft {
			soft[k] = math.Exp(r.NormFloat64())
			if k == i%c {
				soft[k] += 10
			}
			sum += soft[k]
		}
		for k, v := range soft {
			row[dx+k] = float32(v / sum)
		}
		s.W[i] = float32(0.2 + 2*r.Float64())
	}
	p, err := FromSets(l2, s)
	if err != nil {
		panic(err)
	}
	return p
}

// TestGradientVanishes recomputes the gradient from its definition, without the solver's code.
func TestGradientVanishes(t *testing.T) {
	for _, k := range []struct {
		n, dx, c int
		l2       float64
	}{{20, 5, 3, 3}, {7, 30, 4, 0.1}, {300, 64, 10, 3}, {150, 10, 2, 1e-3}, {40, 6, 1, 1}, {2000, 3, 5, 10}} {
		p := random(1, k.n, k.dx, k.c, k.l2)
		s, err := Solve(context.Background(), p, Options{Tolerance: 1e-12})
		if err != nil {
			t.Fatalf("%+v: %v", k, err)
		}
		d := p.D()
		g := make([]float64, d*k.c)
		for i, v := range s.Theta.W {
			g[i] = k.l2 * v
		}
		for i := range k.n {
			x := p.X[i*d : (i+1)*d]
			prob := make([]float64, k.c)
			for c := range k.c {
				for j := range d {
					prob[c] += x[j] * s.Theta.W[j*k.c+c]
				}
			}
			softmax(prob, prob)
			for j := range d {
				for c := range k.c {
					g[j*k.c+c] += p.W[i] * x[j] * (prob[c] - p.Y[i*k.c+c])
				}
			}
		}
		if m := maxAbs(g); m > 1e-7 {
			t.Errorf("%+v: largest gradient at the minimum is %v, want 0; reported norm %v", k, m, s.GradientNorm)
		}
		t.Logf("%+v: %d steps, %d products", k, s.Steps, s.Products)
	}
}

func BenchmarkSolve(b *testing.B) {
	p := random(1, 300, 64, 10, 3)
	for b.Loop() {
		if _, err := Solve(context.Background(), p, Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
