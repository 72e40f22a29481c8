package metric

import (
	"context"
	"fmt"
	"iter"
	"math"
	"runtime"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"

	"fmp/onnx/dense"
	"fmp/pipeline/erm"
)

// Probabilities holds class probabilities of N points: P has N x C numbers, row-major.
// It is not changed after it is made, so that goroutines may share it.
type Probabilities struct {
	N, C int
	P    []float64
}

// Row returns the C probabilities of point i. It shares memory with p.
// Writing to the row writes to p.
func (p *Probabilities) Row(i int) []float64 { return p.P[i*p.C : (i+1)*p.C] }

// Predict returns the posterior predictive of an ensemble of heads: the mean of their softmaxes,
// p(y | x) = 1/S sum_s softmax([x, 1] T_s)_y.
//
// features holds n x dx numbers, row-major, with dx = D-1 of the heads. At most threads goroutines
// share the rows (0: one per processor); the heads are always added in the same order, so the
// figures do not depend on threads.
// No head, or heads that differ in size, is an error. After a cancelled context the error is the
// context's.
func Predict(ctx context.Context, heads []erm.Theta, features []float32,
	threads int) (*Probabilities, error) {
	out := &Probabilities{}
	if len(heads) > 0 && heads[0].D > 1 {
		out.N, out.C = len(features)/(heads[0].D-1), heads[0].C
		out.P = make([]float64, out.N*out.C)
	}
	err := eachHead(ctx, heads, features, threads,
		func(from, n int, logits iter.Seq2[int, dense.Columns], b *blockSpace) {
			sum := dense.Columns{C: out.C, N: dense.Padded(n), Stride: predictRows, Data: b.p}
			clear(sum.Data)
			for _, l := range logits {
				dense.AddSoftmax(l, sum, b.top, b.sum)
			}
			for i := range n {
				for c := range out.C {
					out.P[(from+i)*out.C+c] = sum.Data[c*predictRows+i] / float64(len(heads))
				}
			}
		})
	if err != nil {
		return nil, err
	}
	return out, nil
}

const (
	// predictRows is how many points are predicted at a time, and predictLogits about how many rows
	// of stacked heads: the logits of one block of both stay in the second-level cache.
	predictRows   = 128
	predictLogits = 480
)

// blockSpace holds the buffers with which one goroutine predicts blocks of points; p (C x
// predictRows), top and sum are for softmaxes.
// Columns are predictRows apart, so that a last, shorter block has the same layout.
type blockSpace struct {
	x, logits, p, top, sum []float64
	points                 dense.Packed
}

func newBlockSpace(d, c, heads int) *blockSpace {
	numbers := func(n int) []float64 { return make([]float64, n*predictRows) }
	return &blockSpace{x: numbers(d), logits: numbers(heads * c), p: numbers(c), top: numbers(1),
		sum: numbers(1)}
}

// eachHead calls do for every block of points, with the index of its first point, their number, and
// the logits of the heads at them: C x n, one class per row, which do may overwrite. At most
// threads goroutines (0: one per processor) call do. They take blocks from one counter, and each
// block is the same whichever takes it. The cost is O(n S C D), and the room S C D numbers for the
// heads and a block's for each goroutine. Numbers that are not finite in a head are an error.
// Logits are [x, 1] T_s: the last row of a head is its bias. The iterator yields heads in their
// order, and do must not keep the logits after it.
func eachHead(ctx context.Context, heads []erm.Theta, features []float32, threads int,
	do func(from, n int, logits iter.Seq2[int, dense.Columns], b *blockSpace)) error {
	if len(heads) == 0 {
		return fmt.Errorf("predict: the ensemble is empty; give at least one head")
	}
	d, c := heads[0].D, heads[0].C
	dx := d - 1
	if dx < 1 || c < 1 {
		return fmt.Errorf("predict: head of %d x %d; want at least 2 x 1", d, c)
	}
	if len(features)%dx != 0 {
		return fmt.Errorf("predict: %d feature values do not divide into rows of dx %d; give the "+
			"features that the heads were fitted to", len(features), dx)
	}
	// The heads are stacked vertically, one class per row.
	stacked := make([]float64, len(heads)*c*d)
	for s, t := range heads {
		if t.D != d || t.C != c || len(t.W) != d*c {
			return fmt.Errorf("predict: head %d is %d x %d with %d numbers, head 0 is %d x %d; an "+
				"ensemble has heads of one size", s, t.D, t.C, len(t.W), d, c)
		}
		for i := range d {
			for j, v := range t.Row(i) {
				if math.IsNaN(v) || math.IsInf(v, 0) {
					return fmt.Errorf("predict: head %d holds %v at row %d, class %d; want "+
						"finite numbers", s, v, i, j)
				}
				stacked[(s*c+j)*d+i] = v
			}
		}
	}
	if threads <= 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	n := len(features) / dx
	most := max(1, predictLogits/c) // number of heads at a time
	most = min(most, len(heads))
	blocks := (n + predictRows - 1) / predictRows
	g, work := errgroup.WithContext(ctx)
	var taken atomic.Int64
	for range min(threads, blocks) {
		g.Go(func() error {
			b := newBlockSpace(d, c, most)
			for from := predictRows * int(taken.Add(1)-1); from < n; from =
				predictRows * int(taken.Add(1)-1) {
				if err := work.Err(); err != nil {
					return err
				}
				rows := min(predictRows, n-from)
				for i := range rows {
					for j, v := range features[(from+i)*dx : (from+i+1)*dx] {
						b.x[i*d+j] = float64(v)
					}
					b.x[i*d+dx] = 1
				}
				b.points = dense.Pack(blas.Trans, dense.General(rows, d, b.x), b.points.Buffer())
				do(from, rows, func(yield func(int, dense.Columns) bool) {
					for s := range heads {
						if s%most == 0 {
							k := min(most, len(heads)-s) * c
							clear(b.logits)
							b.points.Mul(blas.NoTrans, dense.General(k, d, stacked[s*c*d:]),
								blas64.General{Rows: k, Cols: rows, Stride: predictRows,
									Data: b.logits})
						}
						if !yield(s, dense.Columns{C: c, N: dense.Padded(rows), Stride: predictRows,
							Data: b.logits[s%most*c*predictRows:]}) {
							return
						}
					}
				}, b)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("predict: %w", err)
	}
	return nil
}
