package rival

import (
	"context"
	"fmt"
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/mat"

	"fmp/onnx/dense"
	"fmp/pipeline/metric"
	"fmp/pipeline/posterior"
)

// Bounds on temperatures, and the tolerance in log T, far below the resolution of a hundred test
// points.
const (
	minTemperature  = 1.0 / 4096
	maxTemperature  = 4096
	temperatureStep = 0.02
)

// logits holds the logits of every head of a result on held-out points, so that its NLL at another
// temperature needs no fit and no matrix product: float32, less the point's largest, one class per
// row and one point per column, padded. One is 4 C n bytes for each head, which is the price of
// trying temperatures without another product. A change of temperature T turns logits z into z/T.
type logits struct {
	c, n      int // classes and points
	errs      float64
	ensembles [][]ensembleLogits
}

// ensembleLogits are the logits of one head, and among them those of the true classes and of the
// head's likeliest others, one a point.
type ensembleLogits struct{ all, truth, other []float32 }

// newLogits computes the logits of a result's heads on held-out points, in O(S n dx C) for S heads.
// The product runs in float64 over all points at once; its rows are padded as package dense wants
// them. The point's largest logit is taken away before narrowing, so that exp(z/T) is at most 1 at
// any T. Padding columns are computed and never read.
func newLogits(ctx context.Context, r *posterior.Result, k Held) (*logits, error) {
	rows, err := r.Rows(ctx, k.Features)
	if err != nil {
		return nil, err
	}
	n := len(k.Labels)
	out := &logits{n: n, errs: k.Errs}
	if n == 0 || len(rows)%n != 0 {
		return nil, fmt.Errorf("%d numbers for %d held-out points", len(rows), n)
	}
	dx := len(rows) / n
	x := dense.As[float64](rows)
	points := dense.Pack(blas.Trans, blas64.General{Rows: n, Cols: dx, Stride: dx, Data: x}, nil)
	stride := dense.Padded(n)
	top := make([]float64, stride)
	var z []float64
	for _, e := range r.Ensembles {
		var heads []ensembleLogits
		for _, h := range e {
			if h.D != dx+1 {
				return nil, fmt.Errorf("a head of %d x %d on rows of %d numbers", h.D, h.C, dx)
			}
			out.c = h.C
			if len(z) != h.C*stride {
				z = make([]float64, h.C*stride)
			}
			row := func(j int) []float64 { return z[j*stride : (j+1)*stride] }
			for j, bias := range h.Row(dx) {
				to := row(j)
				for i := range to {
					to[i] = bias
				}
			}
			transposed := mat.DenseCopyOf(mat.NewDense(dx, h.C, h.W[:dx*h.C]).T()).RawMatrix()
			points.Mul(blas.NoTrans, transposed,
				blas64.General{Rows: h.C, Cols: stride, Stride: stride, Data: z})
			copy(top, row(0))
			for j := 1; j < h.C; j++ {
				for i, v := range row(j) {
					top[i] = max(top[i], v)
				}
			}
			narrow := ensembleLogits{make([]float32, len(z)), make([]float32, stride),
				make([]float32, stride)}
			for j := range h.C {
				to := narrow.all[j*stride:]
				for i, v := range row(j) {
					to[i] = float32(v - top[i])
				}
			}
			for i, y := range k.Labels {
				narrow.truth[i] = narrow.all[y*stride+i]
				narrow.other[i] = float32(math.Inf(-1))
				for j := range h.C {
					if j != y {
						narrow.other[i] = max(narrow.other[i], narrow.all[j*stride+i])
					}
				}
			}
			heads = append(heads, narrow)
		}
		out.ensembles = append(out.ensembles, heads)
	}
	return out, nil
}

// nll returns the mean NLL at temperature t, averaged over the ensembles, with the points that are
// taken to err (Held.Errs): to n points it adds that number of others, whose label is the likeliest
// wrong one. With e such points among n the sum is
//
//	(sum_i -log p(truth_i) + e mean_i -log p(other_i)) / (n + e)
//
// It is in nats a point.
func (l *logits) nll(t float64) float64 {
	nll := l.mean(t, func(h *ensembleLogits) []float32 { return h.truth })
	if l.errs == 0 {
		return nll
	}
	n := float64(l.n)
	other := l.mean(t, func(h *ensembleLogits) []float32 { return h.other })
	return (n*nll + l.errs*other) / (n + l.errs)
}

