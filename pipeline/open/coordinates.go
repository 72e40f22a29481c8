package open

import (
	"context"
	"fmt"
	"math"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"fmp/onnx/dense"
	"fmp/pipeline/internal/moment"
	"fmp/pipeline/point"
)

// Coordinates map feature rows h to coordinates: they soften the norm, phi(h) = (h - c)/sqrt(1 + |h
// - c|^2/r^2), and project if there are many features. The graph of models.NewOpen computes the
// same.
type Coordinates struct {
	Centre []float64 // c [dx]
	Radius float64   // r
	// Projection [dx, k] is nil if all coordinates are kept.
	Projection *mat.Dense
}

// NewCoordinates returns the coordinates of a corpus: c is its mean, r the mean distance from it.
// If there are more than most features, the softened rows are projected onto their first most
// principal directions. An eigendecomposition of dx x dx numbers is made where features are
// projected.
func NewCoordinates(features []float32, dx, most int) (*Coordinates, error) {
	n := len(features) / dx
	if n < 2 {
		return nil, fmt.Errorf("coordinates: %d corpus rows; want 2 and more", n)
	}
	c := &Coordinates{Centre: make([]float64, dx)}
	for i, v := range features {
		c.Centre[i%dx] += float64(v) / float64(n)
	}
	for i := range n {
		sum := 0.0
		for j, v := range features[i*dx : (i+1)*dx] {
			d := float64(v) - c.Centre[j]
			sum += d * d
		}
		c.Radius += math.Sqrt(sum) / float64(n)
	}
	if !(c.Radius > 0) {
		return nil, fmt.Errorf("coordinates: all corpus rows are alike; " +
			"check the extractor and its input")
	}
	if dx <= most {
		return c, nil
	}
	rows := mat.NewDense(n, dx, c.rows(features))
	_, q, ok := moment.Eigen(moment.Gram(1/float64(n), rows))
	if !ok {
		return nil, fmt.Errorf("coordinates: the eigenvalues of the corpus's covariance did not " +
			"converge; check that features are finite and vary")
	}
	c.Projection = moment.Leading(q, most) // in descending order of variance
	return c, nil
}

// K returns the number of coordinates.
func (c *Coordinates) K() int {
	if c.Projection != nil {
		_, k := c.Projection.Dims()
		return k
	}
	return len(c.Centre)
}

// Rows returns the coordinates [n, k] of feature rows [n, dx].
func (c *Coordinates) Rows(features []float32) ([]float64, error) {
	dx := len(c.Centre)
	if len(features)%dx != 0 {
		return nil, fmt.Errorf("%d feature values do not divide into rows of dx %d; use the "+
			"extractor that the open predictor was trained behind", len(features), dx)
	}
	return c.project(c.rows(features)), nil
}

// project maps softened rows, or their means, to coordinates.
func (c *Coordinates) project(rows []float64) []float64 {
	if c.Projection == nil {
		return rows
	}
	dx, k := len(c.Centre), c.K()
	n := len(rows) / dx
	out := make([]float64, n*k)
	blas64.Gemm(blas.NoTrans, blas.NoTrans, 1,
		dense.General(n, dx, rows), c.Projection.RawMatrix(), 0, dense.General(n, k, out))
	return out
}

// Soften returns an upload: the class means of a set's softened features, dx numbers for each class
// in the set, with the masses of the classes.
func (c *Coordinates) Soften(set *point.Set) (*point.Set, error) {
	soft, err := c.Softened(set)
	if err != nil {
		return nil, err
	}
	return Means(soft).Set(), nil
}

// Softened returns a set with its features softened. Images are softened before their mean is
// taken: the mean of softened rows is not the softened mean.
func (c *Coordinates) Softened(set *point.Set) (*point.Set, error) {
	dx := len(c.Centre)
	if set.Dx != dx {
		return nil, fmt.Errorf("points of %d features; the open predictor takes %d: use the "+
			"extractor that it was trained behind", set.Dx, dx)
	}
	soft := point.New(set.N, dx, set.C)
	copy(soft.W, set.W)
	for i := range set.N {
		row := soft.Row(i)
		copy(row, dense.As[float32](c.rows(set.Row(i)[:dx])))
		copy(row[dx:], set.Row(i)[dx:])
	}
	return soft, nil
}

// Project maps upload m, class means of softened features, to the coordinates. Without a projection
// it returns the upload itself. A mean's coordinates are the mean of those of its images, since the
// map of softened rows is linear.
func (c *Coordinates) Project(m int, u *point.Set) (*point.Set, error) {
	dx, k := len(c.Centre), c.K()
	if u == nil || u.Dx != dx {
		return nil, fmt.Errorf("upload %d does not have %d numbers a point; the open predictor "+
			"takes class means of as many softened features", m, dx)
	}
	if c.Projection == nil {
		return u, nil
	}
	out := point.New(u.N, k, u.C)
	copy(out.W, u.W)
	for i := range u.N {
		copy(out.Row(i), dense.As[float32](c.project(dense.As[float64](u.Row(i)[:dx]))))
		copy(out.Row(i)[k:], u.Row(i)[dx:])
	}
	return out, nil
}

// Pool pools uploads, each of them class means of softened features, in the coordinates. Each
// upload is projected twice, once for the means and once for the scatter, so that all of them are
// never in memory at once.
func (c *Coordinates) Pool(uploads []*point.Set) (*Stats, error) {
	return pool(len(uploads), func(m int) (*point.Set, error) { return c.Project(m, uploads[m]) })
}

// rows returns the softened rows, before projection. It returns a copy; the features stay as they
// are.
func (c *Coordinates) rows(features []float32) []float64 {
	dx := len(c.Centre)
	out := dense.As[float64](features)
	for i := 0; i < len(out); i += dx {
		row := out[i : i+dx]
		sum := 0.0
		for j := range row {
			row[j] -= c.Centre[j]
			sum += row[j] * row[j]
		}
		floats.Scale(1/math.Sqrt(1+sum/(c.Radius*c.Radius)), row)
	}
	return out
}

// Map returns the coordinates in single precision, as package posterior takes them.
func (c *Coordinates) Map(_ context.Context, features []float32) ([]float32, error) {
	rows, err := c.Rows(features)
	return dense.As[float32](rows), err
}
