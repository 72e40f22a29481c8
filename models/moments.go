package models

import (
	"fmt"

	"fmp/onnx"
	"fmp/onnx/build"
)

// MomentsBasis names the initializer [dx, k] on which the embedded features of an upload of moments
// are projected; graphs without it keep all dx.
//
// The embedded features are the Hellinger map of the features h, the square root of h/sum |h| with
// the sign of h. They have length 1, which bounds class means and scatter, and a heavy feature
// counts less (Perronnin, Sanchez and Mensink 2010, section 3; Arandjelovic and Zisserman 2012).
const MomentsBasis = "basis"

// minSum is the lower bound of sum |h| under the division: features that are all 0 have an
// embedding of zeros.
const minSum = 1e-20

// hellinger returns the embedded features of h [..., dx]. It is sign(h_j) sqrt(|h_j| / max(sum_i
// |h_i|, 1e-20)), times the basis where there is one.
func hellinger(b *build.Builder, h build.Ref, basis *onnx.Tensor) build.Ref {
	size := b.Op("Abs", []build.Ref{h})
	sum := b.Op("Max", []build.Ref{b.ReduceSum(size, true, -1), b.F32(minSum)})
	phi := b.Mul(b.Op("Sign", []build.Ref{h}), b.Sqrt(b.Div(size, sum)))
	if basis != nil {
		phi = b.MatMul(phi, b.Param(MomentsBasis, basis))
	}
	return phi
}

// MomentsConfig holds the parameters of an upload of moments.
type MomentsConfig struct {
	Dx, C int
	// Basis has orthonormal columns, [dx, k]; nil keeps all features.
	Basis *onnx.Tensor
	// Bytes is the largest upload.
	Bytes int
	// Kappa and KappaDeviation are the prior of the extractor's temperature (package discriminant);
	// 0: nothing.
	Kappa, KappaDeviation float64
}

// check returns an error for sizes out of their bounds.
func (c MomentsConfig) check() error {
	if c.Dx < 1 || c.Dx > maxWidth || c.C < 2 || c.C > maxWidth {
		return fmt.Errorf("moments of %d features and %d classes; allowed are 1 and 2 to %d",
			c.Dx, c.C, maxWidth)
	}
	if b := c.Basis; b != nil &&
		(b.DType != onnx.Float32 || len(b.Shape) != 2 || b.Shape[0] != c.Dx || b.Shape[1] < 1 ||
			b.Shape[1] >= c.Dx) {
		return fmt.Errorf("moments: the basis is %v; want float32 [%d, k] with fewer columns than "+
			"rows", b, c.Dx)
	}
	if c.Bytes < 1 {
		return fmt.Errorf("moments: uploads of %d bytes; want a number above 0", c.Bytes)
	}
	return nil
}

// MomentsEmbedding returns the embedding of clients that send moments: class means of the embedded
// features, one slot per class, of mass 0 where a client has no image of it. The scatter is the
// client's to compute from single images.
func MomentsEmbedding(c MomentsConfig) (*onnx.Model, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	g := newConjugate(ConjugateConfig{Dx: c.Dx, C: c.C}, "embedding", nil)
	g.upload(false, func(h build.Ref) build.Ref { return hellinger(g.b, h, c.Basis) })
	f := Manifest{Kind: KindEmbedding, Dx: c.Dx, C: c.C, S: c.C, ClassMeans: true,
		Bytes: c.Bytes, Kappa: c.Kappa,
		KappaDeviation: c.KappaDeviation}
	if c.Basis != nil {
		f.K = c.Basis.Shape[1]
	}
	return f.of(g.b)
}

// MomentsCoordinates returns the graph from features [n, dx] to embedded ones [n, k], the inputs of
// the heads, with the basis of clients' embedding; nil keeps all features. Features that were
// standardised, with mean and std of dx numbers each, are taken back first; nil is none.
func MomentsCoordinates(dx int, basis *onnx.Tensor, mean, std []float32) (*onnx.Model, error) {
	if len(mean) != len(std) || len(mean) != 0 && len(mean) != dx {
		return nil, fmt.Errorf("moments: %d means and %d standard deviations of %d features",
			len(mean), len(std), dx)
	}
	if err := (MomentsConfig{Dx: dx, C: 2, Basis: basis, Bytes: 1}).check(); err != nil {
		return nil, err
	}
	b := build.New("coordinates")
	h := b.Input("features", onnx.Float32, "n", dx)
	if len(mean) > 0 {
		h = b.Add(b.Mul(h, b.Const(onnx.Vector(std...))), b.Const(onnx.Vector(mean...)))
	}
	b.Output("coordinates", hellinger(b, h, basis))
	return b.Model()
}

// BasisOf returns the basis of a client graph or embedding of moments; nil where it keeps all
// features.
func BasisOf(m *onnx.Model, f Manifest) (*onnx.Tensor, error) {
	if f.K == 0 {
		return nil, nil
	}
	b := m.Graph.Initializers[MomentsBasis]
	if !isTensor(b, onnx.Float32, f.Dx, f.K) {
		return nil,
			fmt.Errorf("%s: its basis is %v; want float32 [%d, %d], as fmp fuse --upload moments "+
				"writes it", f.name(), b, f.Dx, f.K)
	}
	return b, nil
}
