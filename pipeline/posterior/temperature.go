package posterior

import (
	"context"
	"fmt"
	"math"
	"sync"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"

	"fmp/onnx/dense"
)

// Bounds on temperatures, and the tolerance in log T, far below what a hundred test points resolve.
const (
	minTemperature  = 1.0 / 4096
	maxTemperature  = 4096
	temperatureStep = 0.02
)

// logits holds the logits of every head of a result on held-out points, so that its NLL at another temperature needs no fit
// and no matrix product: float32, less the point's largest, one class per row and one entry of truth per column, padded.
type logits struct {
	c         int
	ensembles [][]ensembleLogits
	truth     []int
}

// logitsSpace holds the buffers of logits.nll.
type logitsSpace struct{ z, top, total, p []float64 }

var logitsSpaces = sync.Pool{New: func() any { return new(logitsSpace) }}

func (b *logitsSpace) resize(c, n int) {
	if cap(b.z) < c*n {
		b.z = make([]float64, c*n)
	}
	if cap(b.p) < n {
		b.top, b.total, b.p = make([]float64, n), make([]float64, n), make([]float64, n)
	}
	b.z, b.top, b.total, b.p = b.z[:c*n], b.top[:n], b.total[:n], b.p[:n]
}

// ensembleLogits are the logits of one head.
type ensembleLogits []float32

func newLogits(ctx context.Context, r *Result, k Held) (*logits, error) {
	rows, err := r.Rows(ctx, k.Features)
	if err != nil {
		return nil, err
	}
	out := &logits{truth: k.Labels}
	n := len(k.Labels)
	if n == 0 || len(rows)%n != 0 {
		return nil, fmt.Errorf("%d numbers for %d held-out points", len(rows), n)
	}
	dx := len(rows) / n
	x := make([]float64, len(rows))
	for i, v := range rows {
		x[i] = float64(v)
	}
	for _, e := range r.Ensembles {
		var heads []ensembleLogits
		for _, h := range e {
			if h.D != dx+1 {
				return nil, fmt.Errorf("a head of %d x %d on rows of %d numbers", h.D, h.C, dx)
			}
			out.c = h.C
			z := make([]float64, n*h.C)
			for i := range n {
				copy(z[i*h.C:], h.Row(dx))
			}
			dense.Gemm(blas.NoTrans, blas.NoTrans, 1,
				blas64.General{Rows: n, Cols: dx, Stride: dx, Data: x},
				blas64.General{Rows: dx, Cols: h.C, Stride: h.C, Data: h.W},
				1, blas64.General{Rows: n, Cols: h.C, Stride: h.C, Data: z})
			stride := dense.Padded(n)
			narrow := make(ensembleLogits, h.C*stride)
			for i := range n {
				row := z[i*h.C : (i+1)*h.C]
				top := floats.Max(row)
				for j, v := range row {
					narrow[j*stride+i] = float32(v - top)
				}
			}
			heads = append(heads, narrow)
		}
		out.ensembles = append(out.ensembles, heads)
	}
	return out, nil
}

// nll returns the mean NLL at temperature t, averaged over the ensembles.
func (l *logits) nll(t float64) float64 {
	n := dense.Padded(len(l.truth))
	b := logitsSpaces.Get().(*logitsSpace)
	defer logitsSpaces.Put(b)
	b.resize(l.c, n)
	z, p := dense.Columns{C: l.c, N: n, Stride: n, Data: b.z}, b.p
	inverse := 1 / t
	var sum float64
	for _, heads := range l.ensembles {
		clear(p)
		for _, narrow := range heads {
			for i, v := range narrow {
				z.Data[i] = float64(v) * inverse
			}
			dense.Softmax(z, z, b.top, b.total)
			for i, y := range l.truth {
				p[i] += z.Data[y*n+i]
			}
		}
		for i := range l.truth {
			sum -= math.Log(p[i]/float64(len(heads)) + nllFloor)
		}
	}
	return sum / float64(len(l.ensembles)*len(l.truth))
}

// nllFloor equals that of package metric: it keeps the score of an impossible event finite.
const nllFloor = 1e-12

// coolest returns the temperature of least mean NLL over tasks, and that NLL: the minimum is bracketed from start by
// factors of two and then found by golden-section search (Kiefer 1953) in log T.
func coolest(tasks []*logits, start float64) (t, nll float64) {
	f := func(u float64) float64 {
		var sum float64
		for _, l := range tasks {
			sum += l.nll(math.Exp(u)) / float64(len(tasks))
		}
		return sum
	}
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
