package domains

import (
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"fmp/onnx/dense"
	"fmp/pipeline/internal/moment"
	"fmp/pipeline/lab/rival"
	"fmp/pipeline/point"
)

// strengths are those that alignment is tried at, shares of the way to the barycenter; rivals as
// they are have strength 0. At strength 1 all clients have one mean, and one covariance but for
// shrinkage.
var strengths = []float64{0.2, 0.4, 0.6, 0.8, 1}

// most is the largest number of features that are aligned as they are. Of more, alignment and the
// methods after it have the principal components of the clients' features that hold .99 of their
// variance. Each matrix root costs O(d^3), and the barycenter takes one for each client and step.
const most = 256

// gaussian is the mean and the covariance of n feature vectors. cov is d x d, shrunk, and positive
// definite.
type gaussian struct {
	n    float64
	mean []float64
	cov  *mat.SymDense
}

// meanOf returns the mean of the rows of x. x has one row at least.
func meanOf(x *mat.Dense) []float64 {
	n, d := x.Dims()
	mean := make([]float64, d)
	for i := range n {
		floats.AddScaled(mean, 1/float64(n), x.RawRowView(i))
	}
	return mean
}

// less returns the rows of x less a vector.
func less(x *mat.Dense, v []float64) *mat.Dense {
	out := mat.DenseCopyOf(x)
	n, _ := x.Dims()
	for i := range n {
		floats.Sub(out.RawRowView(i), v)
	}
	return out
}

// gaussianOf returns the mean of the rows of x and their covariance, shrunk to a multiple of the
// identity (Ledoit and Wolf 2004). It is (1-s)/n sum_i (x_i - m)(x_i - m)' + s v I, with the mean
// variance v. The multiple is at least 1e-8 max(v, 1), so that transports can be inverted where s
// is 0. Rows that are all alike are an error, since no shrinkage tells their scale.
func gaussianOf(x *mat.Dense) (gaussian, error) {
	n, d := x.Dims()
	g := gaussian{float64(n), meanOf(x), mat.NewSymDense(d, nil)}
	centred := less(x, g.mean)
	share, variance, _, err := rival.LedoitWolf(centred)
	if err != nil {
		return g, err
	}
	g.cov.SymOuterK((1-share)/g.n, centred.T())
	for j := range d {
		g.cov.SetSym(j, j, g.cov.At(j, j)+max(share*variance, 1e-8*max(variance, 1)))
	}
	return g, nil
}

// roots returns the square root of a positive semi-definite matrix and the inverse of this root.
// Eigenvalues below 1e-12 of the largest are raised to it. It costs O(d^3). With S = V L V' they
// are V L^1/2 V' and V L^-1/2 V', both symmetric. Eigenvalues ascend, so that the last is the
// largest.
func roots(s mat.Symmetric) (root, inverse *mat.Dense) {
	d := s.SymmetricDim()
	values, v := dense.Eigen(mat.DenseCopyOf(s).RawMatrix())
	of := mat.NewDense(d, d, v.Data)
	scaled := func(by func(float64) float64) *mat.Dense {
		left := mat.NewDense(d, d, nil)
		left.Apply(func(_, j int, x float64) float64 {
			return x * by(max(values[j], values[d-1]*1e-12))
		},
			of)
		left.Mul(left, of.T())
		return left
	}
	return scaled(math.Sqrt), scaled(func(x float64) float64 { return 1 / math.Sqrt(x) })
}

// sandwich returns a b a, made symmetric; a is symmetric. Rounding leaves the product of symmetric
// factors a little asymmetric, and decompositions ask for symmetry.
func sandwich(a, b mat.Matrix) *mat.SymDense {
	var out mat.Dense
	out.Product(a, b, a)
	return moment.Symmetric(&out)
}

// barycenter returns the Gaussian of least mean squared Bures-Wasserstein distance from others,
// weighted by their numbers of points: its mean is theirs, and its covariance S the limit of
//
//	S <- S^-1/2 (sum_m w_m (S^1/2 C_m S^1/2)^1/2)^2 S^-1/2
//
// (Álvarez-Esteban et al. 2016, A fixed-point approach to barycenters in Wasserstein space, theorem
// 4.2). It begins at the weighted mean of the covariances. It ends where a step moves S by less
// than a millionth of its norm, or after 100 steps. A step costs O(m d^3) for m Gaussians. It
// converges to the unique barycenter where one covariance is positive definite, which all are here.
// Its n is the sum of the others'.
func barycenter(of []gaussian) gaussian {
	d := len(of[0].mean)
	b := gaussian{0, make([]float64, d), mat.NewSymDense(d, nil)}
	for _, g := range of {
		b.n += g.n
	}
	var part mat.SymDense
	for _, g := range of {
		for j, v := range g.mean {
			b.mean[j] += g.n / b.n * v
		}
		part.ScaleSym(g.n/b.n, g.cov)
		b.cov.AddSym(b.cov, &part)
	}
	for range 100 {
		root, inverse := roots(b.cov)
		sum := mat.NewDense(d, d, nil)
		for _, g := range of {
			r, _ := roots(sandwich(root, g.cov))
			r.Scale(g.n/b.n, r)
			sum.Add(sum, r)
		}
		var square mat.Dense
		square.Mul(sum, sum)
		next := sandwich(inverse, &square)
		part.ScaleSym(-1, b.cov)
		part.AddSym(next, &part)
		moved := mat.Norm(&part, 2) / mat.Norm(next, 2)
		if b.cov = next; moved < 1e-6 {
			break
		}
	}
	return b
}

