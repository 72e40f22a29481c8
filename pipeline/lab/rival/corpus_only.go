package rival

import (
	"context"

	"fmp/pipeline/erm"
	"fmp/pipeline/internal/memo"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
)

// corpusOnly is a classifier trained on the server's own corpus: a softmax regression on the
// corpus' labelled rows, with its classes renamed to the task's by naming. The clients contribute
// the names and nothing else.
//
// Where the corpus holds the tasks' classes (closed scope) this is the row to beat, and no method
// that learns from the clients does: closed scope measures how well the server recognises classes
// that it knows. Claims about federation need open scope, where this row shows the rest of that
// advantage.
var corpusOnly = method{
	Info{Name: "Corpus",
		Title: "classifier of the server's corpus alone; the clients name its classes",
		Group: Baseline, Cite: "this program", NeedsCorpus: true, Names: true},
	func(ctx context.Context, t *Task, s Settings) (*posterior.Result, error) {
		names, err := t.naming()
		if err != nil {
			return nil, err
		}
		k := t.in.Corpus
		head, err := memo.Once(&k.memo, "fit", func() (posterior.Theta, error) {
			rows, err := point.FromLabelled(k.Features, k.Dx, k.Labels, k.C)
			if err != nil {
				return posterior.Theta{}, err
			}
			p, err := erm.FromSets(corpusL2, rows)
			if err != nil {
				return posterior.Theta{}, err
			}
			solved, err := erm.Solve(ctx, p, t.ermOptions(s))
			if err != nil {
				return posterior.Theta{}, err
			}
			return solved.Theta, nil
		})
		if err != nil {
			return nil, err
		}
		named := erm.NewTheta(head.D, t.c)
		for d := range head.D {
			for c, j := range names {
				named.Row(d)[c] = head.Row(d)[j]
			}
		}
		return &posterior.Result{Ensembles: []posterior.Ensemble{{named}},
			UploadBytes: t.meansBytes()}, nil
	},
}

// corpusL2 is the penalty of the corpus' fit. With thousands of rows it hardly matters, and the
// tuned protocol, whose tasks consist of these very rows, could not choose it.
const corpusL2 = 10
