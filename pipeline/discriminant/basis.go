package discriminant

import (
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"fmp/models/rng"
	"fmp/onnx"
	"fmp/pipeline/internal/moment"
)

// turns is the number of times that HeadBasis multiplies. Each weakens a direction that is left
// out, beside one that is kept, by the square of the ratio of their singular values.
const turns = 4

// HeadBasis returns k orthonormal directions of features, [dx, k], in which the classes of a
// network's last linear layer, weights [classes, dx], lie furthest apart: its leading right
// singular vectors, by subspace iteration (Halko, Martinsson and Tropp 2011, algorithm 4.4). Where
// the layer has fewer, random ones follow.
func HeadBasis(weights *mat.Dense, k int, seed uint64) *onnx.Tensor {
	classes, dx := weights.Dims()
	w := mat.DenseCopyOf(weights)
	mean := make([]float64, dx)
	for i := range classes {
		floats.AddScaled(mean, 1/float64(classes), w.RawRowView(i))
	}
	for i := range classes {
		floats.Sub(w.RawRowView(i), mean)
	}
	q := gaussian(dx, k, seed)
	own := min(k, classes-1)
	for range turns {
		var on, back mat.Dense
		on.Mul(w, q.Slice(0, dx, 0, own))
		back.Mul(w.T(), &on)
		q.Slice(0, dx, 0, own).(*mat.Dense).Copy(&back)
		q = moment.Orthonormal(q)
	}
	return moment.Tensor(q)
}

// RandomBasis returns k orthonormal directions of dx, [dx, k], drawn uniformly from a stream of
// seed.
func RandomBasis(dx, k int, seed uint64) *onnx.Tensor {
	return moment.Tensor(moment.Orthonormal(gaussian(dx, k, seed)))
}

func gaussian(dx, k int, seed uint64) *mat.Dense {
	noise := make([]float32, dx*k)
	rng.Normal(rng.New(seed, "moments", "basis"), noise)
	return moment.Rows(noise, k)
}
