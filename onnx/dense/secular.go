package dense

import (
	"cmp"
	"math"
	"slices"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
)

// join is the eigenproblem of Q (diag(d) + rho z z') Q', rho > 0, |z| = 1. Q is made of two blocks
// on its diagonal, of which the first has upper rows.
type join struct {
	// poles, ascending within either block, and their weights; solve changes both, and q
	d, z  []float64
	q     blas64.General
	upper int
	rho   float64
	*scratch
}

// scratch is room for joins, one after the other. The first three have n² numbers and row has n, n
// being the size of the whole problem.
type scratch struct{ inverse, old, made, row []float64 }

func newScratch(n int) *scratch {
	room := func() []float64 { return make([]float64, n*n) }
	return &scratch{room(), room(), room(), make([]float64, n)}
}

// The blocks of Q that a column has numbers in.
const (
	inUpper = 1 << iota
	inLower
)

// epsilon is half the distance from 1 to the next float64: the largest relative error of a
// rounding.
const epsilon = 0x1p-53

// solve makes d the eigenvalues, ascending, and q the eigenvectors. Poles whose weight is nothing,
// or that coincide with another, are eigenvalues as they are; the others move to the roots of the
// secular equation. It costs O(k²) for the roots and O(n k²) for the product with k poles that
// move, which deflation makes fewer.
func (j *join) solve() {
	n := len(j.d)
	order, in := make([]int, n), make([]uint8, n)
	for i := range order {
		if order[i], in[i] = i, inUpper; i >= j.upper {
			in[i] = inLower
		}
	}
	// Equal poles keep their order, so that results do not depend on the sort.
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(j.d[a], j.d[b]), a-b)
	})
	moved, kept := j.deflate(order, in)
	k := len(moved)
	values := make([]float64, 0, n)
	// a vector a row
	u := blas64.General{Rows: k, Cols: k, Stride: max(k, 1), Data: j.inverse[:k*k]}
	s := &secular{rho: j.rho, d: make([]float64, k), z: make([]float64, k),
		square: make([]float64, k)}
	for i, at := range moved {
		s.d[i], s.z[i] = j.d[at], j.z[at]
		s.square[i] = s.rho * s.z[i] * s.z[i]
	}
	for i := range k {
		s.inverse = row64(u, i)
		values = append(values, s.root(i))
	}
	groups, to := grouped(moved, in)
	s.vectors(u, to, j.row)
	made := blas64.General{Rows: n, Cols: k, Stride: max(k, 1), Data: j.made[:n*k]}
	j.times(made, u, moved, to, rows{0, j.upper, 0, groups[1]})
	j.times(made, u, moved, to, rows{j.upper, n, groups[0], k})
	for _, at := range kept {
		values = append(values, j.d[at])
	}
	j.sort(values, made, kept)
}

// grouped returns the places of moved columns where those of the upper block come first, those of
// the lower one last, and how many of the first and of the first two groups there are. A product
// then leaves out the block of Q in which a group has zeros alone: about half of the work.
func grouped(moved []int, in []uint8) (ends [2]int, to []int) {
	to = make([]int, len(moved))
	next := 0
	for g, group := range []uint8{inUpper, inUpper | inLower, inLower} {
		for i, at := range moved {
			if in[at] == group {
				to[i] = next
				next++
			}
		}
		if g < 2 {
			ends[g] = next
		}
	}
	return ends, to
}

// rows are those from from to to-1 of Q, whose numbers are in the grouped columns from first to
// end-1.
type rows struct{ from, to, first, end int }

