package rival

import (
	"context"
	"fmt"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"

	"fmp/pipeline/discriminant"
	"fmp/pipeline/internal/memo"
	"fmp/pipeline/internal/moment"
	"fmp/pipeline/moments"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
)

// Corpus holds the moments of the server's own meta-training corpus, whose classes are the tasks'
// (closed scope) or others (open scope): the moments of its feature rows, and the rows themselves
// for methods that need unlabelled inputs.
type Corpus struct {
	Dx, C    int
	Features []float32     // N x Dx, row-major, shared with the caller
	Labels   []int         // N, shared with the caller
	Means    *mat.Dense    // C x Dx
	Centre   []float64     // m0: the mean of the class means
	Within   *mat.SymDense // W, denominator N - C
	// Between is the covariance of the class means, corrected for sampling noise
	// ([moment.Classes.Between]).
	Between *mat.SymDense

	// Read holds the class means with masses as the run's conjugate predictor reads them; nil
	// without one.
	Read *point.Set

	memo memo.Memo // fits to its rows
}

// NewCorpus computes moments from labelled rows. Classes need not be equally frequent, but each
// needs at least one row.
func NewCorpus(features []float32, dx int, labels []int, c int) (*Corpus, error) {
	if dx < 1 || len(labels) == 0 || len(features) != len(labels)*dx {
		return nil, fmt.Errorf("corpus: %d numbers and %d labels of dx %d; want dx numbers a label",
			len(features), len(labels), dx)
	}
	m, err := moment.Compute(moment.Rows(features, dx), labels, c, 1)
	if err != nil {
		return nil, fmt.Errorf("corpus: %w", err)
	}
	return &Corpus{Dx: dx, C: c, Features: features, Labels: labels, Means: m.Means,
		Centre: m.Centre, Within: m.Within, Between: m.Between(m.Within)}, nil
}

// spreads are the values that the tuned protocol tries.
var spreads = []Param{{ParamSpread, []float64{0, 0.01, 0.03, 0.1, 0.3, 1}}}

// latent is the two-covariance model of class means (PLDA; Ioffe 2006, ECCV; Brümmer and de
// Villiers 2010, Odyssey): in coordinates u = (h - m0) V the covariance within classes is I, and a
// class mean is N(0, diag(beta)).
type latent struct {
	v    *mat.Dense // dx x dx
	m0   []float64
	beta []float64 // descending, never negative
}

// latent shrinks W by the given share towards a multiple of the identity and diagonalises both
// covariances, in O(dx^3). Variances between classes that the correction for sampling made negative
// count as 0. A W that stays singular is an error, as of fewer rows than features at a shrinkage
// of 0.
func (k *Corpus) latent(shrinkage float64) (*latent, error) {
	v, beta, err := moment.Diagonalise(moment.Shrunk(k.Within, shrinkage), k.Between)
	if err != nil {
		return nil, fmt.Errorf("the corpus at shrinkage %v: %w", shrinkage, err)
	}
	for i := range beta {
		beta[i] = max(beta[i], 0)
	}
	return &latent{v: v, m0: k.Centre, beta: beta}, nil
}

// posterior returns the mean and variance (C x dx each) of the class means in u, given the clients'
// counts and means. The prior variances are (1-g) beta + g mean beta for a spread of g. Of n points
// of mean u and a prior variance b
//
//	mean = n b / (1 + n b) u,   variance = b / (1 + n b)
//
// in each coordinate; a class without points keeps its prior, N(0, b).
func (l *latent) posterior(s *statistics, spread float64) (m, v *mat.Dense) {
	prior := slices.Clone(l.beta)
	floats.Scale(1-spread, prior)
	floats.AddConst(spread*stat.Mean(l.beta, nil), prior)
	m, v = mat.NewDense(s.c, s.dx, nil), mat.NewDense(s.c, s.dx, nil)
	// The mean of a class less m0, in the features; zero for a class without points.
	row := mat.NewVecDense(s.dx, nil)
	for c, n := range s.count {
		if n > 0 {
			for j, x := range s.sum.RawRowView(c) {
				row.SetVec(j, x/n-l.m0[j])
			}
		} else {
			row.Zero()
		}
		var u mat.VecDense
		u.MulVec(l.v.T(), row)
		for j, b := range prior {
			m.Set(c, j, n*b/(1+n*b)*u.AtVec(j))
			v.Set(c, j, b/(1+n*b))
		}
	}
	return m, v
}

// latent returns the corpus' latent model, computed once: on the grid for all tasks, between its
// values for all methods of the task.
func (t *Task) latent(shrinkage float64) (*latent, error) {
	k, err := t.corpus()
	if err != nil {
		return nil, err
	}
	of := t.memo
	if slices.Contains(gridShrinkage, shrinkage) {
		of = &k.memo
	}
	return memo.Once(of, fmt.Sprint("latent/", shrinkage),
		func() (*latent, error) { return k.latent(shrinkage) })
}

// corpus returns the given corpus; it is an error if there is none, or if its features differ from
// the task's.
func (t *Task) corpus() (*Corpus, error) {
	k := t.in.Corpus
	if k == nil {
		return nil, fmt.Errorf("no corpus; give it a part of the data (dataset.splits.corpus)")
	}
	if k.Dx != t.dx {
		return nil, fmt.Errorf("the corpus has dx %d, the task %d", k.Dx, t.dx)
	}
	return k, nil
}

// statistics returns those of all clients' points. It costs O(N dx^2) once, for N points of all
// clients.
func (t *Task) statistics() *statistics {
	total, _ := memo.Once(t.memo, "statistics", func() (*statistics, error) {
		total := newStatistics(t.dx, t.c)
		for _, set := range t.in.Clients {
			total.add(set)
		}
		return total, nil
	})
	return total
}

// meansBytes returns the mean size of a client's class means on the wire: a label, a mass and dx
// numbers for each class held.
func (t *Task) meansBytes() float64 {
	var held int
	for _, set := range t.in.Clients {
		own := newStatistics(t.dx, t.c)
		own.add(set)
		for _, n := range own.count {
			if n > 0 {
				held++
			}
		}
	}
	return float32Bytes(held*(t.dx+2)) / float64(len(t.in.Clients))
}

// maxMoments bounds the rows that moments of a corpus are computed from; more tell no more. Every
// k-th row is taken, for a whole number k, so that up to twice as many may be read.
const maxMoments = 10000

// moments returns the moments of the corpus's embedded features; nil without a corpus.
func (c *Corpus) moments(ctx context.Context,
	at *posterior.Embedded) (*discriminant.Client, error) {
	if c == nil {
		return nil, nil
	}
	return memo.Once(&c.memo, "moments", func() (*discriminant.Client, error) {
		features, labels := c.Features, c.Labels
		if step := len(labels) / maxMoments; step > 1 {
			features, labels = nil, nil
			for i := 0; i < len(c.Labels); i += step {
				features, labels = append(features, c.Features[i*c.Dx:(i+1)*c.Dx]...),
					append(labels, c.Labels[i])
			}
		}
		rows, err := at.Map(ctx, features)
		if err != nil {
			return nil, err
		}
		u := new(discriminant.Client)
		u.Means, u.Within, err = moments.Compute(rows, len(rows)/len(labels), labels, c.C, "corpus")
		return u, err
	})
}
