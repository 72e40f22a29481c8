package rival

import (
	"context"
	"fmt"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"fmp/models/rng"
	"fmp/pipeline/erm"
	"fmp/pipeline/internal/moment"
	"fmp/pipeline/posterior"
)

// fisherMix is the head of the GH-OFL family (Turazza, Picone and Mamei 2026, arXiv 2602.01186,
// section 3) that is fitted to drawn points: from the uploads of GH-QDA the server draws them in
// the subspace that separates the classes, z = V'h, and fits a softmax regression. The authors'
// program descends by AdamW for a number of epochs; here the same cross-entropy is minimised. The
// margin of the first version of the paper is not in their last program.
var fisherMix = method{
	Info{Name: "FisherMix",
		Title: "linear head fitted to points drawn in the Fisher subspace, from the " +
			"clients' moments",
		Group: OneShot, Cite: citeGHOFL,
		Param: ParamShrinkage, Grid: gridShrinkage, Published: &ghShrinkage},
	func(ctx context.Context, t *Task, s Settings) (*posterior.Result, error) {
		f, err := t.fisher(s.Shrinkage)
		if err != nil {
			return nil, err
		}
		p, err := f.draw(t)
		if err != nil {
			return nil, err
		}
		return f.fit(ctx, p, t.ermOptions(s))
	},
}

// Settings of the authors' configuration for CIFAR-100: share of the subspace's energy, its largest
// size, and the factor of the drawn points' deviation. Points a class are fewer than their 4,000,
// for the time; the penalty is that of a weight decay too small to matter.
const (
	fisherEnergy, fisherMost = 0.995, 128
	fisherTau, fisherPoints  = 0.9, 500
	fisherL2                 = 1e-2
)

// fisher holds the clients' moments in the subspace. Nothing in it depends on the draws, and a new
// one is made for each shrinkage.
type fisher struct {
	dx, c, k int
	v        *mat.Dense      // dx x k
	means    *mat.Dense      // C x k
	pooled   *mat.SymDense   // k x k, shrunk
	within   []*mat.SymDense // of each class, shrunk
	bytes    float64
}

// fisher returns the subspace of the largest generalised eigenvalues of the covariances between and
// within classes, the latter shrunk. The generalised problem is B v = lambda W v. B has the rank C
// - 1 at most, so that more directions carry nothing. The uploads are GH-QDA's in full dimension:
// counts, sums and a triangle for each class. It costs O(dx^3 + C dx^2 k).
func (t *Task) fisher(shrinkage float64) (*fisher, error) {
	all := t.statistics()
	pooled, err := all.within()
	if err != nil {
		return nil, err
	}
	pooled = moment.Shrunk(pooled, shrinkage)
	f := &fisher{dx: t.dx, c: t.c, bytes: float32Bytes(t.c * (1 + t.dx + t.dx*(t.dx+1)/2))}
	means, n := all.means(), floats.Sum(all.count)
	centre := make([]float64, t.dx)
	for c, m := range all.count {
		floats.AddScaled(centre, m/n, means.RawRowView(c))
	}
	// B = sum_c n_c/n (mu_c - mu)(mu_c - mu)', with the mean mu of all points.
	between := mat.NewSymDense(t.dx, nil)
	for c, m := range all.count {
		d := mat.NewVecDense(t.dx, nil)
		floats.SubTo(d.RawVector().Data, means.RawRowView(c), centre)
		between.SymRankOne(between, m/n, d)
	}
	if f.v, err = subspace(pooled, between); err != nil {
		return nil, fmt.Errorf("at shrinkage %v: %w", shrinkage, err)
	}
	_, f.k = f.v.Dims()
	f.means = new(mat.Dense)
	f.means.Mul(means, f.v)
	f.pooled = f.project(pooled)
	for c, own := range byClass(t.in.Clients, t.dx, t.c) {
		// A class of one image, or of equal ones, has no covariance of its own.
		cov := f.pooled
		if all.count[c] >= 2 {
			scatter, err := own.scatter()
			if err != nil {
				return nil, err
			}
			if scatter.ScaleSym(1/(all.count[c]-1), scatter); mat.Trace(scatter) > 0 {
				cov = f.project(moment.Shrunk(scatter, shrinkage))
			}
		}
		f.within = append(f.within, cov)
	}
	return f, nil
}