// times sets rows of made to those of Q's moved columns by u', of which all others are zeros there.
// Numbers of Q are gathered in the order of the groups first, so that one product serves a block of
// rows.
func (j *join) times(made, u blas64.General, moved, to []int, r rows) {
	h, w := r.to-r.from, r.end-r.first
	old := blas64.General{Rows: h, Cols: w, Stride: max(w, 1), Data: j.old[:h*w]}
	for i := range h {
		from, into := row64(j.q, r.from+i), row64(old, i)
		for l, at := range moved {
			if c := to[l] - r.first; c >= 0 && c < w {
				into[c] = from[at]
			}
		}
	}
	Gemm(blas.NoTrans, blas.Trans, 1, old, block(u, 0, u.Rows, r.first, w), 0,
		block(made, r.from, h, 0, made.Cols))
}

// sort makes d the values in ascending order, and q the columns of made and then its own kept ones
// in the same order. It works a row at a time, in place, by way of room for one row.
func (j *join) sort(values []float64, made blas64.General, kept []int) {
	n := len(values)
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(values[a], values[b]) })
	for i, from := range order {
		j.d[i] = values[from]
	}
	row := j.row[:n]
	for r := range n {
		to := row64(j.q, r)
		for i, from := range order {
			if from < made.Cols {
				row[i] = made.Data[r*made.Stride+from]
			} else {
				row[i] = to[kept[from-made.Cols]]
			}
		}
		copy(to, row)
	}
}

// deflate divides the poles, given in ascending order, in those that move and those that are kept.
// Of two that nearly coincide a rotation of their vectors gives one the whole weight; both are then
// in the blocks of either. The tolerance is 8 epsilon times the largest pole or weight, LAPACK's in
// dlaed2. Dropping numbers below it perturbs the matrix by no more than rounding does.
func (j *join) deflate(order []int, in []uint8) (moved, kept []int) {
	var most float64
	for i := range j.d {
		most = max(most, math.Abs(j.d[i]), math.Abs(j.z[i]))
	}
	tolerance := 8 * epsilon * most
	last := -1
	for _, at := range order {
		if j.rho*math.Abs(j.z[at]) <= tolerance {
			kept = append(kept, at)
			continue
		}
		if last >= 0 {
			s, c := j.z[last], j.z[at]
			length := math.Hypot(c, s)
			c, s = c/length, -s/length
			if gap := j.d[at] - j.d[last]; math.Abs(gap*c*s) <= tolerance {
				j.z[at], j.z[last] = length, 0
				n := len(j.d)
				blas64.Rot(blas64.Vector{N: n, Inc: j.q.Stride, Data: j.q.Data[last:]},
					blas64.Vector{N: n, Inc: j.q.Stride, Data: j.q.Data[at:]}, c, s)
				in[last] |= in[at]
				in[at] = in[last]
				a, b := j.d[last], j.d[at]
				j.d[last], j.d[at] = a*c*c+b*s*s, a*s*s+b*c*c
				kept = append(kept, last)
			} else {
				moved = append(moved, last)
			}
		}
		last = at
	}
	if last >= 0 {
		moved = append(moved, last)
	}
	return moved, kept
}

// secular is the equation 1 + sum_l square_l / (d_l - lambda) = 0 of poles d in ascending order.
// square_l is rho z_l². Its left side rises between neighbouring poles, so that each interval holds
// one root.
type secular struct {
	rho          float64
	d, z, square []float64
	inverse      []float64 // 1 / (d_l - lambda) of the last root
}

// at sets the inverses of the gaps for lambda = origin + mu, and returns the two sums, up to pole i
// and beyond it, with their derivatives. Gaps are taken from the nearest pole, origin: d_l - origin
// is then exact or nearly so, where d_l - lambda would lose its digits.
func (s *secular) at(origin, mu float64, i int) (below, above, slopeBelow, slopeAbove float64) {
	d, square, inverse := s.d, s.square[:len(s.d)], s.inverse[:len(s.d)]
	for l := 0; l <= i; l++ {
		v := 1 / ((d[l] - origin) - mu)
		inverse[l] = v
		t := square[l] * v
		below, slopeBelow = below+t, slopeBelow+t*v
	}
	for l := i + 1; l < len(d); l++ {
		v := 1 / ((d[l] - origin) - mu)
		inverse[l] = v
		t := square[l] * v
		above, slopeAbove = above+t, slopeAbove+t*v
	}
	return below, above, slopeBelow, slopeAbove
}

