package rival

import (
	"context"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"fmp/pipeline/erm"
	"fmp/pipeline/lab/score"
	"fmp/pipeline/posterior"
)

// ncm is the nearest class mean (Mensink et al. 2013, Distance-based image classification, IEEE
// TPAMI 35(11)): clients upload counts and means of the classes that they hold, and with n_c, mu_c
// pooled over clients
//
//	logit_c = -|h - mu_c|^2 / (2 s^2) + const,   s^2 = tr(W)/dx of the corpus,
//
// divided by the temperature.
//
// A class that nobody holds has the mean of all points. It has no setting but the temperature.
var ncm = method{
	Info{Name: "NCM", Title: "nearest class mean, from the clients' class means", Group: OneShot,
		Cite: "Mensink, Verbeek, Perronnin and Csurka 2013, Distance-based image classification, " +
			"IEEE TPAMI 35(11)", NeedsCorpus: true},
	func(_ context.Context, t *Task, _ Settings) (*posterior.Result, error) {
		k, err := t.corpus()
		if err != nil {
			return nil, err
		}
		means := t.statistics().means()
		theta := erm.NewTheta(t.dx+1, t.c)
		precision := float64(t.dx) / mat.Trace(k.Within)
		for c := range t.c {
			mu := means.RawRowView(c)
			for j, v := range mu {
				theta.Row(j)[c] = precision * v
			}
			theta.Row(t.dx)[c] = -precision / 2 * floats.Dot(mu, mu)
		}
		return &posterior.Result{Ensembles: []posterior.Ensemble{{theta}}, Means: score.Plain{},
			UploadBytes: t.meansBytes()}, nil
	},
}
