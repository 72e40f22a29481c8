package rival

import (
	"context"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"fmp/pipeline/erm"
	"fmp/pipeline/internal/moment"
	"fmp/pipeline/lab/score"
	"fmp/pipeline/posterior"
)

// plda is the predictive of the two-covariance model (PLDA): the uploads are LDA's, and a new point
// of class c is
//
//	u ~ N(m_c, I + diag(v_c)),   v_c = beta / (1 + n_c beta)
//
// so that a class with few points has a wider density (Ioffe 2006, section 3). The log-densities
// are linear in (u^2, u), the coordinates of its head.
var plda = method{
	Info{Name: "PLDA", Title: "predictive densities of the classes, covariances of the corpus",
		Group: OneShot,
		Cite:  citeIoffe, Param: ParamShrinkage, Grid: gridShrinkage, More: spreads,
		NeedsCorpus: true},
	func(_ context.Context, t *Task, s Settings) (*posterior.Result, error) {
		l, err := t.latent(s.Shrinkage)
		if err != nil {
			return nil, err
		}
		m, v := l.posterior(t.statistics(), s.Spread)
		theta := erm.NewTheta(2*t.dx+1, t.c)
		for c := range t.c {
			bias := 0.0
			for j := range t.dx {
				// log N(u_j; m, s) = -u_j^2/(2s) + u_j m/s - (m^2/s + log s)/2 + const, with s the
				// variance.
				variance := 1 + v.At(c, j)
				theta.Row(j)[c] = -0.5 / variance
				theta.Row(t.dx + j)[c] = m.At(c, j) / variance
				bias -= (m.At(c, j)*m.At(c, j)/variance + math.Log(variance)) / 2
			}
			theta.Row(2 * t.dx)[c] = bias
		}
		return &posterior.Result{Ensembles: []posterior.Ensemble{{theta}},
			Coordinates: (*latentSquares)(l), Means: score.Plain{},
			UploadBytes: t.meansBytes()}, nil
	},
}

// latentSquares are the coordinates (u^2, u).
type latentSquares latent

// Map returns the dx squares and then the dx numbers u = (h - m0) V of each row h.
func (l *latentSquares) Map(_ context.Context, features []float32) ([]float32, error) {
	x := moment.Rows(features, len(l.m0))
	n, _ := x.Dims()
	for i := range n {
		floats.Sub(x.RawRowView(i), l.m0)
	}
	var u mat.Dense
	u.Mul(x, l.v)
	out := make([]float32, 0, 2*len(features))
	for i := range n {
		row := u.RawRowView(i)
		for _, v := range row {
			out = append(out, float32(v*v))
		}
		for _, v := range row {
			out = append(out, float32(v))
		}
	}
	return out, nil
}
