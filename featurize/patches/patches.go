// Package patches learns an extractor without gradients: filters by clustering whitened patches,
// then a projection that separates the classes.
package patches

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"fmp/featurize/dataset"
	"fmp/featurize/extractor"
	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/dense"
	"fmp/onnx/engine"
)

// Options are the sizes of the extractor; zero fields take their defaults.
type Options struct {
	Filters int // default 96
	Side    int // of a filter, pixels; default 7
	Grid    int // pooling windows along each axis; default 4
	Dx      int // features; default 12
	Samples int // number of patches that are clustered; default 20000
	Images  int // maximum number of images that the projection is learned from; default 8000
	Rounds  int // of clustering; default 15
	// Ridge is added to the within-class covariance, relative to its largest eigenvalue; default
	// 0.002.
	Ridge   float64
	Threads int // batches in flight; the result does not depend on it
	Seed    uint64
	// Progress, if not nil, is called with the number of images done.
	Progress func(done, total int)
}

// withDefaults returns the options with the zero fields filled.
func (o Options) withDefaults() Options {
	for _, d := range []struct {
		v   *int
		def int
	}{{&o.Filters, 96}, {&o.Side, 7}, {&o.Grid, 4}, {&o.Dx, 12}, {&o.Samples, 20000},
		{&o.Images, 8000}, {&o.Rounds, 15}, {&o.Threads, 1}} {
		if *d.v == 0 {
			*d.v = d.def
		}
	}
	o.Ridge = cmp.Or(o.Ridge, 0.002)
	return o
}

// threshold is subtracted from responses of standard deviation 1 over patches.
const threshold = 0.5

// Learn trains an extractor on labelled images: spherical k-means on whitened patches yields the
// filters (Coates and Ng, Learning feature representations with k-means, 2012); the projection is
// onto the leading directions of the total covariance after whitening within classes, the first of
// which are Fisher's linear discriminants. Features are standardised over the images. The same
// Options yield the same model. part must be in memory. Labels are 0 to classes-1. It takes about
// Samples x d + Images x Filters x cells numbers of float64.
func Learn(ctx context.Context, eng engine.Engine, part *dataset.Labelled, classes int,
	o Options) (*onnx.Model, error) {
	o = o.withDefaults()
	if part.N < 10*classes || part.N < 100 {
		return nil, fmt.Errorf("learning patches: %d images of %d classes; at least 100 images "+
			"and 10 for each class are needed", part.N, classes)
	}
	if o.Side < 2 || o.Side > min(part.H, part.W) || o.Grid < 1 || o.Filters < 1 || o.Dx < 1 ||
		o.Samples < 10*o.Filters || o.Rounds < 1 || o.Ridge < 0 {
		return nil, fmt.Errorf("learning patches: sizes %+v do not fit images of %dx%d",
			o, part.H, part.W)
	}
	p := models.Patches{
		Height: part.H, Width: part.W, Channels: part.Ch, Threshold: threshold,
		Absolute: part.Ch > 1,
		// Windows cover the positions of a filter, Grid of them along the shorter side.
		Pool: (min(part.H, part.W) - o.Side + 1) / o.Grid,
	}
	if p.Pool < 1 {
		return nil, fmt.Errorf("learning patches: a grid of %d does not fit images of %dx%d and "+
			"filters of %d", o.Grid, part.H, part.W, o.Side)
	}
	var err error
	if p.Filters, err = filters(ctx, part, o); err != nil {
		return nil, err
	}
	responses, n, err := respond(ctx, eng, p, part, o)
	if err != nil {
		return nil, err
	}
	if err := project(&p, responses, part.Labels[:n], classes, o); err != nil {
		return nil, err
	}
	return p.Model()
}

