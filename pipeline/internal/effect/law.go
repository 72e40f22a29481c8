package effect

import (
	"fmt"

	"gonum.org/v1/gonum/mat"
)

// Law is the distribution of an effect, N(0, back' (U diag(along) U' + rest (I - UU')) back).
// white and back map between coordinates and those in which the covariance within classes is I.
// Neither is changed.
type Law struct {
	basis       *mat.Dense // U [k, r]; nil for r = 0
	along       []float64
	rest        float64
	white, back *mat.Dense
}

// lawOf returns the law of low rank whose covariance is the mean of b b' over clients, in
// coordinates in which the covariance within classes is I.
// A nil entry is a client without an effect, which counts in the mean as 0.
func lawOf(found [][]float64, white, back *mat.Dense) (Law, error) {
	var rows []float64
	n := 0
	for _, b := range found {
		if b != nil {
			rows, n = append(rows, b...), n+1
		}
	}
	k, _ := back.Dims()
	u, values, err := principal(mat.NewDense(n, k, rows))
	if err != nil {
		return Law{}, err
	}
	r, least := 0, negligible*values[0]
	for r < len(values) && values[r] > least {
		values[r] *= values[r] / float64(len(found))
		r++
	}
	return Law{mat.DenseCopyOf(u.Slice(0, k, 0, r)), values[:r], 0, white, back}, nil
}

// negligible is the share of the largest singular value below which one is rounding.
const negligible = 1e-6

// principal returns the orthonormal directions of rows, [k, r], and their singular values.
// Singular values descend. Numbers that are not finite are an error.
func principal(rows *mat.Dense) (*mat.Dense, []float64, error) {
	var svd mat.SVD
	if !svd.Factorize(rows.T(), mat.SVDThin) {
		return nil, nil, fmt.Errorf(
			"client effects: their covariance has no eigenvalues; check that class means are " +
				"finite")
	}
	u := new(mat.Dense)
	svd.UTo(u)
	return u, svd.Values(nil), nil
}

// Covariance returns that of class means' coordinates, [dx, dx]. It is back' (rest I + U diag(along
// - rest) U') back.
// It costs O(dx^2 k) for the rest and O(dx^2 r) for the directions.
func (l Law) Covariance() *mat.SymDense {
	out := new(mat.SymDense)
	out.SymOuterK(l.rest, l.back.T())
	if l.basis == nil {
		return out
	}
	var along mat.Dense
	along.Mul(l.back.T(), l.basis)
	dx, _ := along.Dims()
	for j, v := range l.along {
		out.SymRankOne(out, v-l.rest, mat.NewVecDense(dx, mat.Col(nil, j, &along)))
	}
	return out
}

// Directions are those of an effect, the furthest first. The covariance within classes is I along
// them.
type Directions struct {
	To, Back *mat.Dense // [dx, r] and [r, dx]; nil for r = 0
	Variance []float64  // along them
	Rest     float64    // in every other direction, in which the covariance within classes is I
	Trace    float64    // of the covariance within classes outside of the directions
}

// Directions returns those of the law. Where few clients have effects Rest is 0: most clients have
// none, and a client to come has none but along those found, unless its own images tell of one.
// With V = white and U the basis To is V U and Back is U' back. Trace is tr(back back') less that
// along them.
func (l Law) Directions() Directions {
	d := Directions{Variance: l.along, Rest: l.rest, Trace: square(l.back)}
	if l.basis != nil {
		d.To, d.Back = new(mat.Dense), new(mat.Dense)
		d.To.Mul(l.white, l.basis)
		d.Back.Mul(l.basis.T(), l.back)
		if d.Trace -= square(d.Back); d.Trace < negligible*square(l.back) {
			d.Trace = 0
		}
	}
	return d
}

// square returns the sum of squares of a matrix.
// Norm 2 of gonum is that of Frobenius.
func square(m *mat.Dense) float64 {
	n := mat.Norm(m, 2)
	return n * n
}
