package sample

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx"
	"fmp/onnx/dense"
	"fmp/pipeline/erm"
	"fmp/pipeline/internal/parallel"
	"fmp/pipeline/point"
)

// Refit is a conjugate predictor whose heads are fitted to the uploads once more. Gaussian classes
// of one covariance give a closed form, and are all that it can learn; the fit of sample s learns
// the rest:
//
//	T_s = argmin_T  sum_i w_i CE(x_si, y_i; T) + Penalty/2 |T - H_s|^2
//
// H_s is the closed form's head, to which infinitely many drawn points would lead, and x_si are
// images that the sample draws for the uploaded class means: m of them, N(., I) about each other,
// have the mean of m that was uploaded. A mean of one image is that image. All is in the
// coordinates w, in which I is the covariance within classes. Uploads with few images of a class
// say nothing of its share among the points to be classified, so that log n_c is an offset of the
// fit, and not of the head.
//
// T_s is then unknown as far as images and prior leave it, with the Fisher information F of the
// images at T_s. The fit is made once more with H_s moved by 1/Penalty times a draw from N(0, Scale
// (F + Penalty I)), which moves T_s by about N(0, Scale (F + Penalty I)^-1) (Bardsley et al. 2014).
type Refit struct {
	*Conjugate
	// Penalty is the precision of H_s as a prior of T_s, beside images that count 1. It is 60/s
	// where a task's classes scatter s times as widely as the corpus's (package open).
	Penalty float64
	// Doubt is the variance that intervals give to T_s about H_s, in units of 1/Penalty.
	Doubt float64
	// Scale is the share of the fit's own covariance that samples have; 0: none, and no second fit.
	Scale float64
	// Ends are how far intervals reach.
	Ends models.Ends

	mu     sync.Mutex
	spread map[spreadKey][]erm.Theta
}

type spreadKey struct {
	seen   *point.Set
	latent *float32
}

const (
	// maxImages bounds the points of a fit: beyond it, a drawn image counts for several. A mean
	// counts for maxOfOne images at most: one of very many repeats the closed form, and nothing of
	// how a class scatters. With more, heads lie nearer to the closed form.
	maxImages, maxOfOne = 8192, 32
	// refitTolerance is the gradient, relative to its bound, at which fits stop: at 1e-11 no score
	// moves by more than 2e-7.
	refitTolerance = 1e-6
	// absent is the number of images that the offset of a class without any is that of.
	absent = 0.5
)

// Heads returns posterior samples given the pooled uploads, as [Conjugate.Heads] does.
func (f *Refit) Heads(ctx context.Context, seen *point.Set, latent []float32,
	samples int) ([]erm.Theta, error) {
	return f.Posterior(ctx, seen, latent, samples, f.Scale)
}

// Mean returns the head of the posterior means.
func (f *Refit) Mean(ctx context.Context, seen *point.Set) (erm.Theta, error) {
	head, err := f.Conjugate.Mean(ctx, seen)
	if err != nil {
		return head, err
	}
	heads, err := f.fit(ctx, seen, []erm.Theta{head}, make([]float32, f.LatentSize()), noise{})
	if err != nil {
		return head, err
	}
	return heads[0], nil
}

// IntervalLimit returns the head, given very many points, whose probabilities the intervals should
// cover.
func (f *Refit) IntervalLimit(ctx context.Context, all *point.Set) (erm.Theta, error) {
	return f.Mean(ctx, all)
}

// images are the uploads as a fit reads them: one row of k coordinates for each class of each
// point.
type images struct {
	rows  []float64
	class []int
	mass  []float64 // images that a row is the mean of
	of    []float64 // images of each class
	count []float64 // images that a row counts for in a fit
	total float64   // of these
}

// images returns the uploads as rows. Those of mass 0 are left out. The total is that of count, by
// which drawn images are rationed.
func (f *Refit) images(seen *point.Set) (*images, error) {
	in, err := f.context(seen)
	if err != nil {
		return nil, err
	}
	k, classes := f.config.K, f.config.C
	z, w := in["points"].F32(), in["weights"].F32()
	out := &images{of: make([]float64, classes)}
	for i, weight := range w {
		row := z[i*(k+classes):][:k+classes]
		for y, share := range row[k:] {
			m := float64(weight) * float64(share)
			if m == 0 {
				continue
			}
			out.rows = append(out.rows, dense.As[float64](row[:k])...)
			out.class, out.mass, out.count = append(out.class, y), append(out.mass, m),
				append(out.count, min(m, maxOfOne))
			out.of[y] += m
			out.total += min(m, maxOfOne)
		}
	}
	if !(out.total > 0) {
		return nil, fmt.Errorf("conjugate predictor: the uploads have no mass; give some points " +
			"a weight above 0")
	}
	return out, nil
}

