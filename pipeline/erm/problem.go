package erm

import (
	"fmt"
	"math"

	"fmp/pipeline/point"
)

// Problem is one softmax regression: N points of Dx features, labels on the C-simplex, weights, and
// the strength L2 of the regulariser. Everything is row-major float64. A fit minimises over the
// head T, [Dx+1, C], with p_i = softmax(x_i T)
//
//	J(T) = -sum_i w_i sum_c y_ic log p_ic + L2/2 |T - Centre|^2
//
// A fit changes none of its fields.
type Problem struct {
	N, Dx, C int
	X        []float64 // N x (Dx+1), the features of a point followed by 1 for the bias
	Y        []float64 // N x C, rows on the simplex
	W        []float64 // N, non-negative
	L2       float64   // lambda > 0
	Centre   *Theta    // where the regulariser is 0; nil: zeros
	Start    *Theta    // warm start; nil: Centre
	// Of the problem that a fit to two classes becomes, see fitTwo: C is 1, Y the probabilities of
	// the second class, and the head the second class's less the first's.
	two bool
}

// D returns the number of rows of the head: Dx + 1. The last row of a head belongs to the bias.
func (p *Problem) D() int { return p.Dx + 1 }

// maxElements bounds any one matrix of a problem (8 GiB of float64).
const maxElements = 1 << 30

// simplexSlack is the tolerance on the sum of a label's float32 probabilities.
const simplexSlack = 1e-3

// FromSets returns the problem of all points of the sets together, in order, with their weights. It
// is where the float32 of graphs becomes the float64 of fits.
//
// It is an error if sets differ in dx or C, a number is NaN or infinite, a weight negative, a label
// off the simplex, or l2 not above 0.
// It costs O(N (Dx + C)) memory in float64, and shares nothing with the sets.
func FromSets(l2 float64, sets ...*point.Set) (*Problem, error) {
	if len(sets) == 0 || sets[0] == nil {
		return nil, fmt.Errorf("erm: no points; give at least one set")
	}
	p := &Problem{Dx: sets[0].Dx, C: sets[0].C, L2: l2}
	for i, s := range sets {
		if s.Dx != p.Dx || s.C != p.C {
			return nil,
				fmt.Errorf("erm: set %d has dx %d and C %d, set 0 has %d and %d; "+
					"fit sets of one kind", i, s.Dx, s.C, p.Dx, p.C)
		}
		if err := CheckSet(s); err != nil {
			return nil, fmt.Errorf("erm: set %d: %w", i, err)
		}
		p.N += s.N
	}
	if err := p.checkSizes(); err != nil {
		return nil, err
	}
	d := p.D()
	p.X, p.Y, p.W = make([]float64, p.N*d), make([]float64, p.N*p.C), make([]float64, p.N)
	row := 0
	for _, s := range sets {
		for i := range s.N {
			z, x := s.Row(i), p.X[row*d:(row+1)*d]
			for j, v := range z[:p.Dx] {
				x[j] = float64(v)
			}
			x[p.Dx] = 1
			for j, v := range z[p.Dx:] {
				p.Y[row*p.C+j] = float64(v)
			}
			p.W[row] = float64(s.W[i])
			row++
		}
	}
	return p, nil
}

// CheckSet returns an error, naming the point, if a set cannot be fitted to. Labels may be off the
// simplex by [simplexSlack], as float32 rounds probabilities.
// Y nil means that labels lie behind the features in Z; else each point has one class.
func CheckSet(s *point.Set) error {
	d := s.Dx
	if s.Y == nil {
		d += s.C
	}
	if s.N < 0 || s.Dx < 1 || s.C < 1 || len(s.Z) != s.N*d || len(s.W) != s.N || s.Y != nil &&
		len(s.Y) != s.N {
		return fmt.Errorf("set of %d points (dx %d, C %d) with %d numbers and %d weights; want N "+
			"(dx + C) numbers and N weights", s.N, s.Dx, s.C, len(s.Z), len(s.W))
	}
	for i := range s.N {
		for j, v := range s.Features(i) {
			if !finite(float64(v)) {
				return fmt.Errorf(
					"feature %d of point %d is %v; want finite numbers: check the extractor's "+
						"input and output", j,
					i, v)
			}
		}
		var sum float64
		if s.Y != nil {
			if y := int(s.Y[i]); y < 0 || y >= s.C {
				return fmt.Errorf("point %d has class %d; allowed are 0 to %d", i, y, s.C-1)
			}
			sum = 1
		}
		if err := checkPoint(i, s.Z[i*d+s.Dx:(i+1)*d], sum, s.W[i]); err != nil {
			return err
		}
	}
	return nil
}

