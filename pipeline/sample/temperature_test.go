package sample

import (
	"math"
	"math/rand/v2"
	"testing"

	"fmp/pipeline/erm"
)

// TestTemperature: labels drawn at a temperature give it back within its stated error; a prior
// about 1 holds few of them and lets many go; rows without information leave 1 and no error bound.
func TestTemperature(t *testing.T) {
	t.Parallel()
	const k, classes = 3, 4
	r := rand.New(rand.NewPCG(1, 2))
	head := erm.NewTheta(k+1, classes)
	for i := range head.W {
		head.W[i] = 2 * r.NormFloat64()
	}
	draw := func(n int, temperature float64) (rows []float32, labels []int) {
		for range n {
			z := make([]float64, classes)
			for range k {
				rows = append(rows, float32(r.NormFloat64()))
			}
			head.Logits(rows[len(rows)-k:], z)
			best, at := math.Inf(-1), 0
			for c := range z { // the Gumbel maximum is a draw from the softmax
				if g := z[c]/temperature - math.Log(r.ExpFloat64()); g > best {
					best, at = g, c
				}
			}
			labels = append(labels, at)
		}
		return rows, labels
	}
	flat := math.Inf(1)
	var squares, variances float64
	const rounds = 40
	for range rounds {
		rows, labels := draw(200, 3)
		c := Temperature([]erm.Theta{head, head}, rows, labels, flat)
		squares += math.Pow(c.Log-math.Log(3), 2) / rounds
		variances += c.Variance / rounds
	}
	if squares > 2*variances || squares < variances/2 {
		t.Errorf("log temperatures are %v from the truth, mean square, and state %v",
			squares, variances)
	}
	for _, c := range []struct {
		n           int
		apart       float64
		least, most float64
	}{{200, flat, 0.8, 1.4}, {200, 0.1, 0.6, 1.3}, {4, 0.01, -0.05, 0.05}, {200, 1e-4, 0.4, 1.3}} {
		rows, labels := draw(c.n, 3)
		if got := Temperature([]erm.Theta{head}, rows, labels, c.apart); !(got.Log >= c.least &&
			got.Log <= c.most) {
			t.Errorf("%d rows at a temperature of 3, prior %v: log T is %v; want %v to %v", c.n,
				c.apart, got.Log, c.least, c.most)
		}
	}
	rows, labels := draw(20, 1)
	if got := Temperature([]erm.Theta{erm.NewTheta(k+1, classes)}, rows, labels, flat); got.Log != 0 ||
		!math.IsInf(got.Variance, 1) {
		t.Errorf("a head of zeros has %+v; want T 1, of no stated error", got)
	}
}
