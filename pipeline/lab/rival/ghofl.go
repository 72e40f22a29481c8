package rival

import (
	"context"
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"fmp/models/rng"
	"fmp/pipeline/erm"
	"fmp/pipeline/internal/memo"
	"fmp/pipeline/internal/moment"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
)

// Gaussian heads of the GH-OFL family (Turazza, Picone and Mamei 2026, arXiv 2602.01186, section
// 3): clients upload counts, sums and second moments, and the server forms discriminants in closed
// form.

// ghlda is the discriminant with a covariance pooled over classes, shrunk towards its mean
// variance. Its formula is FedCGS's with another published shrinkage (0.05). It is listed beside
// FedCGS since its authors report it: tuned, the two are the same.
var ghlda = method{
	Info{Name: "GH-LDA", Title: "Gaussian head with one covariance, from the clients' moments",
		Group: OneShot, Cite: citeGHOFL,
		Param: ParamShrinkage, Grid: gridShrinkage, Published: &ghShrinkage},
	fedcgs.run,
}

// ghqda is the discriminant with one covariance per class: with S_c (denominator n_c) shrunk to
// (1-g) S_c + g tr(S_c)/d I,
//
//	logit_c = -1/2 (h - mu_c)' S_c^-1 (h - mu_c) - 1/2 log |S_c| + log pi_c
//
// A class with fewer than two points uses the pooled covariance. The head is linear in the products
// of features, of which there are d (d+1)/2: more than ghFeatures features are first projected onto
// ghFeatures random orthonormal directions, as the paper does to bound the upload.
var ghqda = method{
	Info{Name: "GH-QDA",
		Title: "Gaussian head with a covariance for each class, from the clients' moments",
		Group: OneShot, Cite: citeGHOFL,
		Param: ParamShrinkage, Grid: gridShrinkage, Published: &ghShrinkage},
	func(_ context.Context, t *Task, s Settings) (*posterior.Result, error) {
		products, err := memo.Once(t.memo, "ghqda/projection",
			func() (*products, error) { return t.projection(), nil })
		if err != nil {
			return nil, err
		}
		d := products.d
		projected := make([]*point.Set, len(t.in.Clients))
		all := newStatistics(d, t.c)
		for i, set := range t.in.Clients {
			projected[i] = products.set(set)
			all.add(projected[i])
		}
		moments := byClass(projected, d, t.c)
		pooled, err := all.within()
		if err != nil {
			return nil, err
		}
		means := all.means()
		n := floats.Sum(all.count)
		theta := erm.NewTheta(d*(d+1)/2+d+1, t.c)
		last := theta.D - 1
		for c := range t.c {
			cov := pooled
			if all.count[c] >= 2 {
				if cov, err = moments[c].scatter(); err != nil {
					return nil, err
				}
				cov.ScaleSym(1/all.count[c], cov)
			}
			if mat.Trace(cov) <= 0 { // all its points are equal
				cov = pooled
			}
			var chol mat.Cholesky
			if !chol.Factorize(moment.Shrunk(cov, s.Shrinkage)) {
				return nil, fmt.Errorf("covariance of class %d, of %v points with %d features, "+
					"is singular at shrinkage %v; raise the shrinkage", c, all.count[c], d,
					s.Shrinkage)
			}
			var p mat.SymDense
			if err := chol.InverseTo(&p); err != nil {
				return nil, fmt.Errorf("covariance of class %d at shrinkage %v: %w; raise "+
					"the shrinkage", c, s.Shrinkage, err)
			}
			mu := mat.NewVecDense(d, means.RawRowView(c))
			var w mat.VecDense
			w.MulVec(&p, mu)
			// -1/2 h'Ph + h'P mu, by products of features: h_i h_j has the weight -P_ij, of both
			// triangles, and h_i^2 has -P_ii/2.
			k := 0
			for i := range d {
				for j := i; j < d; j++ {
					if theta.Row(k)[c] = -p.At(i, j); i == j {
						theta.Row(k)[c] /= 2
					}
					k++
				}
				theta.Row(d*(d+1)/2 + i)[c] = w.AtVec(i)
			}
			theta.Row(last)[c] = -mat.Dot(&w, mu)/2 - chol.LogDet()/2 +
				math.Log((all.count[c]+0.5)/(n+float64(t.c)/2))
		}
		return &posterior.Result{Ensembles: []posterior.Ensemble{{theta}}, Coordinates: products,
			UploadBytes: float32Bytes(t.c * (1 + d + d*(d+1)/2))}, nil
	},
}