// filters clusters whitened patches; each filter's response has mean 0 and standard deviation 1
// over the patches. With x_i the patches, W their whitening, c_j the centres and g_j = W c_j less
// its mean it is
//
//	f_j = g_j / sqrt(mean_i (x_i . g_j)^2 + 1e-12)
//
// They are [Filters, channels, side, side].
func filters(ctx context.Context, part *dataset.Labelled, o Options) (*onnx.Tensor, error) {
	r := rng.New(o.Seed, "patches")
	d := part.Ch * o.Side * o.Side
	x := mat.NewDense(o.Samples, d, nil)
	for i := range o.Samples {
		// A patch without contrast carries no information; look for another a few times.
		for range 20 {
			// The deviation is of pixels of 0 to 1.
			if cut(part, r, o.Side, x.RawRowView(i)) > 0.05 {
				break
			}
		}
	}
	white, err := whitening(x)
	if err != nil {
		return nil, err
	}
	var u mat.Dense
	u.Mul(x, white)
	for i := range o.Samples {
		unit(u.RawRowView(i))
	}
	centres, err := cluster(ctx, &u, r, o)
	if err != nil {
		return nil, err
	}
	var f, response mat.Dense
	// A centre's response to a whitened patch is that of (centre times whitening) to the patch
	// itself. Patches have mean 0, so that a filter's mean would add nothing.
	f.Mul(centres, white)
	for j := range o.Filters {
		centre(f.RawRowView(j))
	}
	response.Mul(x, f.T())
	out := make([]float32, 0, o.Filters*d)
	for j := range o.Filters {
		var ss float64
		for i := range o.Samples {
			ss += response.At(i, j) * response.At(i, j)
		}
		scale := 1 / math.Sqrt(ss/float64(o.Samples)+1e-12)
		for _, w := range f.RawRowView(j) {
			out = append(out, float32(scale*w))
		}
	}
	return onnx.NewTensor(out, o.Filters, part.Ch, o.Side, o.Side), nil
}

// whitening returns the symmetric matrix that gives the rows of x, patches, the covariance I, small
// eigenvalues apart. It is V diag(1 / sqrt(l + 0.02 max l)) V^T, where V diag(l) V^T are the second
// moments of the rows (ZCA). The share of the largest eigenvalue keeps directions of little
// variance, which are noise, small.
func whitening(x *mat.Dense) (*mat.Dense, error) {
	n, d := x.Dims()
	cov := mat.NewSymDense(d, nil)
	cov.SymOuterK(1/float64(n), x.T())
	var eig mat.EigenSym
	if !eig.Factorize(cov, true) {
		return nil, errors.New("learning patches: the covariance of the patches has no eigenvalues")
	}
	values := eig.Values(nil)
	top := values[d-1]
	if !(top > 0) {
		return nil, errors.New("learning patches: the images are blank")
	}
	var v, white mat.Dense
	eig.VectorsTo(&v)
	// Columns are eigenvectors.
	scaled := mat.DenseCopyOf(&v)
	for j, l := range values {
		s := 1 / math.Sqrt(math.Max(l, 0)+0.02*top)
		for i := range d {
			scaled.Set(i, j, scaled.At(i, j)*s)
		}
	}
	white.Mul(scaled, v.T())
	return &white, nil
}

// cluster returns unit centres [filters, d] of the unit rows of u by spherical k-means (Coates and
// Ng 2012). Each round gives every row to the centre of largest inner product, and makes each
// centre the direction of its rows' sum. It costs O(Samples * Filters * d). A centre without rows
// becomes a row drawn anew, so that no filter is lost. Ties go to the first centre.
func cluster(ctx context.Context, u *mat.Dense, r *rand.Rand, o Options) (*mat.Dense, error) {
	_, d := u.Dims()
	centres := mat.NewDense(o.Filters, d, nil)
	for j, i := range r.Perm(o.Samples)[:o.Filters] {
		copy(centres.RawRowView(j), u.RawRowView(i))
	}
	var sim mat.Dense
	for range o.Rounds {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		// Rows and centres have length 1: the inner product is the cosine.
		sim.Mul(u, centres.T())
		centres.Zero()
		for i := range o.Samples {
			best := floats.MaxIdx(sim.RawRowView(i))
			floats.Add(centres.RawRowView(best), u.RawRowView(i))
		}
		for j := range o.Filters {
			if unit(centres.RawRowView(j)) == 0 { // no patch was assigned to this centre
				copy(centres.RawRowView(j), u.RawRowView(r.IntN(o.Samples)))
			}
		}
	}
	return centres, nil
}

// cut copies a random patch, [channels, side, side] less its mean, into dst and returns its
// standard deviation. A pixel is scaled to 0..1. The order is that of a convolution's weights.
func cut(part *dataset.Labelled, r *rand.Rand, side int, dst []float64) float64 {
	im := part.At(r.IntN(part.N))
	y0, x0 := r.IntN(part.H-side+1), r.IntN(part.W-side+1)
	k := 0
	for c := range part.Ch {
		for y := range side {
			for x := range side {
				dst[k] = float64(im[((y0+y)*part.W+x0+x)*part.Ch+c]) / 255
				k++
			}
		}
	}
	centre(dst)
	var ss float64
	for _, v := range dst {
		ss += v * v
	}
	return math.Sqrt(ss / float64(len(dst)))
}

