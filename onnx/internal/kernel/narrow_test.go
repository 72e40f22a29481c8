package kernel

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestNarrowProducts: products whose right side has few columns equal sums in float64, also beside
// numbers that lie between a row and the next.
func TestNarrowProducts(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	numbers := func(n int) []float32 { return tame(rng, n) }
	for _, m := range []int{1, 33, 48, 49} {
		for _, k := range []int{8, 255, 256, 257, 999} {
			for n := 1; n < panelLeast; n++ {
				const gap = 3
				a := matrix[float32]{data: numbers(m * (k + gap)), rows: m, cols: k, stride: k + gap}
				b := matrix[float32]{data: numbers(k * (n + gap)), rows: k, cols: n, stride: n + gap}
				c := matrix[float32]{data: numbers(m * (n + gap)), rows: m, cols: n, stride: n + gap}
				was := append([]float32{}, c.data...)
				multiply(a, b, c, false)
				for i := range m {
					for j := range n + gap {
						want, size := float64(was[i*c.stride+j]), 0.0
						for l := 0; l < k && j < n; l++ {
							v := float64(a.data[i*a.stride+l]) * float64(b.data[l*b.stride+j])
							want, size = want+v, size+math.Abs(v)
						}
						if got := float64(c.data[i*c.stride+j]); math.Abs(got-want) > 1e-6*(1+size) {
							t.Fatalf("%d x %d x %d: element %d, %d is %v; want %v", m, k, n, i, j, got, want)
						}
					}
				}
			}
		}
	}
}