// transport is the optimal transport of one Gaussian onto another, x -> to + A (x - from) with
// A = C^-1/2 (C^1/2 S C^1/2)^1/2 C^-1/2 for covariances C and S. A C A = S: the moved points have
// the target's covariance. A is the identity where both covariances are equal.
type transport struct {
	from, to []float64
	a        mat.Matrix
}

// onto returns the transport of g onto s.
func (g gaussian) onto(s gaussian) transport {
	root, inverse := roots(g.cov)
	r, _ := roots(sandwich(root, s.cov))
	return transport{g.mean, s.mean, sandwich(inverse, r)}
}

// along returns the rows of x, moved the share t of the way: (1-t) x + t (to + A (x - from)), the
// geodesic from one Gaussian to the other. x stays as it is. The cost is O(n d^2).
func (p transport) along(x *mat.Dense, t float64) *mat.Dense {
	n, d := x.Dims()
	out := mat.NewDense(n, d, nil)
	out.Mul(less(x, p.from), p.a) // A is symmetric
	for i := range n {
		row := out.RawRowView(i)
		floats.Add(row, p.to)
		floats.Scale(t, row)
		floats.AddScaled(row, 1-t, x.RawRowView(i))
	}
	return out
}

// axes are the principal components that features are aligned in; nil keeps the features. The
// columns of v are orthonormal, and r is below d.
type axes struct {
	mean []float64
	v    *mat.Dense // d x r
}

// axesOf returns the principal components of the rows that hold .99 of their variance, where they
// have more than most features. The n x n products of rows cost O(n^2 d + n^3). That is less than a
// d x d covariance costs for few images of many features. Two at least of the rows must differ. The
// number of axes is below that of rows, since centred rows have rank n - 1 at most.
func axesOf(x *mat.Dense) *axes {
	n, d := x.Dims()
	if d <= most {
		return nil
	}
	a := &axes{mean: meanOf(x)}
	centred := less(x, a.mean)
	// The components are X'U L^-1/2 with the eigenvectors U and values L of XX'.
	var gram mat.SymDense
	gram.SymOuterK(1, centred)
	values, u := dense.Eigen(mat.DenseCopyOf(&gram).RawMatrix())
	// The trace of XX' is the sum of squares of all features, as is that of X'X.
	total, r := mat.Trace(&gram), 0
	for held := 0.0; held < 0.99*total && r < n-1; r++ {
		held += values[n-1-r]
	}
	a.v = mat.NewDense(d, r, nil)
	scaled := mat.NewDense(n, r, nil)
	for k := range r {
		for i := range n {
			scaled.Set(i, k, u.Data[i*u.Stride+n-1-k]/math.Sqrt(values[n-1-k]))
		}
	}
	a.v.Mul(centred.T(), scaled)
	return a
}

// of returns rows in the axes. Without axes the rows are returned as they are, and share memory.
func (a *axes) of(x *mat.Dense) *mat.Dense {
	if a == nil {
		return x
	}
	var out mat.Dense
	out.Mul(less(x, a.mean), a.v)
	return &out
}

// aligned returns the views of a round by SLOT-Align (Berardini, Pastore and Murino 2026, arXiv
// 2606.16655), one for each strength: each client's features, and those of each domain that is
// scored, on their way to the barycenter of the clients'. A domain's mean and covariance are those
// of its unlabelled images. unlabelled has one slice for each of v.scored. Axes and barycenter are
// of the clients alone, so that a tested domain has no effect on them. It costs O(m d^3) for m
// clients and domains, beside the barycenter.
func aligned(v view, unlabelled [][]float32) ([]view, error) {
	dx := v.clients[0].Dx
	sets := make([]*mat.Dense, 0, len(v.clients)+len(unlabelled))
	for _, c := range v.clients {
		sets = append(sets, features(c))
	}
	for _, rows := range unlabelled {
		sets = append(sets, moment.Rows(rows, dx))
	}
	all, err := point.Pool(v.clients...)
	if err != nil {
		return nil, err
	}
	axes := axesOf(features(all))
	var of []gaussian
	for _, x := range sets {
		g, err := gaussianOf(axes.of(x))
		if err != nil {
			return nil, err
		}
		of = append(of, g)
	}
	center := barycenter(of[:len(v.clients)])
	var by []transport
	for _, g := range of {
		by = append(by, g.onto(center))
	}
	var out []view
	for _, t := range strengths {
		moved := view{strength: t}
		for m, c := range v.clients {
			moved.clients = append(moved.clients, withFeatures(c, by[m].along(axes.of(sets[m]), t)))
		}
		for i, rows := range v.scored {
			moved.scored = append(moved.scored,
				float32s(by[len(v.clients)+i].along(axes.of(moment.Rows(rows, dx)), t)))
		}
		out = append(out, moved)
	}
	return out, nil
}

// features returns those of a client's points.
func features(c *point.Set) *mat.Dense {
	rows, _ := c.Labelled()
	return moment.Rows(rows, c.Dx)
}

// float32s are the numbers of a matrix, row by row.
func float32s(x *mat.Dense) []float32 {
	return dense.As[float32](x.RawMatrix().Data)
}

// withFeatures returns a client's points with other features. Weights and labels are copied. x has
// a row for each point, of any number of features.
func withFeatures(c *point.Set, x *mat.Dense) *point.Set {
	_, d := x.Dims()
	out := point.New(c.N, d, c.C)
	copy(out.W, c.W)
	rows := float32s(x)
	for i := range c.N {
		copy(out.Row(i), rows[i*d:][:d])
		copy(out.Row(i)[d:], c.Row(i)[c.Dx:])
	}
	return out
}
