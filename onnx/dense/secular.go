package dense

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
)

// join is the eigenproblem of Q (diag(d) + rho z z') Q', rho > 0, |z| = 1.
type join struct {
	d, z []float64
	q    blas64.General
	rho  float64
}

const epsilon = 0x1p-53

// solve returns eigenvalues, ascending, and eigenvectors. Poles whose weight is nothing, or that
// coincide with another, are eigenvalues as they are; the others move to the roots of the secular
// equation.
func (j *join) solve() ([]float64, blas64.General) {
	n := len(j.d)
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		switch {
		case j.d[a] < j.d[b]:
			return -1
		case j.d[a] > j.d[b]:
			return 1
		}
		return a - b
	})
	moved, kept := j.deflate(order)
	k := len(moved)
	values := make([]float64, 0, n)
	u := blas64.General{Rows: k, Cols: k, Stride: k, Data: make([]float64, k*k)}
	s := &secular{rho: j.rho, d: make([]float64, k), z: make([]float64, k), square: make([]float64, k),
		gap: make([]float64, k)}
	for i, at := range moved {
		s.d[i], s.z[i] = j.d[at], j.z[at]
		s.square[i] = s.rho * s.z[i] * s.z[i]
	}
	for i := range k {
		values = append(values, s.root(i))
		for l, g := range s.gap { // d_l - lambda_i
			u.Data[l*k+i] = g
		}
	}
	s.vectors(u)
	old := blas64.General{Rows: n, Cols: k, Stride: max(k, 1), Data: make([]float64, n*max(k, 1))}
	for r := range n {
		from, to := row64(j.q, r), row64(old, r)
		for i, at := range moved {
			to[i] = from[at]
		}
	}
	made := blas64.General{Rows: n, Cols: k, Stride: max(k, 1), Data: make([]float64, n*max(k, 1))}
	Gemm(blas.NoTrans, blas.NoTrans, 1, old, u, 0, made)
	for _, at := range kept {
		values = append(values, j.d[at])
	}
	return j.sorted(values, made, kept)
}

// sorted returns values in ascending order, with the columns of made and then the kept ones of q in
// the same order.
func (j *join) sorted(values []float64, made blas64.General,
	kept []int) ([]float64, blas64.General) {
	n := len(values)
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		if values[a] < values[b] {
			return -1
		} else if values[a] > values[b] {
			return 1
		}
		return 0
	})
	out := make([]float64, n)
	for i, from := range order {
		out[i] = values[from]
	}
	row := make([]float64, n)
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
	return out, j.q
}

// deflate divides the poles, given in ascending order, in those that move and those that are kept.
// Of two that nearly coincide a rotation of their vectors gives one the whole weight.
func (j *join) deflate(order []int) (moved, kept []int) {
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
type secular struct {
	rho          float64
	d, z, square []float64
	gap          []float64 // d_l - lambda of the last root
}

// at sets the gaps for lambda = origin + mu, and returns the two sums, up to pole i and beyond it,
// with their derivatives.
func (s *secular) at(origin, mu float64, i int) (below, above, slopeBelow, slopeAbove float64) {
	for l, d := range s.d {
		g := (d - origin) - mu
		s.gap[l] = g
		t := s.square[l] / g
		if l <= i {
			below, slopeBelow = below+t, slopeBelow+t/g
		} else {
			above, slopeAbove = above+t, slopeAbove+t/g
		}
	}
	return below, above, slopeBelow, slopeAbove
}

// root returns root i, between poles i and i+1, and leaves its distances to all poles in gap. Each
// step solves the equation of two poles that agrees in value and slope on either side (Li 1994),
// and halves the bracket where that leaves it.
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

// step returns how far the root of the equation of two poles lies from the last point.
func (s *secular) step(pair int, f, slopeBelow, slopeAbove float64) float64 {
	if pair+1 >= len(s.d) {
		return math.NaN()
	}
	p, q := s.gap[pair], s.gap[pair+1]
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

// vectors turns columns of d_l - lambda_i into eigenvectors: those of a matrix with exactly these
// roots, so that they are orthogonal.
func (s *secular) vectors(u blas64.General) {
	k := len(s.d)
	weight := make([]float64, k)
	for l := range k {
		w := u.Data[l*k+l]
		for i := range k {
			if i != l {
				w *= u.Data[l*k+i] / (s.d[l] - s.d[i])
			}
		}
		weight[l] = math.Copysign(math.Sqrt(math.Abs(w)), s.z[l])
	}
	norm := make([]float64, k)
	for l := range k {
		row := u.Data[l*k : (l+1)*k]
		for i, g := range row {
			row[i] = weight[l] / g
			norm[i] += row[i] * row[i]
		}
	}
	for l := range k {
		row := u.Data[l*k : (l+1)*k]
		for i := range row {
			row[i] /= math.Sqrt(norm[i])
		}
	}
}
