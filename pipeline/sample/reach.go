package sample

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"

	"fmp/models"
	"fmp/onnx"
	"fmp/pipeline/point"
)

// Reach measures the norm of uploaded class means relative to the bound on softened features of
// images: |phi(h)| = |h - c|/sqrt(1 + |h - c|²/r²) < r for every image (models.NewConjugate), and
// so for every mean of images.
type Reach struct {
	dx, k  int
	radius float64
	origin []float32
	gram   mat.Cholesky // V'V
}

// NewReach reads the softening of a graph of class means: of dx softened features or, where k is
// above 0, of k coordinates of them.
// It costs O(dx k²) once. Of dependent coordinates the Gram matrix is singular, and they are
// refused: a norm could not be told.
func NewReach(m *onnx.Model, dx, k int) (*Reach, error) {
	values, err := models.SofteningOf(m, dx, k)
	if err != nil {
		return nil, err
	}
	r := &Reach{dx: dx, k: k, radius: float64(values[models.ConjRadius].F32()[0])}
	if !(r.radius > 0) {
		return nil, fmt.Errorf("the radius is %v; want a number above 0", r.radius)
	}
	if k == 0 {
		r.k = dx
		return r, nil
	}
	r.origin = values[models.ConjOrigin].F32()
	v, gram := values[models.ConjMap].F32(), mat.NewSymDense(r.k, nil)
	for i := range r.k {
		for j := range i + 1 {
			var sum float64
			for d := range r.dx {
				sum += float64(v[d*r.k+i]) * float64(v[d*r.k+j])
			}
			gram.SetSym(i, j, sum)
		}
	}
	if !r.gram.Factorize(gram) {
		return nil, fmt.Errorf("its %d coordinates are not independent", r.k)
	}
	return r, nil
}

// Compute returns |phi|/r for each point of an upload: below 1 for means of images. For means of
// coordinates w it is the least norm of any phi with phi V = w + m0: |phi|^2 = (w + m0)' (V'V)^-1
// (w + m0).
// It costs O(n dx), or O(n k²) for coordinates. A Reach is only read and each call has scratch of
// its own, so that calls may overlap.
func (r *Reach) Compute(u *point.Set) ([]float64, error) {
	if u.Dx != r.dx && u.Dx != r.k {
		return nil, fmt.Errorf("uploaded means of %d numbers; the graph gives %d or %d",
			u.Dx, r.k, r.dx)
	}
	out := make([]float64, u.N)
	z, solved := mat.NewVecDense(r.k, nil), mat.NewVecDense(r.k, nil)
	for i := range out {
		row := u.Features(i)
		var sum float64
		if u.Dx == r.dx {
			for _, v := range row {
				sum += float64(v) * float64(v)
			}
		} else {
			for j, v := range row {
				z.SetVec(j, float64(v)+float64(r.origin[j]))
			}
			if err := r.gram.SolveVecTo(solved, z); err != nil {
				return nil, fmt.Errorf("coordinates: %w", err)
			}
			sum = mat.Dot(z, solved)
		}
		out[i] = math.Sqrt(sum) / r.radius
	}
	return out, nil
}

// rounding is how much the narrow element types of an upload may add to a reach, as a share of r.
const rounding = 1e-2

// Check returns an error for an upload with a mean that no images can have.
func (r *Reach) Check(u *point.Set) error { return r.within(u, 1+rounding) }

// CheckSum is Check of means of uploads that Check let pass. They lie within its bound as these do,
// and beyond it by their own rounding at most.
func (r *Reach) CheckSum(u *point.Set) error { return r.within(u, 1+2*rounding) }

// A reach that is NaN fails the comparison, as it is written, and is refused.
func (r *Reach) within(u *point.Set, most float64) error {
	all, err := r.Compute(u)
	if err != nil {
		return err
	}
	for i, v := range all {
		if !(v <= most) {
			return fmt.Errorf("points[%d] is %.3g times as far out as the features of any image",
				i, v)
		}
	}
	return nil
}