// checkPoint returns an error unless label, with the probabilities that add up to sum beside it,
// lies on the simplex and weight is allowed.
// It also refuses NaN, by finite.
func checkPoint[T float32 | float64](i int, label []T, sum float64, weight T) error {
	for j, v := range label {
		if !finite(float64(v)) || v < -simplexSlack || v > 1+simplexSlack {
			return fmt.Errorf("label of point %d has probability %v for class %d; allowed "+
				"are 0 to 1", i, v, j)
		}
		sum += float64(v)
	}
	if math.Abs(sum-1) > simplexSlack {
		return fmt.Errorf("label of point %d sums to %v; the probabilities of a label sum to 1",
			i, sum)
	}
	if w := float64(weight); !finite(w) || w < 0 {
		return fmt.Errorf("weight of point %d is %v; allowed are finite numbers from 0", i, w)
	}
	return nil
}

// finite reports whether v is neither NaN nor infinite, for which v-v is NaN.
// One subtraction and comparison cost less than math.IsNaN with math.IsInf.
func finite(v float64) bool { return v-v == 0 }

// checkSizes returns an error unless sizes are within bounds, and L2 is above 0. Products of sizes
// are compared by division, so that they cannot overflow.
// maxElements holds for X, Y and the head.
func (p *Problem) checkSizes() error {
	if p.N < 1 || p.Dx < 1 || p.C < 1 {
		return fmt.Errorf("erm: %d points of %d features and %d classes; want at least one of each",
			p.N, p.Dx, p.C)
	}
	for _, size := range [][2]int{{p.N, p.D()}, {p.N, p.C}, {p.D(), p.C}} {
		if size[0] > maxElements/size[1] {
			return fmt.Errorf(
				"erm: a matrix of %d x %d; allowed are %d numbers: use fewer points or features",
				size[0],
				size[1], maxElements)
		}
	}
	if !(p.L2 > 0) || math.IsInf(p.L2, 0) {
		return fmt.Errorf("erm: l2 is %v; allowed are finite numbers above 0", p.L2)
	}
	return nil
}

// Check returns an error if a problem that was not made by FromSets is invalid. A sum of squares
// tells in one pass whether a row is finite; single numbers are looked at only where it is not.
// It costs O(N (Dx + C)).
func (p *Problem) Check() error {
	if err := p.checkSizes(); err != nil {
		return err
	}
	d := p.D()
	if len(p.X) != p.N*d || len(p.Y) != p.N*p.C || len(p.W) != p.N {
		return fmt.Errorf(
			"erm: %d numbers in X, %d in Y, %d in W; want %d (N x dx+1), %d (N x C), %d (N)",
			len(p.X), len(p.Y), len(p.W), p.N*d, p.N*p.C, p.N)
	}
	for i := range p.N {
		if row := p.X[i*d : (i+1)*d]; !finite(dot(row, row)) {
			for j, v := range row { // squares may overflow where no feature is infinite
				if !finite(v) {
					return fmt.Errorf("erm: feature %d of point %d is %v; want finite numbers",
						j, i, v)
				}
			}
		}
		if v := p.X[i*d+p.Dx]; v != 1 {
			return fmt.Errorf("erm: the last column of X is %v at point %d; "+
				"it holds 1, for the bias", v, i)
		}
		if err := checkPoint(i, p.Y[i*p.C:(i+1)*p.C], 0, p.W[i]); err != nil {
			return fmt.Errorf("erm: %w", err)
		}
	}
	for name, t := range map[string]*Theta{"warm start": p.Start, "centre": p.Centre} {
		if t != nil {
			if err := t.checkFinite(name, p); err != nil {
				return err
			}
		}
	}
	return nil
}
