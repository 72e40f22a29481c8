package rival

import (
	"context"
	"fmt"

	"fmp/models/rng"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
)

// prior is FMP with the labels of the pooled uploads shuffled among their points. Any score above
// chance comes from the models, not from the clients, so the row must be at chance.
//
// A single shuffle of few points is far from chance by luck: ten class means with permuted names
// are right about 0, 1 or 2 times. The shuffles are therefore balanced: a permutation of points is
// drawn once for every C shuffles, and these differ by a cyclic renaming of the classes, under
// which every class mean gets every name once. Where Shuffles is below C the renamings are spread
// evenly.
var prior = method{
	Info{Name: "PRIOR", Control: true, Cost: 80,
		Title: "FMP with the uploads' labels shuffled: must sit at chance", Group: Baseline,
		Cite: citeFMP, Follows: "FMP"},
	func(ctx context.Context, t *Task, s Settings) (*posterior.Result, error) {
		// It is the number of renamings that share one permutation.
		cycle := min(s.Shuffles, t.c)
		r := &posterior.Result{}
		heads := func(k int, set *point.Set) (posterior.Ensemble, error) {
			return t.martingale(ctx, fmt.Sprint("shuffle/", k, "of", cycle), set, s,
				posterior.BaseNoise)
		}
		var seen *point.Set
		var err error
		if t.closedForm() {
			var f *posterior.Form
			if f, seen, err = t.pooledMeans(); err != nil {
				return nil, err
			}
			r.Coordinates, r.UploadBytes = f.Conjugate, f.Bytes()
			heads = func(_ int, set *point.Set) (posterior.Ensemble, error) {
				return f.Heads(ctx, set, t.means.Latents(f), t.in.Latents)
			}
		} else {
			n := len(t.in.Uploads)
			if n == 0 {
				return nil, errNoUploads
			}
			if seen, err = point.Pool(t.in.Uploads...); err != nil {
				return nil, err
			}
			r.UploadBytes = float32Bytes(seen.N*(t.dx+t.c+1)) / float64(n) // points and masses
		}
		for k := range s.Shuffles {
			e, err := heads(k, t.shuffle(seen, k, cycle))
			if err != nil {
				return nil, fmt.Errorf("shuffle %d: %w", k, err)
			}
			r.Ensembles = append(r.Ensembles, e)
		}
		return r, nil
	},
}

// shuffle returns the k-th shuffle of a set, with cycle renamings for each permutation. The
// renaming of shuffle k is a shift by (k mod cycle) C / cycle classes, rounded down.
func (t *Task) shuffle(seen *point.Set, k, cycle int) *point.Set {
	order := rng.New(t.in.Seed, t.in.Stream, "shuffle", k/cycle).Perm(seen.N)
	return shuffled(seen, order, k%cycle*t.c/cycle)
}

// shuffled returns set with the label of point order[i], its classes renamed by shift, at point i.
// Masses stay with their points. order is a permutation of the N points, and set is not changed.
func shuffled(set *point.Set, order []int, shift int) *point.Set {
	out := point.New(set.N, set.Dx, set.C)
	copy(out.W, set.W)
	for i, j := range order {
		copy(out.Row(i), set.Row(i)[:set.Dx])
		for c, v := range set.Row(j)[set.Dx:] {
			out.Row(i)[set.Dx+(c+shift)%set.C] = v
		}
	}
	return out
}
