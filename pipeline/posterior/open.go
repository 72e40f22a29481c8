package posterior

import (
	"context"
	"fmt"

	"fmp/models/rng"
	"fmp/pipeline/honesty"
	"fmp/pipeline/open"
	"fmp/pipeline/point"
)

// openUploads are what clients send in open scope: masses and class means of softened features, of the classes that they hold.
type openUploads struct {
	sets  []*point.Set // of each client
	stats *open.Stats
	bytes float64 // a client's, mean over clients
	// novelty is that of the uploads, and limit where it says that classes are new, see open.Predictor.Novelty.
	novelty, limit float64
}

func (t *Task) openUploads() (*openUploads, error) {
	p := t.in.Open
	if p == nil {
		return nil, fmt.Errorf("the open form needs a predictor; fmp train open makes one")
	}
	return once(t.memo, "open/uploads", func() (*openUploads, error) {
		u := &openUploads{}
		sets := make([]*point.Set, len(t.in.Clients))
		if t.in.Conjugate == nil && len(t.in.ClassMeans) > 0 { // as they were sent
			sets = t.in.ClassMeans
		}
		for m, own := range t.in.Clients {
			if sets[m] != nil {
				continue
			}
			features, _ := own.Labelled()
			rows, err := p.Of(context.Background(), features)
			if err != nil {
				return nil, err
			}
			sets[m] = point.New(own.N, p.K(), t.c)
			copy(sets[m].W, own.W)
			held := make([]bool, t.c)
			for i := range own.N {
				to := sets[m].Row(i)
				copy(to, rows[i*p.K():(i+1)*p.K()])
				copy(to[p.K():], own.Row(i)[own.Dx:])
				for y, v := range to[p.K():] {
					held[y] = held[y] || v > 0
				}
			}
			for _, h := range held {
				if h { // a class mean, its mass and its label
					u.bytes += float32Bytes(p.K()+2) / float64(len(t.in.Clients))
				}
			}
		}
		u.sets = sets
		var err error
		if u.stats, err = open.Pool(sets); err != nil {
			return nil, err
		}
		u.novelty, u.limit, err = p.Novelty(u.stats)
		return u, err
	})
}

// scope is what clients upload where FMP takes its open form; nil where it takes the closed one. Where clients' honesty is judged it is
// what Input.Scope says: bad clients could make classes look new.
func (t *Task) scope() (*openUploads, error) {
	if t.in.Scope == ScopeClosed || t.in.Honesty && t.in.Scope != ScopeOpen || t.in.Open == nil && t.in.Scope != ScopeOpen {
		return nil, nil
	}
	u, err := t.openUploads()
	if err != nil || t.in.Scope == ScopeOpen || t.in.Conjugate == nil || u.novelty > u.limit {
		return u, err
	}
	return nil, nil
}

// noveltyDiagnostics says why FMP took its closed form; nil where nothing was measured.
func (t *Task) noveltyDiagnostics() map[string]float64 {
	if t.in.Scope == ScopeClosed || t.in.Honesty || t.in.Open == nil {
		return nil
	}
	u, err := t.openUploads()
	if err != nil {
		return nil // scope has said so
	}
	return map[string]float64{"novelty": u.novelty, "open": 0}
}

// openForm is the martingale posterior of tasks on classes that the corpus lacks (package open), or the head of its mean.
func (t *Task) openForm(u *openUploads, mean bool) (*Result, error) {
	q, err := t.in.Open.Posterior(u.stats)
	if err != nil {
		return nil, err
	}
	r := &Result{
		Coordinates: &t.in.Open.Coordinates, UploadBytes: u.bytes,
		Diagnostics: map[string]float64{"novelty": u.novelty, "open": 1, "separation": q.Separation, "rho": q.Rho},
	}
	if mean {
		r.Ensembles = []Ensemble{{q.MeanHead()}}
		return r, nil
	}
	noise := make([]float64, t.in.Latents*t.c*t.in.Open.K())
	stream := rng.New(t.in.Seed, t.in.Stream, "latent")
	for i := range noise {
		if !t.in.NoLatent {
			noise[i] = stream.NormFloat64()
		}
	}
	each := t.c * t.in.Open.K()
	switch {
	case t.in.Honesty:
		var e Ensemble
		if e, r.Judgement, err = t.honestOpen(u, noise); err != nil {
			return nil, err
		}
		r.Ensembles = []Ensemble{e}
	case t.part.Heads != nil:
		r.Ensembles = []Ensemble{t.part.Heads}
	default:
		from, to := t.part.of(t.in.Latents)
		r.Ensembles = []Ensemble{q.Heads(noise[from*each : to*each])}
	}
	return r, nil
}

// honestOpen are the samples of the open form, each given the uploads of the clients that are honest in it.
func (t *Task) honestOpen(u *openUploads, noise []float64) (Ensemble, *Judgement, error) {
	claims, lambda, err := t.Claims()
	if err != nil {
		return nil, nil, err
	}
	states := t.part.States
	if states == nil {
		if states, err = honesty.Infer(context.Background(), claims, lambda, t.in.Seed, t.in.Threads); err != nil {
			return nil, nil, err
		}
	}
	j := &Judgement{Honest: states.Marginal(), Dispute: states.Dispute(claims)}
	if t.part.Heads != nil {
		return t.part.Heads, j, nil
	}
	from, to := t.part.of(t.in.Latents)
	each := t.c * t.in.Open.K()
	posteriors := map[*bool]*open.Posterior{} // by state
	out := make(Ensemble, 0, to-from)
	for s, z := range states.Draw(t.in.Latents, rng.New(t.in.Seed, t.in.Stream, "honesty"))[from:to] {
		q := posteriors[&z[0]]
		if q == nil {
			var sets []*point.Set
			for m, honest := range z {
				if honest {
					sets = append(sets, u.sets[m])
				}
			}
			stats, err := open.Pool(sets)
			if err != nil {
				return nil, nil, err
			}
			if q, err = t.in.Open.Posterior(stats); err != nil {
				return nil, nil, err
			}
			posteriors[&z[0]] = q
		}
		out = append(out, q.Heads(noise[(from+s)*each:(from+s+1)*each])...)
	}
	return out, j, nil
}

// openClaims are the coordinates in which honesty is judged in open scope, at most: those that tell the corpus's classes apart best. More say
// little of new classes, and drop honest clients.
const openClaims = 16