// mean returns the mean of -log p at temperature t over points and ensembles, where p is the
// probability of the class with the given logits, a mean over the ensemble's heads:
//
//	p = 1/S sum_s exp(z_s/t) / sum_c exp(z_sc/t)
//
// With T the mean over heads is of probabilities, not of logits. It costs O(S n C) exponentials.
func (l *logits) mean(t float64, class func(h *ensembleLogits) []float32) float64 {
	n := dense.Padded(l.n)
	p, part, total := make([]float64, n), make([]float64, n), make([]float64, n)
	var sum float64
	for _, heads := range l.ensembles {
		clear(p)
		for i := range heads {
			dense.ExpSum(l.c, n, heads[i].all, 1/t, total)
			dense.ExpSum(1, n, class(&heads[i]), 1/t, part)
			for i, v := range part {
				p[i] += v / total[i]
			}
		}
		for _, v := range p[:l.n] {
			sum -= math.Log(v/float64(len(heads)) + nllFloor)
		}
	}
	return sum / float64(len(l.ensembles)*l.n)
}

// joint returns the mean joint NLL on batches at temperature t, averaged over the ensembles; 0
// without batches. For a batch B it is -log(1/S sum_s prod_(i in B) p_s(y_i)): samples must be
// right about all points together.
func (l *logits) joint(t float64, batches [][]int) float64 {
	if len(batches) == 0 {
		return 0
	}
	n := dense.Padded(l.n)
	part, total := make([]float64, n), make([]float64, n)
	var sum float64
	for _, heads := range l.ensembles {
		likelihood := metric.NewLikelihood(l.n, len(heads))
		for s, h := range heads {
			dense.ExpSum(l.c, n, h.all, 1/t, total)
			dense.ExpSum(1, n, h.truth, 1/t, part)
			for i := range l.n {
				likelihood[i][s] = part[i]/total[i] + nllFloor
			}
		}
		sum += metric.JointNLL(likelihood, batches)
	}
	return sum / float64(len(l.ensembles))
}

// nllFloor equals that of package metric: it keeps the score of an impossible event finite. Its
// logarithm bounds one point's NLL by about 27.6 nats.
const nllFloor = 1e-12

// coolest returns the temperature of least mean NLL over tasks, and that NLL: the minimum is
// bracketed from start by factors of two and then found by golden-section search (Kiefer 1953) in
// log T. Each step shortens the bracket by .618 with one evaluation: some nine follow the first
// bracket. One evaluation costs O(S n C) for every task. NLL may have several minima in T; the one
// that is found is the first on the way down from start. A start near the minimum saves steps of
// the bracket. The result is rounded to three digits, and nll is that of the rounded value. Beyond
// the bounds on temperatures the bracket grows no further.
func coolest(tasks []*logits, start float64) (t, nll float64) {
	f := func(u float64) float64 {
		var sum float64
		for _, l := range tasks {
			sum += l.nll(math.Exp(u)) / float64(len(tasks))
		}
		return sum
	}
	// u = log T; f is the mean NLL over tasks at T = e^u.
	step := math.Log(2)
	mid := math.Log(start)
	fm := f(mid)
	lo, hi := mid-step, mid+step
	fl, fh := f(lo), f(hi)
	for fl < fm && lo > math.Log(minTemperature) {
		hi, mid, fm = mid, lo, fl
		lo -= step
		fl = f(lo)
	}
	for fh < fm && hi < math.Log(maxTemperature) {
		lo, mid, fm = mid, hi, fh
		hi += step
		fh = f(hi)
	}
	// The middle of a bracket of equal halves becomes one of golden sections.
	ratio := (math.Sqrt(5) - 1) / 2
	a, b := hi-ratio*(hi-lo), lo+ratio*(hi-lo)
	fa, fb := f(a), f(b)
	for hi-lo > temperatureStep {
		if fa < fb {
			hi, b, fb = b, a, fa
			a = hi - ratio*(hi-lo)
			fa = f(a)
		} else {
			lo, a, fa = a, b, fb
			b = lo + ratio*(hi-lo)
			fb = f(b)
		}
	}
	t = digits(math.Exp((lo + hi) / 2))
	return t, f(math.Log(t))
}
