package rival

import (
	"context"
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"

	"fmp/pipeline/candidate"
	"fmp/pipeline/discriminant"
	"fmp/pipeline/internal/memo"
	"fmp/pipeline/internal/moment"
	"fmp/pipeline/lab/score"
	"fmp/pipeline/moments"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
)

// fmpOne is one posterior for every round (package candidate): of each client's class means,
// scatter and curves, and of a corpus where there is one, whose classes are the task's in closed
// scope. Nothing of it is trained or tuned.
var fmpOne = method{
	Info{Name: "FMP-one", Family: Federated, Keep: true, Cost: 40, Group: OneShot, Cite: citeFMP,
		ReadsCorpus: true, Calibrated: true,
		Title: "one posterior, judged by the clients: candidates by evidence, temperature, refit"},
	func(ctx context.Context, t *Task, _ Settings) (*posterior.Result, error) {
		// Without a predictor clients send moments of embedded features, which are all that there
		// is to read.
		if t.in.Moments != nil && t.means == nil {
			known, err := t.in.Corpus.moments(ctx, t.in.Embedded)
			if err != nil {
				return nil, err
			}
			return posterior.One(ctx, t.in.Moments, t.in.Embedded, posterior.MomentsOptions{
				Options: discriminant.Options{Samples: t.in.Latents, Seed: t.in.Seed,
					Stream: t.in.Stream, Corpus: known}, Threads: t.in.Threads})
		}
		// The class means that FMP reads, and the corpus's images. A round that turns out not to be
		// of named classes goes on below.
		if t.in.Named && t.in.Conjugate != nil {
			named, err := posterior.New(posterior.Input{Conjugate: t.in.Conjugate,
				ClassMeans: t.in.ClassMeans, Named: true, Samples: t.in.Latents,
				Seed: t.in.Seed, Stream: t.in.Stream, Threads: t.in.Threads})
			if err != nil {
				return nil, err
			}
			if is, err := named.Named(); is || err != nil {
				if err != nil {
					return nil, err
				}
				r, err := named.Sample(ctx)
				if err == nil {
					r.Means = r.Coordinates
				}
				return r, err
			}
		}
		r, bytes, err := t.round()
		if err != nil {
			return nil, err
		}
		o := candidate.Options{Seed: t.in.Seed, Stream: t.in.Stream, Threads: t.in.Threads}
		// The mixture has no setting and is the same for every call of the task.
		m, err := memo.Once(t.memo, "one",
			func() (*candidate.Mixture, error) { return r.Posterior(o) })
		if err != nil {
			return nil, err
		}
		return &posterior.Result{Ensembles: []posterior.Ensemble{m.Ensemble(t.in.Latents, o)},
			Means: score.Plain{}, UploadBytes: bytes}, nil
	},
}

// RoundOf returns the statistics that clients send of their own points, named by their place in the
// stream, and the mean size of one upload in bytes. All clients have the first one's dx and C. A
// class mean has a label and a count beside its K numbers; numbers are float32. There must be one
// client at least. Each client's curve of likelihoods by temperature is of its own held-out points,
// which the stream's name chooses. The cost is O(N k^2) for N points of all clients.
func RoundOf(clients []*point.Set, stream string) (*candidate.Round, float64, error) {
	r := &candidate.Round{K: clients[0].Dx, C: clients[0].C}
	numbers := 0
	for i, set := range clients {
		rows, labels := set.Labelled()
		var u candidate.Client
		var err error
		u.Means, u.Within = statisticsOf(rows, r.K, labels, r.C)
		if u.Curve, err = moments.CurveOf(rows, r.K, labels, r.C,
			fmt.Sprint(stream, "/", i)); err != nil {
			return nil, 0, fmt.Errorf("client %d: %w", i, err)
		}
		// The scatter's numbers are those of its smaller form.
		numbers += u.Means.N*(r.K+2) + len(u.Within.Data)
		if u.Curve != nil {
			numbers += moments.Temperatures
		}
		r.Clients = append(r.Clients, u)
	}
	return r, float32Bytes(numbers) / float64(len(clients)), nil
}

// round returns the statistics of the round's clients and the corpus, and the mean size of one
// upload. A corpus of other features than the task's is left out. The corpus's means are dense, [C,
// K], with its degrees of freedom N - C, 1 at least. Its rows are shared and not copied.
func (t *Task) round() (*candidate.Round, float64, error) {
	r, bytes, err := RoundOf(t.in.Clients, t.in.Stream)
	if err != nil {
		return nil, 0, err
	}
	// Rows of the corpus take part only where its classes are the task's.
	if k := t.in.Corpus; k != nil && k.Dx == t.dx {
		c := candidate.Corpus{Within: mat.DenseCopyOf(k.Within).RawMatrix().Data,
			Dof: float64(max(len(k.Labels)-k.C, 1))}
		for _, v := range k.Means.RawMatrix().Data {
			c.Means = append(c.Means, float32(v))
		}
		if t.in.Named && k.C == t.c {
			c.Rows, c.Labels = k.Features, k.Labels
		}
		r.Corpora = append(r.Corpora, c)
	}
	return r, bytes, nil
}

// statisticsOf returns the means of the classes that rows have, with their counts, and the scatter
// within them, in the form of fewer numbers. A class of n rows has n - 1 contrasts, of each row
// with the mean of those before it, whose outer products add up to its scatter. Means are updated
// one row at a time (Welford 1962), which cancels less than a difference of sums of squares.
// Numbers are rounded to float32 once, at the end. Classes ascend in the set.
func statisticsOf(rows []float32, k int, labels []int, c int) (*point.Set, *moments.Within) {
	mean, count, w := make([]float64, c*k), make([]float64, c), &moments.Within{K: k}
	for i, y := range labels {
		m, n := mean[y*k:][:k], count[y]
		for j, v := range rows[i*k : (i+1)*k] {
			away := float64(v) - m[j]
			if n > 0 {
				// The contrast of row n + 1 is sqrt(n/(n+1)) (x - m_n), with the mean m_n of the n
				// before it.
				w.Data = append(w.Data, float32(math.Sqrt(n/(n+1))*away))
			}
			m[j] += away / (n + 1)
		}
		count[y]++
	}
	w.Dof = len(w.Data) / k
	// The contrasts are Dof k numbers, the triangle of their sum k (k+1)/2. Dof k >= k (k+1)/2
	// where 2 Dof >= k + 1.
	if w.Rank = w.Dof; 2*w.Dof >= k+1 {
		w.Rank, w.Data = 0, moment.Triangle(w.Whole(), k)
	}
	out := &point.Set{Dx: k, C: c, Y: []int32{}}
	for y, n := range count {
		if n == 0 {
			continue
		}
		out.N, out.W, out.Y = out.N+1, append(out.W, float32(n)), append(out.Y, int32(y))
		for _, v := range mean[y*k:][:k] {
			out.Z = append(out.Z, float32(v))
		}
	}
	return out, w
}