// centre subtracts the mean of v from it.
func centre(v []float64) {
	var sum float64
	for _, x := range v {
		sum += x
	}
	sum /= float64(len(v))
	for i := range v {
		v[i] -= sum
	}
}

// unit scales v to length 1 and returns the length it had.
func unit(v []float64) float64 {
	var ss float64
	for _, x := range v {
		ss += x * x
	}
	// A vector of zeros stays one.
	n := math.Sqrt(ss)
	if n > 0 {
		for i := range v {
			v[i] /= n
		}
	}
	return n
}

// respond computes the pooled responses of the first images. They are [n, Filters * cells], and n
// is the number of images, o.Images at most. The first images, and not drawn ones, need no copy.
// part must be in a mixed order.
func respond(ctx context.Context, eng engine.Engine, p models.Patches, part *dataset.Labelled,
	o Options) (*mat.Dense, int, error) {
	// Without a projection the model gives the pooled responses.
	m, err := p.Model()
	if err != nil {
		return nil, 0, err
	}
	x, err := extractor.New(eng, m, models.Manifest{},
		extractor.Options{Threads: o.Threads}, part.Images)
	if err != nil {
		return nil, 0, err
	}
	n := min(part.N, o.Images)
	first := dataset.Images{N: n, H: part.H, W: part.W, Ch: part.Ch,
		Pix: part.Pix[:n*part.H*part.W*part.Ch]}
	rows, err := x.Features(ctx, &first, o.Progress)
	if err := errors.Join(err, x.Close()); err != nil {
		return nil, 0, err
	}
	return mat.NewDense(n, x.Dx(), dense.As[float64](rows)), n, nil
}

// project learns the projection and its offset from responses [n, d]. Features are responses times
// the projection plus the offset, which is minus the mean response times the projection: their mean
// is 0 and their deviation 1. x is centred in place. With d_j a direction it is
//
//	w_j = d_j / sqrt(mean_i (x_i . d_j)^2 + 1e-12),   offset_j = -mean . w_j
//
// The projection is [d, Dx], and the offset [Dx].
func project(p *models.Patches, x *mat.Dense, labels []int, classes int, o Options) error {
	n, d := x.Dims()
	dx := o.Dx
	if dx > d {
		return fmt.Errorf("learning patches: %d features out of %d responses; ask for fewer", dx, d)
	}
	within, mean := centred(x, labels, classes)
	dir, err := discriminants(square(within), square(x), o)
	if err != nil {
		return err
	}
	var z mat.Dense
	z.Mul(x, dir)
	w, off := make([]float32, d*dx), make([]float32, dx)
	for j := range dx {
		var ss, shift float64
		for i := range n {
			ss += z.At(i, j) * z.At(i, j)
		}
		scale := 1 / math.Sqrt(ss/float64(n)+1e-12)
		for k := range d {
			v := scale * dir.At(k, j)
			w[k*dx+j] = float32(v)
			shift += v * mean[k]
		}
		off[j] = float32(-shift)
	}
	p.Projection, p.Offset = onnx.NewTensor(w, d, dx), onnx.NewTensor(off, dx)
	return nil
}

// centred subtracts the mean from the rows of x and returns it, beside the rows less their class
// means. within is [n, d]. A class without images has a mean of zeros, which no row uses.
func centred(x *mat.Dense, labels []int, classes int) (within *mat.Dense, mean []float64) {
	n, d := x.Dims()
	mean = make([]float64, d)
	means, count := mat.NewDense(classes, d, nil), make([]float64, classes)
	for i := range n {
		count[labels[i]]++
		m := means.RawRowView(labels[i])
		for k, v := range x.RawRowView(i) {
			mean[k] += v / float64(n)
			m[k] += v
		}
	}
	within = mat.NewDense(n, d, nil)
	for c := range classes {
		if count[c] > 0 {
			m := means.RawRowView(c)
			for k := range m {
				m[k] /= count[c]
			}
		}
	}
	for i := range n {
		row, w, m := x.RawRowView(i), within.RawRowView(i), means.RawRowView(labels[i])
		for k := range row {
			w[k] = row[k] - m[k]
			row[k] -= mean[k]
		}
	}
	return within, mean
}

