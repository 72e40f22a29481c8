package rival

import (
	"context"

	"gonum.org/v1/gonum/mat"

	"fmp/pipeline/erm"
	"fmp/pipeline/lab/score"
	"fmp/pipeline/posterior"
)

// lda is the linear discriminant of posterior means: clients upload counts and means of the classes
// that they hold. The server, which has the covariances within and between classes of its corpus,
// shrinks each mean towards the centre by the two-covariance model; with u = (h - m0) V, n_c and
// mean u_c pooled over clients
//
//	m_c = n_c beta / (1 + n_c beta) u_c,   logit_c = u m_c - |m_c|^2 / 2
//
// (Hastie, Tibshirani and Friedman 2009, section 4.3, at the posterior mean of Ioffe 2006, section
// 3). The settings shrink W towards a multiple of the identity and spread beta over all directions.
var lda = method{
	Info{Name: "LDA", Title: "linear discriminant of posterior class means, covariances " +
		"of the corpus",
		Group: OneShot,
		Cite:  citeIoffe, Param: ParamShrinkage, Grid: gridShrinkage, More: spreads,
		NeedsCorpus: true},
	func(_ context.Context, t *Task, s Settings) (*posterior.Result, error) {
		l, err := t.latent(s.Shrinkage)
		if err != nil {
			return nil, err
		}
		m, _ := l.posterior(t.statistics(), s.Spread)
		// In the features the weights are w_c = V m_c, and the bias is -m0'w_c - |m_c|^2 / 2.
		var w mat.Dense // dx x C
		w.Mul(l.v, m.T())
		theta := erm.NewTheta(t.dx+1, t.c)
		for c := range t.c {
			bias := 0.0
			for j := range t.dx {
				theta.Row(j)[c] = w.At(j, c)
				bias -= l.m0[j]*w.At(j, c) + m.At(c, j)*m.At(c, j)/2
			}
			theta.Row(t.dx)[c] = bias
		}
		return &posterior.Result{Ensembles: []posterior.Ensemble{{theta}}, Means: score.Plain{},
			UploadBytes: t.meansBytes()}, nil
	},
}