// byClass returns the statistics of each class of the sets, each as that of a single class. A point
// with several classes counts in each by its share. They take C dx^2 numbers. They add up over
// clients, as uploads do at the server.
func byClass(sets []*point.Set, d, classes int) []*statistics {
	out := make([]*statistics, classes)
	for c := range out {
		out[c] = newStatistics(d, 1)
	}
	for _, set := range sets {
		for i := range set.N {
			row := set.Row(i)
			for c, share := range row[d:] {
				if share > 0 {
					one := point.New(1, d, 1)
					copy(one.Z, row[:d])
					one.Z[d], one.W[0] = 1, set.W[i]*share
					out[c].add(one)
				}
			}
		}
	}
	return out
}

// ghFeatures bounds the features whose products are a head's coordinates: 2,080 products. With C
// classes a head then has C (2,080 + 64 + 1) numbers.
const ghFeatures = 64

// products are the coordinates (x_i x_j for i <= j, x) of features projected to d dimensions. It is
// shared by a task's results and never written.
type products struct {
	dx, d int
	by    *mat.Dense // dx x d, orthonormal columns; nil for no projection
}

// projection returns the coordinates of all tasks of a run: the features where they are few, else
// orthonormal directions that the run's seed alone decides. Clients must agree on them. The stream
// names the run's seed and not the task. Orthonormal directions never lengthen a row.
func (t *Task) projection() *products {
	p := &products{dx: t.dx, d: t.dx}
	if t.dx <= ghFeatures {
		return p
	}
	p.d = ghFeatures
	random := mat.NewDense(t.dx, p.d, normal(rng.New(t.in.Seed, "ghqda"), t.dx*p.d))
	p.by = moment.Orthonormal(random)
	return p
}

// row projects one feature row. out has d numbers, which are overwritten.
func (p *products) row(features []float32, out []float64) {
	if p.by == nil {
		for j, v := range features {
			out[j] = float64(v)
		}
		return
	}
	// O(dx d) for each row.
	clear(out)
	for i, v := range features {
		for j, q := range p.by.RawRowView(i) {
			out[j] += float64(v) * q
		}
	}
}

// set returns a set with its features projected. The set given stays as it is. Projected features
// are rounded to float32, as an upload has them.
func (p *products) set(s *point.Set) *point.Set {
	out := point.New(s.N, p.d, s.C)
	copy(out.W, s.W)
	x := make([]float64, p.d)
	for i := range s.N {
		p.row(s.Row(i)[:s.Dx], x)
		for j, v := range x {
			out.Row(i)[j] = float32(v)
		}
		copy(out.Row(i)[p.d:], s.Row(i)[s.Dx:])
	}
	return out
}

// Map returns d (d+1)/2 products, row by row of the upper triangle, and the d projected features of
// each row.
func (p *products) Map(_ context.Context, features []float32) ([]float32, error) {
	n := len(features) / p.dx
	out := make([]float32, 0, n*(p.d*(p.d+1)/2+p.d))
	x := make([]float64, p.d)
	for i := range n {
		p.row(features[i*p.dx:(i+1)*p.dx], x)
		for a, v := range x {
			for _, w := range x[a:] {
				out = append(out, float32(v*w))
			}
		}
		for _, v := range x {
			out = append(out, float32(v))
		}
	}
	return out, nil
}