// discriminants returns the o.Dx directions, as columns, of the largest total variance st relative
// to the within-class variance sw, which it makes larger by the ridge. They are stationary points
// of v^T St v / v^T (Sw + ridge I) v, found as v = L^-T q with L L^T = Sw + ridge I. It costs
// O(d^3) for the factor, and O(d^2 dx) for each of the 40 iterations. sw is changed in place.
func discriminants(sw, st *mat.SymDense, o Options) (*mat.Dense, error) {
	d, dx := sw.SymmetricDim(), o.Dx
	ridge := o.Ridge * largest(sw)
	if !(ridge > 0) {
		return nil, errors.New("learning patches: responses do not vary within classes")
	}
	for k := range d {
		sw.SetSym(k, k, sw.At(k, k)+ridge)
	}
	// L L^T = Sw + ridge I
	var chol mat.Cholesky
	if !chol.Factorize(sw) {
		return nil, errors.New("learning patches: the within-class covariance is not positive " +
			"definite; give a larger ridge")
	}
	var l mat.TriDense
	chol.LTo(&l)
	// Orthogonal iteration for the leading eigenvectors q of L^-1 St L^-T; the directions are L^-T
	// q.
	r := rng.New(o.Seed, "projection")
	q := mat.NewDense(d, dx, nil)
	for i := range q.RawMatrix().Data {
		q.RawMatrix().Data[i] = r.NormFloat64()
	}
	var dir mat.Dense
	for range 40 {
		orthonormal(q)
		if err := dir.Solve(l.T(), q); err != nil && !conditioned(err) {
			return nil, fmt.Errorf("learning patches: %w", err)
		}
		var t mat.Dense
		t.Mul(st, &dir)
		if err := q.Solve(&l, &t); err != nil && !conditioned(err) {
			return nil, fmt.Errorf("learning patches: %w", err)
		}
	}
	orthonormal(q)
	if err := dir.Solve(l.T(), q); err != nil && !conditioned(err) {
		return nil, fmt.Errorf("learning patches: %w", err)
	}
	return &dir, nil
}

// conditioned reports whether a solve succeeded with a warning about the matrix's condition, which
// the ridge bounds.
func conditioned(err error) bool {
	var c mat.Condition
	return errors.As(err, &c)
}

// square returns the mean of x_i x_i^T over the rows of x. It costs O(n d^2).
func square(x *mat.Dense) *mat.SymDense {
	n, d := x.Dims()
	var g mat.Dense
	g.Mul(x.T(), x)
	s := mat.NewSymDense(d, nil)
	for i := range d {
		for j := i; j < d; j++ {
			s.SetSym(i, j, g.At(i, j)/float64(n))
		}
	}
	return s
}

// largest estimates the largest eigenvalue by power iteration, from v = 1/sqrt(d). The estimate is
// from below; the ridge needs its scale alone. Each of the 30 steps is
//
//	l = |S v|,   v = S v / l
func largest(s *mat.SymDense) float64 {
	d := s.SymmetricDim()
	v := mat.NewVecDense(d, nil)
	for i := range d {
		v.SetVec(i, 1)
	}
	unit(v.RawVector().Data)
	var l float64
	for range 30 {
		var t mat.VecDense
		t.MulVec(s, v)
		v.CopyVec(&t)
		l = unit(v.RawVector().Data)
	}
	return l
}

// orthonormal makes the columns of q orthonormal (modified Gram-Schmidt, twice). A second pass
// makes up for the rounding of the first. 1e-300 keeps a column of zeros from a division by 0. It
// costs O(n k^2).
func orthonormal(q *mat.Dense) {
	n, k := q.Dims()
	for range 2 {
		for j := range k {
			for m := range j {
				var dot float64
				for i := range n {
					dot += q.At(i, j) * q.At(i, m)
				}
				for i := range n {
					q.Set(i, j, q.At(i, j)-dot*q.At(i, m))
				}
			}
			var ss float64
			for i := range n {
				ss += q.At(i, j) * q.At(i, j)
			}
			s := 1 / math.Sqrt(ss+1e-300)
			for i := range n {
				q.Set(i, j, q.At(i, j)*s)
			}
		}
	}
}