// draw returns the points of one fit: the images of every row, or as many as stand for them. For a
// mean w̄ of m images there are n rows, with e_i of N(0, I) and ē their mean. For n > 1
//
//	x_i = w̄ + sqrt(1 - 1/m) (e_i - ē)/sqrt(1 - 1/n)
//
// so that their mean is w̄ and each lies as far from it as an image of m does. For n = 1 the row
// is w̄ + sqrt(1 - 1/m) e_1. With bootstrap the rows of a class have the random weights of
// the Bayesian bootstrap (Rubin 1981). The second result is log n_c, less its value for equal
// classes, of these weights.
func (u *images) draw(k, classes int, r *rand.Rand, bootstrap bool) (*erm.Problem, []float64) {
	p := &erm.Problem{Dx: k, C: classes}
	share := min(1, maxImages/u.total)
	x := make([]float64, 0, len(u.rows))
	weights := u.weights(r, bootstrap)
	for i, m := range u.mass {
		weight := weights[i]
		n := max(1, int(math.Round(u.count[i]*share)))
		spread := math.Sqrt(math.Max(0, 1-1/m)) // of an image about the mean of all m
		from, mean := len(x), make([]float64, k)
		for range n {
			for j := range k {
				e := 0.0
				if spread > 0 {
					e = r.NormFloat64()
				}
				mean[j] += e / float64(n)
				x = append(x, e)
			}
			x = append(x, 1)
		}
		if n > 1 {
			spread /= math.Sqrt(1 - 1/float64(n))
		} else {
			clear(mean)
		}
		for at := from; at < len(x); at += k + 1 {
			for j := range k {
				x[at+j] = u.rows[i*k+j] + spread*(x[at+j]-mean[j])
			}
			p.W = append(p.W, weight/float64(n))
			p.Y = append(p.Y, make([]float64, classes)...)
			p.Y[len(p.Y)-classes+u.class[i]] = 1
		}
	}
	p.X, p.N = x, len(p.W)
	of := make([]float64, classes)
	for i, weight := range weights {
		of[u.class[i]] += weight
	}
	equal := floats.Sum(of) / float64(classes)
	for y, n := range of {
		of[y] = math.Log(max(n, absent) / equal)
	}
	return p, of
}

// weights returns the weights of rows: their masses or, with bootstrap, random ones (Rubin 1981) of
// mean sqrt(mass), for the images of a mean are not known one by one.
func (u *images) weights(r *rand.Rand, bootstrap bool) []float64 {
	if !bootstrap {
		return u.count
	}
	out := make([]float64, len(u.mass))
	for i, m := range u.count {
		out[i] = min(m, math.Sqrt(m)) * r.ExpFloat64()
	}
	return out
}

// noise is the randomness that a fit adds to the drawn images.
type noise struct {
	weights bool    // the rows have the random weights of the Bayesian bootstrap
	centre  float64 // variance of noise on the weights of the closed form's head
	scale   float64 // of the covariance of [Refit.Posterior]
}

// fit fits each head to its own images of the uploads. All randomness comes from the sample's
// latent. Fits are independent, so that threads do not move them. A second fit, where e.scale is
// above 0, starts at the first one's solution.
func (f *Refit) fit(ctx context.Context, seen *point.Set, heads []erm.Theta, latent []float32,
	e noise) ([]erm.Theta, error) {
	u, err := f.images(seen)
	if err != nil {
		return nil, err
	}
	size := f.LatentSize()
	out := make([]erm.Theta, len(heads))
	options := erm.Options{Tolerance: refitTolerance, Threads: 1}
	fit := func(ctx context.Context, s int) error {
		r := rng.New(digest(latent[s*size:(s+1)*size]), "refit")
		q := f.problem(u, heads[s], r, e)
		solution, err := erm.Solve(ctx, q.Problem, options)
		if err == nil && e.scale > 0 {
			q.perturb(r, solution.Theta, e.scale)
			q.Start = &solution.Theta
			solution, err = erm.Solve(ctx, q.Problem, options)
		}
		if err != nil {
			return fmt.Errorf("conjugate predictor: fit of sample %d to the uploads: %w", s, err)
		}
		out[s], err = q.Head(solution.Theta)
		return err
	}
	return out, parallel.Each(ctx, max(f.Threads, 1), len(heads), fit)
}

// Fit is the fit of a head to images, in the coordinates w in which I is the covariance within
// classes.
type Fit struct {
	*erm.Problem
	offset []float64
	metric *mat.Dense
}

