package open

import (
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"fmp/onnx/dense"
)

// Episode is a task with held-out rows, of classes that are not in Moments.
type Episode struct {
	Moments *Moments
	Stats   *Stats
	Rows    []float64 // n x k coordinates of held-out points
	Labels  []int
	Batches [][]int // of held-out points, for the joint score
	// Noise holds S x C x k draws from N(0, 1), the same for every value of the scalars.
	Noise []float64
}

// step is the step of the finite differences: half the digits of double precision.
const step = 1e-7

// Loss returns the negative log score of the ensemble on the held-out points, single and in batches
// (nats per point), and the gradient of their sum with respect to the scalars if asked for, 0
// otherwise. With p_s(i) the probability that sample s of S gives to the label of point i, N points
// and batches b
//
//	nll   = -mean_i log(mean_s p_s(i))
//	joint = -mean_b log(mean_s prod_(i in b) p_s(i))/|b|
//
// The gradient of the score with respect to the heads is exact; that of the heads,
// through eigenvectors and solves, is by finite differences, for which only the scalars that decide
// the metric need another decomposition.
func (e *Episode) Loss(t *Scalars,
	differentiate bool) (nll, joint float64, gradient Scalars, err error) {
	g, err := e.Moments.geometry(t, e.Stats)
	if err != nil {
		return 0, 0, gradient, err
	}
	noise := g.turned(e.Noise)
	theta, bias := e.heads(t, g, noise)
	nll, joint, dTheta, dBias := e.score(theta, bias)
	along := func(theta *mat.Dense, bias []float64) float64 {
		sum := 0.0
		for i, v := range theta.RawMatrix().Data {
			sum += v * dTheta[i]
		}
		for i, v := range bias {
			sum += v * dBias[i]
		}
		return sum
	}
	if !differentiate {
		return nll, joint, gradient, nil
	}
	at := along(theta, bias)
	for i := range gradient {
		moved := *t
		moved[i] += step
		near, turned := g, noise
		switch i {
		case LogNu0, LogKappa, LogitDelta, LogitGamma:
			if near, err = e.Moments.geometry(&moved, e.Stats); err != nil {
				return 0, 0, gradient, err
			}
			turned = near.turned(e.Noise)
		}
		gradient[i] = (along(e.heads(&moved, near, turned)) - at) / step
	}
	return nll, joint, gradient, nil
}

// heads returns the heads for the episode's noise (already turned): one class per row [S C, k], and
// their biases.
func (e *Episode) heads(t *Scalars, g *geometry, noise []float64) (*mat.Dense, []float64) {
	q := e.Moments.posterior(t, g, e.Stats)
	return q.rows(q.draw(noise))
}

// score returns the loss of the heads and its gradient with respect to them. q_s is the share of
// sample s in the likelihood of a point, or of a batch. By log p_s(i) the derivative is -q_s/N of
// the point, and -q_s/(B J) of each batch. B is the number of batches, and J that of a batch's
// points. It costs O(S C n k).
func (e *Episode) score(theta *mat.Dense,
	bias []float64) (nll, joint float64, dTheta, dBias []float64) {
	rows, k := theta.Dims()
	c := len(e.Stats.Mass)
	samples, n := rows/c, len(e.Labels)
	x := dense.General(n, k, e.Rows)
	wide := dense.Padded(n)
	p := blas64.General{Rows: rows, Cols: n, Stride: wide, Data: make([]float64, rows*wide)}
	dense.Gemm(blas.NoTrans, blas.Trans, 1, theta.RawMatrix(), x, 0, p)
	top, sum := make([]float64, wide), make([]float64, wide)
	like := make([][]float64, samples) // log-likelihood of the true label
	for s := range samples {
		z := p.Data[s*c*wide : (s+1)*c*wide]
		like[s] = make([]float64, n)
		for y := range c {
			floats.AddConst(bias[s*c+y], z[y*wide:][:n])
		}
		for i, y := range e.Labels {
			like[s][i] = z[y*wide+i]
		}
		dense.Softmax(dense.Columns{C: c, N: wide, Stride: wide, Data: z},
			dense.Columns{C: c, N: wide, Stride: wide, Data: z}, top, sum)
		for i := range n {
			like[s][i] -= top[i] + math.Log(sum[i])
		}
	}
	// d loss / d like[s][i]: the samples' shares in the likelihood of a point, and of a batch.
	share := make([]float64, samples)
	weight := make([][]float64, samples)
	for s := range weight {
		weight[s] = make([]float64, n)
	}
	mixture := func(points []int, scale float64) (loss float64) {
		best := math.Inf(-1)
		for s := range share {
			share[s] = 0
			for _, i := range points {
				share[s] += like[s][i]
			}
			best = math.Max(best, share[s])
		}
		total := 0.0
		for s, v := range share {
			share[s] = math.Exp(v - best)
			total += share[s]
		}
		for s, v := range share {
			for _, i := range points {
				weight[s][i] -= scale * v / total
			}
		}
		return -scale * (best + math.Log(total/float64(samples)))
	}
	for i := range n {
		nll += mixture([]int{i}, 1/float64(n))
	}
	for _, b := range e.Batches {
		joint += mixture(b, 1/float64(len(e.Batches)*len(b)))
	}
	// d loss / d logits = weight (1 - p) at the label, -weight p elsewhere.
	dBias = make([]float64, rows)
	for s := range samples {
		for y := range c {
			row := p.Data[(s*c+y)*wide : (s*c+y)*wide+n]
			for i := range row {
				v := -weight[s][i] * row[i]
				if e.Labels[i] == y {
					v += weight[s][i]
				}
				row[i] = v
				dBias[s*c+y] += v
			}
		}
	}
	dTheta = make([]float64, rows*k)
	dense.Gemm(blas.NoTrans, blas.NoTrans, 1, p, x, 0, dense.General(rows, k, dTheta))
	return nll, joint, dTheta, dBias
}
