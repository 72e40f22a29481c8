package rival

import (
	"context"
	"fmt"

	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
)

// fmpNamed is FMP given the clients' class means together with the corpus' own, renamed to the
// task's classes by naming: the score that FMP could reach in closed scope if it knew that the
// classes are the corpus'. Like corpusOnly it shows the advantage of closed scope.
var fmpNamed = method{
	Info{Name: "FMP-named", Cost: 9,
		Title: "FMP with the corpus' class means beside the clients', named by these",
		Group: Baseline, Cite: citeFMP, Conjugate: true, NeedsCorpus: true, Names: true},
	// A class mean of the corpus keeps its mass. Those of classes that name none of the task's are
	// left out.
	func(ctx context.Context, t *Task, _ Settings) (*posterior.Result, error) {
		f, seen, err := t.pooledMeans()
		if err != nil {
			return nil, err
		}
		names, err := t.naming()
		if err != nil {
			return nil, err
		}
		// Read has the corpus's class means in the coordinates in which the predictor reads the
		// clients'.
		read := t.in.Corpus.Read
		if read == nil || read.Dx != seen.Dx {
			return nil, fmt.Errorf("no class means of the corpus as the conjugate " +
				"predictor reads them")
		}
		// It inverts names: from a corpus class to the one of the task that it names.
		taskClass := map[int]int{}
		for c, j := range names {
			taskClass[j] = c
		}
		known := &point.Set{Dx: seen.Dx, C: seen.C}
		for i := range read.N {
			row := read.Row(i)
			for j, share := range row[seen.Dx:] {
				if c, ok := taskClass[j]; ok && share > 0 {
					label := make([]float32, seen.C)
					label[c] = 1
					known.Z = append(append(known.Z, row[:seen.Dx]...), label...)
					known.W, known.N = append(known.W, read.W[i]*share), known.N+1
				}
			}
		}
		all, err := point.Pool(seen, known)
		if err != nil {
			return nil, err
		}
		e, err := f.Heads(ctx, all, t.means.Latents(f), t.in.Latents)
		if err != nil {
			return nil, err
		}
		return &posterior.Result{Ensembles: []posterior.Ensemble{e}, Coordinates: f.Conjugate,
			UploadBytes: f.Bytes()}, nil
	},
}
