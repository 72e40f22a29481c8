package meta

import (
	"math"

	"fmp/pipeline/erm"
	"fmp/pipeline/point"
)

// scoreFloor keeps the score of an impossible event, and its gradient, finite.
const scoreFloor = 1e-9

// score is the mean negative log score, in nats, of the ensemble of heads on labelled points, and its derivative
// with respect to each head: the mean over points of -log(mean over heads of softmax(x head)[label]).
func score(heads []erm.Theta, target *point.Set) (float64, []erm.Theta) {
	d, c, k := target.Dx+1, target.C, len(heads)
	cot := make([]erm.Theta, k)
	for i := range cot {
		cot[i] = erm.NewTheta(d, c)
	}
	p := make([][]float64, k)
	for i := range p {
		p[i] = make([]float64, c)
	}
	x := make([]float64, d)
	x[d-1] = 1
	var loss float64
	for i := range target.N {
		row := target.Row(i)
		for j, v := range row[:target.Dx] {
			x[j] = float64(v)
		}
		y := 0
		for j, v := range row[target.Dx:] {
			if v > row[target.Dx+y] {
				y = j
			}
		}
		var mean float64
		for h, t := range heads {
			softmaxAt(t, x, p[h])
			mean += p[h][y] / float64(k)
		}
		loss -= math.Log(mean+scoreFloor) / float64(target.N)
		for h := range heads {
			// d(-log mean)/d logits of head h = -p_y (e_y - p) / (k mean)
			by := -p[h][y] / (float64(k) * (mean + scoreFloor) * float64(target.N))
			for f, v := range x {
				g := cot[h].Row(f)
				for j, q := range p[h] {
					e := -q
					if j == y {
						e++
					}
					g[j] += by * v * e
				}
			}
		}
	}
	return loss, cot
}

// softmaxAt writes softmax(x head) to p.
func softmaxAt(t erm.Theta, x, p []float64) {
	for j := range p {
		p[j] = 0
	}
	for f, v := range x {
		for j, w := range t.Row(f) {
			p[j] += v * w
		}
	}
	top := math.Inf(-1)
	for _, v := range p {
		top = math.Max(top, v)
	}
	var sum float64
	for j, v := range p {
		p[j] = math.Exp(v - top)
		sum += p[j]
	}
	for j := range p {
		p[j] /= sum
	}
}

// distance is |a - b|, |b|, both Frobenius norms, and the derivative of the first with respect to a (zero where a
// is b).
func distance(a, b erm.Theta) (gap, norm float64, cot erm.Theta) {
	cot = erm.NewTheta(a.D, a.C)
	for i, v := range b.W {
		cot.W[i] = a.W[i] - v
		gap += cot.W[i] * cot.W[i]
		norm += v * v
	}
	gap, norm = math.Sqrt(gap), math.Sqrt(norm)
	for i := range cot.W {
		if gap > 0 {
			cot.W[i] /= gap
		}
	}
	return gap, norm, cot
}

// scaled multiplies heads by v in place and returns them.
func scaled(v float64, heads ...erm.Theta) []erm.Theta {
	for _, h := range heads {
		for i := range h.W {
			h.W[i] *= v
		}
	}
	return heads
}
