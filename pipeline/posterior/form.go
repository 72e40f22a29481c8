package posterior

import (
	"fmt"
	"math"
	"slices"

	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/pipeline/honesty"
	"fmp/pipeline/internal/memo"
	"fmp/pipeline/open"
	"fmp/pipeline/point"
	"fmp/pipeline/sample"
)

// Form is the predictor through which FMP reads clients' class means: the conjugate predictor
// (closed form) or, for classes that the corpus lacks, the one that the open form builds from the
// round's own uploads (package open).
type Form struct {
	Conjugate
	// Open says that it is the open form.
	Open        bool
	means       []*point.Set // the clients' class means as the form reads them
	rest        *point.Set   // Input.Rest
	diagnostics map[string]float64
}

// Form picks a form: by Input.Scope or, where both are available, by the novelty of the uploads.
// Bad clients can make classes look new; both forms judge them.
func (t *FMP) Form() (*Form, error) {
	a, err := t.withoutEffects()
	if err != nil {
		return nil, err
	}
	closed := &Form{Conjugate: a.conjugate, means: a.means, rest: t.in.Rest}
	if t.in.Open == nil || t.in.Scope == ScopeClosed {
		switch {
		case t.in.Scope == ScopeOpen:
			return nil, fmt.Errorf("the open form needs a predictor; fmp train open makes one")
		case t.in.Conjugate == nil:
			return nil, fmt.Errorf("no conjugate predictor; fmp train conjugate makes one, and " +
				"conjugate.model names it")
		}
		return closed, nil
	}
	return memo.Once(t.memo, "form", func() (*Form, error) {
		stats, err := t.in.Open.Pool(t.withRest(t.capped(a.soft)))
		if err != nil {
			return nil, err
		}
		told := stats // by what novelty is told
		if a.effects.Any() {
			if told, err = t.in.Open.Pool(t.capped(a.shared())); err != nil {
				return nil, err
			}
		}
		novelty, limit, err := t.in.Open.Novelty(told)
		if err != nil {
			return nil, err
		}
		// Where both forms are at hand the closed one is taken up to the limit of novelty.
		if t.in.Scope != ScopeOpen && t.in.Conjugate != nil && novelty <= limit {
			closed.diagnostics = map[string]float64{"novelty": novelty, "open": 0}
			return closed, nil
		}
		return t.openForm(stats, novelty)
	})
}

// OpenRefit returns the predictor that a round of the open form leads to, given the pooled uploads,
// and the posterior of its class means. Its sessions hold memory alone: it need not be closed.
func OpenRefit(p *open.Predictor, s *open.Stats) (*sample.Refit, *open.Posterior, error) {
	m, q, err := p.Round(s)
	if err != nil {
		return nil, nil, err
	}
	eng, err := pure.New(engine.Options{Threads: 1})
	if err != nil {
		return nil, nil, err
	}
	k, err := sample.NewConjugate(eng, m)
	return &sample.Refit{Conjugate: k, Penalty: q.Penalty, Doubt: q.Doubt,
		Scale: q.Scale, Ends: q.Ends}, q, err
}

// openForm returns the open form of a round of the given uploads.
func (t *FMP) openForm(s *open.Stats, novelty float64) (*Form, error) {
	a, err := t.withoutEffects()
	if err != nil {
		return nil, err
	}
	k, q, err := OpenRefit(a.open, s)
	if err != nil {
		return nil, err
	}
	k.Threads = t.in.Threads
	return &Form{k, true, a.soft, t.in.Rest, map[string]float64{"novelty": novelty, "open": 1,
		"separation": q.Separation, "rho": q.Rho}}, nil
}

// among returns the form for a round whose clients are judged: its class means have the masses that
// count, and the open form is rebuilt from the uploads of the clients that are more likely honest
// than not, so that the others do not affect its coordinates.
func (t *FMP) among(f *Form, j *Judgement) (*Form, error) {
	if !slices.ContainsFunc(j.Honest, func(p float64) bool { return p < 0.5 }) &&
		slices.Equal(j.Claimed, j.Counted) {
		return f, nil
	}
	return memo.Once(t.memo, "form/honest", func() (*Form, error) {
		counted := *f
		counted.means = make([]*point.Set, len(f.means))
		var sets []*point.Set
		for m, set := range f.means {
			counted.means[m] = reweighted(set, func(y int) float64 { return j.share(m*set.C + y) })
			if j.Honest[m] >= 0.5 {
				sets = append(sets, counted.means[m])
			}
		}
		if !f.Open || len(sets) == 0 {
			return &counted, nil
		}
		stats, err := t.in.Open.Pool(t.withRest(sets))
		if err != nil {
			return nil, err
		}
		rebuilt, err := t.openForm(stats, f.diagnostics["novelty"])
		if err != nil {
			return nil, err
		}
		// Dishonest clients shape no coordinates, yet their means stay, with the masses that count.
		rebuilt.means = counted.means
		return rebuilt, nil
	})
}