// subspace returns the directions V of largest between-class variance in units of the within-class
// one, V' within V = I, that hold fisherEnergy of it. Two directions are kept at least, and
// fisherMost at most. values descend. Rounding can make those beyond the rank negative, and they
// count as 0.
func subspace(within, between *mat.SymDense) (*mat.Dense, error) {
	v, values, err := moment.Diagonalise(within, between)
	if err != nil {
		return nil, err
	}
	d, total, held, k := len(values), 0.0, 0.0, 0
	for _, x := range values {
		total += max(x, 0)
	}
	for k < min(d, fisherMost) && (k < 2 || held < fisherEnergy*total) {
		held += max(values[k], 0)
		k++
	}
	return mat.DenseCopyOf(v.Slice(0, d, 0, k)), nil
}

// project returns V' cov V + 1e-6 I. As V' within V = I, that is a millionth of the pooled
// variance, which keeps the covariance of a class with few points invertible.
func (f *fisher) project(cov *mat.SymDense) *mat.SymDense {
	var half, whole mat.Dense
	half.Mul(cov, f.v)
	whole.Mul(f.v.T(), &half)
	out := moment.Symmetric(&whole)
	for i := range f.k {
		out.SetSym(i, i, out.At(i, i)+1e-6)
	}
	return out
}

// draw returns the fit of a head to as many drawn points of each class. A point is f.means_c + tau
// L z with the Cholesky factor L of the class's covariance and z from N(0, I). Classes have alike
// many points, whatever their counts: the fit has no prior of the classes. Rows end in a 1 for the
// bias. The stream does not name the shrinkage, so that values share random numbers.
func (f *fisher) draw(t *Task) (*erm.Problem, error) {
	n := fisherPoints * f.c
	p := &erm.Problem{N: n, Dx: f.k, C: f.c, X: make([]float64, 0, n*(f.k+1)),
		Y: make([]float64, n*f.c), W: make([]float64, n), L2: fisherL2}
	r := rng.New(t.in.Seed, t.in.Stream, "fisher")
	for c := range f.c {
		var chol mat.Cholesky
		if !chol.Factorize(f.within[c]) {
			return nil, fmt.Errorf("covariance of class %d in the Fisher subspace is "+
				"singular; raise the shrinkage", c)
		}
		var l mat.TriDense
		chol.LTo(&l)
		for i := range fisherPoints {
			var x mat.VecDense
			x.MulVec(&l, mat.NewVecDense(f.k, normal(r, f.k)))
			for j, v := range x.RawVector().Data {
				p.X = append(p.X, f.means.At(c, j)+fisherTau*v)
			}
			p.X = append(p.X, 1)
			p.Y[(c*fisherPoints+i)*f.c+c], p.W[c*fisherPoints+i] = 1, 1
		}
	}
	return p, nil
}

// fit returns the minimiser as a head on the features: logits z'w of z = V'h are h'(V w). The bias
// is the fit's own, as z is not centred.
func (f *fisher) fit(ctx context.Context, p *erm.Problem,
	o erm.Options) (*posterior.Result, error) {
	s, err := erm.Solve(ctx, p, o)
	if err != nil {
		return nil, err
	}
	theta := erm.NewTheta(f.dx+1, f.c)
	mat.NewDense(f.dx, f.c, theta.W[:f.dx*f.c]).Mul(f.v,
		mat.NewDense(f.k, f.c, s.Theta.W[:f.k*f.c]))
	copy(theta.Row(f.dx), s.Theta.Row(f.k))
	return &posterior.Result{Ensembles: []posterior.Ensemble{{theta}}, UploadBytes: f.bytes}, nil
}
