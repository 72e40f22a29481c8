package posterior

import (
	"context"

	"fmp/pipeline/erm"
	"fmp/pipeline/point"
)

// corpusOnly is a classifier of the server's own corpus: a softmax regression on the corpus' labelled rows, its classes renamed to the
// task's by naming. The clients give the names and nothing else.
//
// Where the corpus holds the tasks' classes (closed scope) this row is the one to beat, and no method that learns from the clients
// does: closed scope measures how well classes are recognised that the server knows. Claims about federation need open
// scope, where the row is what is left of it.
var corpusOnly = method{
	Info{Name: "Corpus", Title: "classifier of the server's corpus alone; the clients name its classes", Group: Baseline,
		Cite: "this program", NeedsCorpus: true},
	func(ctx context.Context, t *Task, s Settings) (*Result, error) {
		names, err := t.naming()
		if err != nil {
			return nil, err
		}
		k := t.in.Corpus
		head, err := once(&k.memo, "fit", func() (Theta, error) {
			rows, err := point.FromLabelled(k.Features, k.Dx, k.Labels, k.C)
			if err != nil {
				return Theta{}, err
			}
			p, err := erm.FromSets(corpusL2, rows)
			if err != nil {
				return Theta{}, err
			}
			solved, err := erm.Solve(ctx, p, t.ermOptions(s))
			if err != nil {
				return Theta{}, err
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
		return &Result{Ensembles: []Ensemble{{named}}, UploadBytes: t.meansBytes()}, nil
	},
}

// corpusL2 is the penalty of the corpus' fit. Its rows are thousands, so that it hardly matters, and the tuned protocol, whose
// tasks are of these very rows, could not choose it.
const corpusL2 = 10
