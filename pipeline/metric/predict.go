package metric

import (
	"context"
	"fmt"
	"math"
	"runtime"

	"fmp/pipeline/erm"

	"golang.org/x/sync/errgroup"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
)

// Probabilities are class probabilities for N points: P holds N x C numbers, row-major.
type Probabilities struct {
	N, C int
	P    []float64
}

// Row is the C probabilities of point i. It shares memory.
func (p *Probabilities) Row(i int) []float64 { return p.P[i*p.C : (i+1)*p.C] }

// predictRows is how many points are predicted at a time: few enough to stay in cache, and below the size at
// which gonum's Gemm would start workers of its own.
const predictRows = 128

// Predict is the posterior predictive of an ensemble of heads: the mean of their softmaxes.
//
// features holds n x dx numbers, row-major, with dx = D-1 of the heads. At most threads goroutines share the
// rows (0: one a processor); the heads are always added in their order, so the figures do not depend on it.
func Predict(ctx context.Context, heads []erm.Theta, features []float32, threads int) (*Probabilities, error) {
	return predict(ctx, heads, features, threads, nil)
}

// predict is [Predict]; it shows every head's probabilities of every row to visit, where not nil, the heads of a row
// in their order and by one goroutine.
func predict(ctx context.Context, heads []erm.Theta, features []float32, threads int, visit func(head, row int, p []float64)) (*Probabilities, error) {
	if len(heads) == 0 {
		return nil, fmt.Errorf("predict: the ensemble is empty; give at least one head")
	}
	d, c := heads[0].D, heads[0].C
	dx := d - 1
	if dx < 1 || c < 1 {
		return nil, fmt.Errorf("predict: head of %d x %d; want at least 2 x 1", d, c)
	}
	if len(features)%dx != 0 {
		return nil, fmt.Errorf("predict: %d feature values do not divide into rows of dx %d; give the features that the heads were fitted to", len(features), dx)
	}
	// One class a row, so that Gemm runs along features (contiguous in both operands) rather than along classes.
	transposed := make([][]float64, len(heads))
	for s, t := range heads {
		if t.D != d || t.C != c || len(t.W) != d*c {
			return nil, fmt.Errorf("predict: head %d is %d x %d with %d numbers, head 0 is %d x %d; an ensemble has heads of one size", s, t.D, t.C, len(t.W), d, c)
		}
		w := make([]float64, c*d)
		for i := range d {
			for j := range c {
				v := t.W[i*c+j]
				if math.IsNaN(v) || math.IsInf(v, 0) {
					return nil, fmt.Errorf("predict: head %d holds %v at row %d, class %d; want finite numbers", s, v, i, j)
				}
				w[j*d+i] = v
			}
		}
		transposed[s] = w
	}
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	n := len(features) / dx
	out := &Probabilities{N: n, C: c, P: make([]float64, n*c)}
	g, work := errgroup.WithContext(ctx)
	g.SetLimit(threads)
	for from := 0; from < n; from += predictRows {
		rows := min(predictRows, n-from)
		g.Go(func() error {
			if err := work.Err(); err != nil {
				return err
			}
			x := make([]float64, rows*d)
			for i := range rows {
				for j, v := range features[(from+i)*dx : (from+i+1)*dx] {
					x[i*d+j] = float64(v)
				}
				x[i*d+dx] = 1
			}
			logits := make([]float64, rows*c)
			sum := out.P[from*c : (from+rows)*c]
			for s, w := range transposed {
				blas64.Gemm(blas.NoTrans, blas.Trans, 1,
					blas64.General{Rows: rows, Cols: d, Stride: d, Data: x},
					blas64.General{Rows: c, Cols: d, Stride: d, Data: w},
					0, blas64.General{Rows: rows, Cols: c, Stride: c, Data: logits})
				for i := range rows {
					l := logits[i*c : (i+1)*c]
					softmax(l)
					if visit != nil {
						visit(s, from+i, l)
					}
					for j, p := range l {
						sum[i*c+j] += p
					}
				}
			}
			for i := range sum {
				sum[i] /= float64(len(transposed))
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, fmt.Errorf("predict: %w", err)
	}
	return out, nil
}

// softmax replaces logits by probabilities; the largest is taken off first, so that Exp cannot overflow.
func softmax(l []float64) {
	top := l[0]
	for _, v := range l[1:] {
		top = max(top, v)
	}
	var sum float64
	for i, v := range l {
		l[i] = math.Exp(v - top)
		sum += l[i]
	}
	for i := range l {
		l[i] /= sum
	}
}