// problem returns the fit of a head to images drawn from r. The bias row of the centre takes the
// head's bias and the offset. [Fit.Head] takes the offset off again.
func (f *Refit) problem(u *images, head erm.Theta, r *rand.Rand, e noise) *Fit {
	k, classes := f.config.K, f.config.C
	q := &Fit{metric: mat.NewDense(k, k, dense.As[float64](f.values[models.ConjMetric].F32()))}
	q.Problem, q.offset = u.draw(k, classes, r, e.weights)
	// Features times weights do not change where the head's w R becomes w, and its weights R times
	// as much.
	centre := erm.NewTheta(k+1, classes)
	dense.Gemm(blas.NoTrans, blas.NoTrans, 1, q.metric.RawMatrix(),
		dense.General(k, classes, head.W), 0,
		dense.General(k, classes, centre.W))
	if e.centre > 0 {
		for i := range k * classes {
			centre.W[i] += math.Sqrt(e.centre) * r.NormFloat64()
		}
	}
	floats.AddTo(centre.Row(k), head.Row(k), q.offset)
	q.L2, q.Centre = f.Penalty, &centre
	return q
}

// Head returns the head on the coordinates of [Conjugate.Map] that a solution of the fit is. It
// solves R W = T for the weights W on w R, [k, C], and is an error where R is singular.
func (q *Fit) Head(solution erm.Theta) (erm.Theta, error) {
	theta := erm.Theta{D: solution.D, C: solution.C, W: slices.Clone(solution.W)}
	weights := mat.NewDense(theta.D-1, theta.C, theta.W[:(theta.D-1)*theta.C])
	if err := weights.Solve(q.metric, weights); err != nil {
		return theta, fmt.Errorf("conjugate predictor: its metric is singular: %w", err)
	}
	floats.Sub(theta.Row(theta.D-1), q.offset)
	return theta, nil
}

// perturb moves the centre by Penalty^-1 times a draw from N(0, scale (F + Penalty I)), where F is
// the Fisher information of the images at the given head. With labels y_i drawn from its
// probabilities p_i, [C], weights w_i of the rows x_i and z of N(0, I) the move is
//
//	sqrt(scale) (sum_i sqrt(w_i) x_i (y_i - p_i)'/Penalty + z/sqrt(Penalty))
//
// as sum_i w_i (diag p_i - p_i p_i') x x_i x_i' is F. It costs O(n k C), as one product with the
// Hessian.
func (q *Fit) perturb(r *rand.Rand, at erm.Theta, scale float64) {
	d, c := at.D, at.C
	shift := make([]float64, d*c)
	p := make([]float64, c)
	for i, w := range q.W {
		x := q.X[i*d : (i+1)*d]
		for y := range p {
			p[y] = 0
			for j, v := range x {
				p[y] += v * at.W[j*c+y]
			}
		}
		total := floats.LogSumExp(p)
		u := r.Float64()
		drawn := -1
		for y, v := range p {
			p[y] = -math.Exp(v - total)
			if u += p[y]; u < 0 && drawn < 0 {
				drawn = y
			}
		}
		if drawn < 0 {
			drawn = c - 1
		}
		p[drawn]++
		for j, v := range x {
			floats.AddScaled(shift[j*c:(j+1)*c], math.Sqrt(w)*v, p)
		}
	}
	for i, v := range shift {
		q.Centre.W[i] += math.Sqrt(scale) * (v/q.L2 + r.NormFloat64()/math.Sqrt(q.L2))
	}
}

// Posterior returns posterior samples as [Refit.Heads] does, with another Scale.
func (f *Refit) Posterior(ctx context.Context, seen *point.Set, latent []float32, samples int,
	scale float64) ([]erm.Theta, error) {
	heads, err := f.limit(ctx, seen, latent, samples)
	if err != nil {
		return nil, err
	}
	return f.fit(ctx, seen, heads, latent, noise{scale: scale})
}

// MeanFit returns the fit whose solution is [Refit.Mean].
func (f *Refit) MeanFit(ctx context.Context, seen *point.Set) (*Fit, error) {
	head, err := f.Conjugate.Mean(ctx, seen)
	if err != nil {
		return nil, err
	}
	u, err := f.images(seen)
	if err != nil {
		return nil, err
	}
	return f.problem(u, head, rng.New(digest(make([]float32, f.LatentSize())), "refit"),
		noise{}), nil
}