// withRest returns class means with those of merged clients, as if these were one.
func (t *FMP) withRest(sets []*point.Set) []*point.Set {
	if t.in.Rest == nil {
		return sets
	}
	return append(slices.Clone(sets), t.in.Rest)
}

// capped returns class means with masses up to the cap of package honesty, for statistics that are
// needed before clients are judged. A round whose clients are not judged counts as it claims.
func (t *FMP) capped(sets []*point.Set) []*point.Set {
	if !t.in.Honesty {
		return sets
	}
	totals := make([]float64, len(sets))
	for m, set := range sets {
		totals[m] = set.Mass()
	}
	limit := honesty.Cap(totals)
	out := make([]*point.Set, len(sets))
	for m, set := range sets {
		out[m] = reweighted(set, func(int) float64 { return min(1, limit/totals[m]) })
	}
	return out
}

// reweighted returns class means with the given share of the mass of each class.
func reweighted(set *point.Set, share func(class int) float64) *point.Set {
	out := *set
	out.W = make([]float32, set.N)
	for i, w := range set.W {
		var counts float64
		set.Shares(i, func(y int, p float32) { counts += float64(p) * share(y) })
		out.W[i] = float32(float64(w) * counts)
	}
	return &out
}

// maxMeans bounds the number of class means that are kept apart, so that the later cost does not
// grow with the number of clients.
const maxMeans = 8192

// Pooled returns the union of the clients' class means, for methods that may read it point by
// point: beyond maxMeans, nearby means of one class are merged.
func (f *Form) Pooled() (*point.Set, error) { return point.Group(maxMeans, f.means...) }

// pool returns the statistics that heads read of some clients' class means; u, if not nil, holds
// them in the closed form's coordinates. A wide round has one mean a class. Another has all means
// of the clients, or beyond maxMeans their representatives.
func (f *Form) pool(u *honesty.Uploads, of func(client int) bool) (*point.Set, error) {
	// A round pooled in the closed form's coordinates has one point a class.
	if u != nil && !f.Open && !u.Wide && f.rest == nil {
		return u.Pool(of), nil
	}
	var sets []*point.Set
	points := 0
	for m, set := range f.means {
		if of(m) {
			sets = append(sets, set)
			points += set.N
		}
	}
	all := sets
	if f.rest != nil {
		all = append(all, f.rest)
	}
	if len(all) > 0 && !f.Open && honesty.IsWide(all[0].C, f.LatentSize()/all[0].C) {
		return whole(all), nil
	}
	if points > maxMeans {
		some, err := representatives(sets, points)
		if err != nil || f.rest == nil {
			return some, err
		}
		all = []*point.Set{some, f.rest}
	}
	return point.Pool(all...)
}

// representatives returns about maxMeans of the clients' class means, those of clients evenly
// apart, and one point for the others of each class: the closed form reads masses and means of
// classes, which are those of all, and fits see how classes scatter. Of a class with mass N and
// mean m, of which the clients that are kept have n and m_s, the others' point has
//
//	mass N - n,   mean (N m - n m_s)/(N - n)
func representatives(sets []*point.Set, points int) (*point.Set, error) {
	var some []*point.Set
	for m := 0; m < len(sets); m += (points + maxMeans - 1) / maxMeans {
		some = append(some, sets[m])
	}
	others, own := open.Means(sets...), open.Means(some...)
	for y, n := range own.Mass {
		rest, mean := others.Mass[y]-n, others.Mean.RawRowView(y)
		for j, v := range own.Mean.RawRowView(y) {
			mean[j] = (others.Mass[y]*mean[j] - n*v) / max(rest, math.SmallestNonzeroFloat64)
		}
		others.Mass[y] = max(rest, 0)
	}
	return point.Pool(append(some, others.Set())...)
}

// Bytes returns the mean size of an upload: for each class that a client holds, the numbers, label
// and mass, 4 (dx + 2) bytes in float32.
func (f *Form) Bytes() float64 {
	var n int
	for _, u := range f.means {
		n += u.N * (u.Dx + 2)
	}
	return 4 * float64(n) / float64(len(f.means))
}

// openClaims bounds the number of coordinates in which honesty is judged in open scope: those that
// separate the corpus's classes best. Further coordinates say little about new classes, and lead to
// honest clients being dropped.
const openClaims = 16
