package moment

import (
	"errors"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
)

// Diagonalise returns the matrix V, directions as columns, for which V' within V is the identity
// and V' between V is diagonal, and that diagonal in descending order. It fails where a matrix has
// no eigenvalues, or within is singular to 10 digits. With within = Q D Q' and B = between it is Q
// D^-1/2 U. U are the eigenvectors of D^-1/2 Q'B Q D^-1/2. It costs O(d^3).
// A value is the ratio of the variances between and within classes along its column. Columns are
// orthogonal under within, and not in the plain inner product.
func Diagonalise(within, between *mat.SymDense) (v *mat.Dense, values []float64, err error) {
	scales, root, ok := Eigen(within)
	if !ok {
		return nil, nil, errors.New("the covariance within classes: its eigenvalues did not " +
			"converge")
	}
	d := len(scales)
	if !(scales[0] > 1e-10*scales[d-1]) {
		return nil, nil, errors.New("the covariance within classes is singular; " +
			"raise the shrinkage")
	}
	root.Apply(func(_, j int, v float64) float64 { return v / math.Sqrt(scales[j]) }, root)
	whole := Product(mat.DenseCopyOf(root.T()), Product(mat.DenseCopyOf(between), root, false),
		false)
	values, q, ok := Eigen(Symmetric(whole))
	if !ok {
		return nil, nil, errors.New("the covariance between classes: its eigenvalues did not " +
			"converge")
	}
	slices.Reverse(values)
	return Product(root, Leading(q, d), false), values, nil
}
