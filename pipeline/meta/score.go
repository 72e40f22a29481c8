package meta

import (
	"math"

	"gonum.org/v1/gonum/floats"

	"fmp/pipeline/erm"
	"fmp/pipeline/point"
)

// scoreFloor keeps the score of an impossible event, and its gradient, finite.
const scoreFloor = 1e-9

// score returns the mean negative log score, in nats, of the ensemble of heads on labelled points; the joint score of batches of them
// (metric.JointNLL), 0 if there are none; and the derivative of the first plus weight times the second with respect to each head.
// p_s(y|x) = softmax(x head_s)[y], floored.
func score(heads []erm.Theta, target *point.Set, batches [][]int, weight float64) (nll, joint float64, cots []erm.Theta) {
	d, c, n := target.Dx+1, target.C, target.N
	features, labels := target.Labelled()
	probabilities, logs := make([][]float64, len(heads)), make([][]float64, len(heads))
	x := make([]float64, d)
	x[d-1] = 1
	at := func(i int) []float64 {
		for j, v := range features[i*target.Dx : (i+1)*target.Dx] {
			x[j] = float64(v)
		}
		return x
	}
	for h := range heads {
		probabilities[h], logs[h] = make([]float64, n*c), make([]float64, n)
	}
	for i, y := range labels {
		x := at(i)
		for h, t := range heads {
			p := probabilities[h][i*c:][:c]
			softmaxAt(t, x, p)
			logs[h][i] = math.Log(p[y] + scoreFloor)
		}
	}
	// by is the derivative of the loss with respect to logs: minus each head's share in the score of a point, and of a batch.
	by := make([][]float64, len(heads))
	for h := range by {
		by[h] = make([]float64, n)
	}
	shares := make([]float64, len(heads))
	mixture := func(points []int, weight float64) float64 {
		for h, l := range logs {
			shares[h] = 0
			for _, i := range points {
				shares[h] += l[i]
			}
		}
		all := floats.LogSumExp(shares)
		for h, v := range shares {
			for _, i := range points {
				by[h][i] -= weight * math.Exp(v-all)
			}
		}
		return weight * (math.Log(float64(len(heads))) - all)
	}
	for i := range n {
		nll += mixture([]int{i}, 1/float64(n))
	}
	if weight > 0 {
		for _, b := range batches {
			joint += mixture(b, weight/float64(len(b)*len(batches))) / weight
		}
	}
	cots = make([]erm.Theta, len(heads))
	for h := range cots {
		cots[h] = erm.NewTheta(d, c)
	}
	for i, y := range labels {
		x := at(i)
		for h := range heads {
			p := probabilities[h][i*c:][:c]
			// d log(p_y + floor) / d logits = p_y / (p_y + floor) (e_y - p)
			g := by[h][i] * p[y] / (p[y] + scoreFloor)
			for f, v := range x {
				row := cots[h].Row(f)
				for j, q := range p {
					row[j] -= g * v * q
				}
				row[y] += g * v
			}
		}
	}
	return nll, joint, cots
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

// distance returns |a - b| and |b|, both Frobenius norms, and the derivative of the first with respect to a (zero if a equals b).
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