// digest returns a seed that stands for a latent. It is FNV-1a of the numbers' bits: equal latents
// have equal draws, whatever sample they are of.
func digest(latent []float32) uint64 {
	h := fnv.New64a()
	var b [4]byte
	for _, v := range latent {
		binary.LittleEndian.PutUint32(b[:], math.Float32bits(v))
		h.Write(b[:])
	}
	return h.Sum64()
}

// Spread returns a head for each latent. Their disagreement stands in intervals for the heads'
// distance from the limit of infinite data: they are the closed form's with the variance of class
// means widened by h (see [models.NewConjugate]) and noise of variance Doubt/Penalty on their
// weights, each fitted to uploads weighted at random. Where β is a coordinate's prior variance and
// n the images of a class, the variances are
//
//	widened: β/(1 + n β/h),   samples': τ β/(1 + n β)
//
// The root of their ratio scales the latent. Their difference, along the metric R and times ρ/2,
// is added to the logit of the class. It remembers the heads. It holds a lock while it computes
// them, so that callers at the same time share one computation.
func (f *Refit) Spread(ctx context.Context, seen *point.Set,
	latent []float32) ([]erm.Theta, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := spreadKey{seen, &latent[0]}
	if made := f.spread[key]; made != nil {
		return made, nil
	}
	u, err := f.images(seen)
	if err != nil {
		return nil, err
	}
	k, classes := f.config.K, f.config.C
	scalar := func(name string) float64 { return float64(f.values[name].F32()[0]) }
	set := models.ConjSample
	rho, tau, h := math.Exp(scalar(set+models.ConjLogRho)), math.Exp(scalar(set+models.ConjLogTau)),
		scalar(models.ConjWidening)
	beta, metric := models.Prior(f.values, set), f.values[models.ConjMetric].F32()
	ratio, extra := make([]float32, classes*k), make([]float64, classes)
	for y, n := range u.of {
		for j, prior := range beta {
			wide, narrow := prior/(1+n/h*prior), tau*prior/(1+n*prior)
			ratio[y*k+j] = float32(math.Sqrt(wide / narrow))
			for _, v := range metric[j*k : (j+1)*k] {
				extra[y] += rho / 2 * (wide - narrow) * float64(v) * float64(v)
			}
		}
	}
	wide := make([]float32, len(latent))
	for i, v := range latent {
		wide[i] = v * ratio[i%len(ratio)]
	}
	heads, err := f.limit(ctx, seen, wide, len(latent)/f.LatentSize())
	if err != nil {
		return nil, err
	}
	for _, head := range heads {
		floats.Add(head.Row(k), extra)
	}
	heads, err = f.fit(ctx, seen, heads, latent, noise{weights: true, centre: f.Doubt / f.Penalty})
	if err != nil {
		return nil, err
	}
	if f.spread == nil {
		f.spread = map[spreadKey][]erm.Theta{}
	}
	f.spread[key] = heads
	return heads, nil
}

// Intervals returns the ends of intervals of the given level, as [Conjugate.Intervals] does: about
// the heads' mean log odds, and as wide as those of [Refit.Spread] disagree.
func (f *Refit) Intervals(ctx context.Context, d Drawn, features []float32,
	level float64) (low, high []float64, err error) {
	graph, err := f.IntervalGraph(ctx, d, level)
	if err != nil {
		return nil, nil, err
	}
	part := &lazy{engine: f.engine, model: graph}
	defer part.Close()
	return f.ends(ctx, part, nil, features)
}

// IntervalGraph returns the graph of [Conjugate.Map] and Intervals, as [Conjugate.IntervalGraph]
// does.
func (f *Refit) IntervalGraph(ctx context.Context, d Drawn, level float64) (*onnx.Model, error) {
	width, err := studentWidth(len(d.Uniform), level)
	if err != nil {
		return nil, err
	}
	spread, err := f.Spread(ctx, d.Seen, d.Latent)
	if err != nil {
		return nil, err
	}
	wide := tensor(spread)
	// Heads whose temperature is above 1 are too close to each other for their probabilities, which
	// is no reason for narrower intervals.
	if t := d.Temperature; t > 0 && t < 1 {
		for i := range wide.F32() {
			wide.F32()[i] /= float32(t)
		}
	}
	return models.HeadIntervals(f.model, tensor(d.Heads), wide, width, f.Ends)
}

// tensor returns heads as [S, k+1, C] in float32, as graphs of intervals read them. There is one
// head at least.
func tensor(heads []erm.Theta) *onnx.Tensor {
	var all []float32
	for _, h := range heads {
		all = append(all, dense.As[float32](h.W)...)
	}
	return onnx.NewTensor(all, len(heads), heads[0].D, heads[0].C)
}
