package honesty

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"

	"fmp/onnx/dense"
)

// Who is honest is judged by less in a large round, as one judgement takes clients x classes x
// classes x coordinates densities, often:
//
//   - a cell may be of its own class or of the candidates whose pooled means, of all clients, are
//     nearest to it;
//   - up to narrowExact clients all states are enumerated, and more are judged by the fewest
//     chains;
//   - in a wide round uploads have [Leading] coordinates, those in which the corpus's classes
//     differ most.
const (
	// Leading is the number of coordinates that the uploads of a wide round hold.
	Leading = 64
	// candidates is the number of classes that a cell may be of beside its own.
	candidates = 16
	// narrowExact is the largest number of clients of which all states, 32, are enumerated.
	narrowExact = 5
)

// wideFrom is the product of classes and coordinates above which a round is wide, and largeFrom the
// number of densities of one judgement above which it is large.
const (
	wideFrom  = 1 << 14
	largeFrom = 1 << 23
)

// IsWide reports whether a round is wide, by its numbers of classes and coordinates.
func IsWide(classes, k int) bool { return classes*k > wideFrom }

// large reports whether the round is judged by less.
func (u *Uploads) large() bool { return u.Wide || u.Clients*u.Classes*u.Classes*u.K > largeFrom }

// exact returns the number of clients up to which all states are enumerated.
func (u *Uploads) exact() int {
	if u.large() {
		return narrowExact
	}
	return Exact
}

// width returns the number of components of a cell's mixture.
func (h *model) width() int {
	if h.large {
		return min(candidates+1, h.classes) + 2
	}
	return h.classes + 2
}

// everywhere lets each cell be of any class.
func (h *model) everywhere() {
	h.large = false
	all := make([]int, h.classes+2)
	for j := range all {
		all[j] = j
	}
	h.among = slices.Repeat([][]int{all}, h.classes)
	for m := range h.cells {
		for i := range h.cells[m] {
			l := &h.cells[m][i]
			l.near, l.own, l.at = all, l.class, all
		}
	}
}

// nearby sets the classes that cells may be of.
func (h *model) nearby(u *Uploads) {
	if h.large = u.large(); !h.large {
		h.everywhere()
		return
	}
	pooled := u.weighted(slices.Repeat([]float64{1}, h.clients))
	half := make([]float64, h.classes) // |mean|^2/2; infinite for a class that nobody holds
	for c, n := range pooled.mass {
		mean := pooled.sum[c*h.k:][:h.k]
		for j := range mean {
			mean[j] /= max(n, math.SmallestNonzeroFloat64)
			half[c] += mean[j] * mean[j] / 2
		}
		if n == 0 {
			half[c] = math.Inf(1)
		}
	}
	h.among = make([][]int, h.classes)
	means := dense.General(h.classes, h.k, pooled.sum)
	for _, cells := range h.cells {
		if len(cells) == 0 {
			continue
		}
		x := blas64.General{Rows: len(cells), Cols: h.k, Stride: h.k}
		for i := range cells {
			x.Data = append(x.Data, cells[i].x[:h.k]...)
		}
		dots := dense.General(len(cells), h.classes, make([]float64, len(cells)*h.classes))
		dense.Gemm(blas.NoTrans, blas.Trans, 1, x, means, 0, dots)
		for i := range cells {
			score := dots.Data[i*h.classes:][:h.classes]
			floats.Sub(score, half)
			cells[i].near = h.nearest(cells[i].class, score)
			cells[i].own = slices.Index(cells[i].near, cells[i].class)
			h.among[cells[i].class] = append(h.among[cells[i].class], cells[i].near...)
		}
	}
	for c, all := range h.among {
		slices.Sort(all)
		h.among[c] = slices.Compact(all)
	}
	for _, cells := range h.cells {
		for i := range cells {
			l := &cells[i]
			l.at = make([]int, len(l.near))
			for at, j := range l.near {
				l.at[at], _ = slices.BinarySearch(h.among[l.class], j)
			}
		}
	}
}

// nearest returns the class and those of the highest scores, in ascending order, and then the two
// components that are no class.
func (h *model) nearest(class int, score []float64) []int {
	n := h.width() - 3
	best := make([]int, 0, n+1)
	for c, v := range score {
		if c == class || len(best) == n && !(v > score[best[n-1]]) {
			continue
		}
		if len(best) == n {
			best = best[:n-1]
		}
		at, _ := slices.BinarySearchFunc(best, v,
			func(b int, v float64) int { return cmp.Compare(v, score[b]) })
		best = slices.Insert(best, at, c)
	}
	best = append(best, class)
	slices.Sort(best)
	return append(best, h.classes, h.classes+1)
}

// few is components for the classes near a cell.
func (st *state) few(l *cell, out []float64) {
	k := st.h.k
	x, last := l.x[:k], len(l.near)-2
	for at, c := range l.near[:last] {
		mean, v := st.mean[c*k:][:k], st.v[c*k:][:k]
		q, logs, product := 0.0, 0.0, 1.0
		j := 0
		// d1²/s1 + d2²/s2 = (d1² s2 + d2² s1) / (s1 s2): one division for four
		for ; j+4 <= k; j += 4 {
			x, mean, v := (*[4]float64)(x[j:]), (*[4]float64)(mean[j:]), (*[4]float64)(v[j:])
			d0, d1, d2, d3 := x[0]-mean[0], x[1]-mean[1], x[2]-mean[2], x[3]-mean[3]
			s0, s1, s2, s3 := v[0]+l.iv, v[1]+l.iv, v[2]+l.iv, v[3]+l.iv
			low, high := s0*s1, s2*s3
			s := low * high
			q += ((d0*d0*s1+d1*d1*s0)*high + (d2*d2*s3+d3*d3*s2)*low) / s
			if product *= s; product < 1e-200 || product > 1e200 {
				logs += math.Log(product)
				product = 1
			}
		}
		for ; j < k; j++ {
			d, s := x[j]-mean[j], v[j]+l.iv
			q += d * d / s
			product *= s
		}
		out[at] = -0.5 * (q + logs + math.Log(product) + float64(k)*log2pi)
	}
	out[last], out[last+1] = l.fresh, l.broad
}
