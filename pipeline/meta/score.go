package meta

import (
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"

	"fmp/onnx/dense"
	"fmp/pipeline/erm"
	"fmp/pipeline/point"
)

// scoreFloor keeps the score of an impossible event, and its gradient, finite.
const scoreFloor = 1e-9

// score returns the mean negative log score, in nats, of the ensemble of heads on labelled points;
// the joint score of batches of them (metric.JointNLL), 0 if there are none; and the derivative of
// the first plus weight times the second with respect to each head. p_s(y|x) = softmax(x
// head_s)[y], floored. It costs O(S n d C) for S heads on n points of d coordinates. With q_s(B)
// the softmax over heads of the summed log p_s of batch B, the derivative by log p_s(i) is
//
//	-q_s(i)/n - weight sum over batches B of i: q_s(B)/(|B| batches)
//
// Heads are [dx + 1, C], with the intercepts in the last row. Masses of target are not read. A
// batch holds places of points. joint is in nats an image: the mean over batches of a batch's nats
// over its size. The derivatives are in the order of heads, and of the shape of each.
func score(heads []erm.Theta, target *point.Set, batches [][]int,
	weight float64) (nll, joint float64, cots []erm.Theta) {
	d, c, n := target.Dx+1, target.C, target.N
	features, labels := target.Labelled()
	x := dense.General(n, d, make([]float64, n*d))
	for i := range n {
		row := x.Data[i*d : (i+1)*d]
		copy(row, dense.As[float64](features[i*target.Dx:(i+1)*target.Dx]))
		row[target.Dx] = 1
	}
	probabilities, logs := make([]blas64.General, len(heads)), make([][]float64, len(heads))
	for h, t := range heads {
		p := dense.General(n, c, make([]float64, n*c))
		dense.Gemm(blas.NoTrans, blas.NoTrans, 1, x, dense.General(d, c, t.W), 0, p)
		probabilities[h], logs[h] = p, make([]float64, n)
		for i, y := range labels {
			row := p.Data[i*c : (i+1)*c]
			lse := floats.LogSumExp(row)
			for j, v := range row {
				row[j] = math.Exp(v - lse)
			}
			logs[h][i] = math.Log(row[y] + scoreFloor)
		}
	}
	// by is the derivative of the loss with respect to logs: minus each head's share in the score
	// of a point, and of a batch.
	by := make([][]float64, len(heads))
	for h := range by {
		by[h] = make([]float64, n)
	}
	shares := make([]float64, len(heads))
	// It returns weight times -ln of the mean over heads of the product of p_s over the points.
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
	for h, p := range probabilities {
		for i, y := range labels {
			// d log(p_y + floor) / d logits = p_y / (p_y + floor) (e_y - p)
			row := p.Data[i*c : (i+1)*c]
			g := by[h][i] * row[y] / (row[y] + scoreFloor)
			floats.Scale(-g, row)
			row[y] += g
		}
		cots[h] = erm.NewTheta(d, c)
		dense.Gemm(blas.Trans, blas.NoTrans, 1, x, p, 0, dense.General(d, c, cots[h].W))
	}
	return nll, joint, cots
}

// distance returns |a - b| and |b|, both Frobenius norms, and the derivative of the first with
// respect to a, (a - b)/|a - b| (zero if a equals b).
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
		floats.Scale(v, h.W)
	}
	return heads
}