// root returns root i, between poles i and i+1, and leaves the inverses of its distances to all
// poles. Each step solves the equation of two poles that agrees in value and slope on either side
// (Li 1994), and halves the bracket where that leaves it. The root beyond the last pole lies at
// most the sum of square from it.
func (s *secular) root(i int) float64 {
	k := len(s.d)
	origin, low, high := s.d[i], 0.0, 0.0
	pair := i // the left one of the two poles
	if i == k-1 {
		for _, q := range s.square {
			high += q
		}
		pair = max(k-2, 0)
	} else {
		high = (s.d[i+1] - s.d[i]) / 2
		if b, a, _, _ := s.at(origin, high, i); 1+b+a < 0 {
			origin, low, high = s.d[i+1], -high, 0
		}
	}
	mu := (low + high) / 2
	for range 200 {
		below, above, slopeBelow, slopeAbove := s.at(origin, mu, pair)
		f := 1 + below + above
		if math.Abs(f) <= 4*epsilon*(1+math.Abs(below)+math.Abs(above)+math.Abs(mu)*(slopeBelow+slopeAbove)) {
			break
		}
		if f < 0 {
			low = mu
		} else {
			high = mu
		}
		next := mu + s.step(pair, f, slopeBelow, slopeAbove)
		if !(next > low && next < high) {
			next = (low + high) / 2
		}
		if next == mu || next == low || next == high {
			break
		}
		mu = next
	}
	s.at(origin, mu, pair)
	return origin + mu
}

// step returns how far the root of the equation of two poles lies from the last point. It is NaN of
// a single pole, which leaves the step to halving. Of the two forms of a quadratic's root each
// branch takes that without cancellation.
func (s *secular) step(pair int, f, slopeBelow, slopeAbove float64) float64 {
	if pair+1 >= len(s.d) {
		return math.NaN()
	}
	p, q := 1/s.inverse[pair], 1/s.inverse[pair+1]
	c := f - p*slopeBelow - q*slopeAbove
	a := (p+q)*f - p*q*(slopeBelow+slopeAbove)
	b := p * q * f
	root := math.Sqrt(max(a*a-4*b*c, 0))
	if q < 0 { // beyond the last pole
		if a >= 0 {
			return (a + root) / (2 * c)
		}
		return 2 * b / (a - root)
	}
	if a <= 0 {
		return (a - root) / (2 * c)
	}
	return 2 * b / (a + root)
}

// vectors turns rows of 1 / (d_l - lambda_i) into eigenvectors: those of a matrix with exactly
// these roots, so that they are orthogonal (Gu and Eisenstat 1995). Number l of each goes to place
// to[l]. The weight of pole l is the root of prod_i (lambda_i - d_l) / prod_{i != l} (d_i - d_l).
// That is Löwner's formula; the sign is that of z_l.
func (s *secular) vectors(u blas64.General, to []int, row []float64) {
	k := len(s.d)
	weight := make([]float64, k)
	for l := range weight {
		weight[l] = 1
	}
	for i := range k {
		inverse, d := row64(u, i)[:k], s.d[:k]
		for l, v := range inverse {
			if l != i {
				v *= d[l] - d[i]
			}
			weight[l] /= v
		}
	}
	for l, w := range weight {
		weight[l] = math.Copysign(math.Sqrt(math.Abs(w)), s.z[l])
	}
	for i := range k {
		inverse := row64(u, i)
		var norm float64
		for l, v := range inverse {
			v *= weight[l]
			row[l] = v
			norm += v * v
		}
		norm = 1 / math.Sqrt(norm)
		for l, at := range to {
			inverse[at] = row[l] * norm
		}
	}
}
