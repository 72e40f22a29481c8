package posterior

import (
	"context"

	"fmp/models/rng"
	"fmp/pipeline/honesty"
	"fmp/pipeline/internal/memo"
	"fmp/pipeline/point"
)

// Judgement is the posterior's view of the clients of a round.
type Judgement struct {
	// Honest is, for each client, the probability that its upload was computed from images of the
	// classes that it names.
	Honest []float64
	// Claimed is the number of images that each client claims, and Counted how many of them the
	// posterior counts if it is honest.
	Claimed, Counted []float64
	// Dispute is the share of each class's mass that the posterior leaves out; from
	// honesty.Contested on, the class is contested.
	Dispute []float64
	// Yielded says that known class means contradict too many clients, which judged each other.
	Yielded bool

	trusted *point.Set // class means of the clients that are more likely honest than not
	// claimed and counted [clients, classes] are each client's mass of each class, as it is claimed
	// and as it counts.
	claimed, counted []float64
}

// honestHeads returns FMP's samples, each given the uploads of the clients that are honest in it
// (package honesty). Where every client is honest in every sample they equal FMP's samples without
// this model.
// Clients are judged first, then the temperature is set by those that are trusted, and heads are
// drawn last. Heads made earlier in parts take the place of the last step. A trusted client has
// P(honest) of 1/2 at least.
func (t *FMP) honestHeads(ctx context.Context, f *Form) (*chosen, Ensemble, *Judgement, error) {
	seen, err := t.judged(ctx, f)
	if err != nil {
		return nil, nil, nil, err
	}
	f, u, states, j := seen.form, seen.uploads, seen.states, seen.judgement
	if j.trusted, err = f.pool(&u, func(m int) bool { return j.Honest[m] >= 0.5 }); err != nil {
		return nil, nil, nil, err
	}
	by, err := t.calibrated(ctx, f, j, j.trusted)
	if err != nil {
		return nil, nil, nil, err
	}
	f = by.form
	out, err := t.part.made(f.LatentSize()/t.c+1, t.c)
	if err != nil {
		return nil, nil, nil, err
	}
	if out == nil {
		from, to := t.part.of(t.in.Samples)
		drawn := states.Draw(t.in.Samples, rng.New(t.in.Seed, t.in.Stream, "honesty"))
		if u.Wide || isWide(f, t.in.Samples) {
			drawn = likely(j, t.in.Samples)
		}
		drawn = drawn[from:to]
		// Samples with the same honest clients are computed together.
		// Draws of one state share its slice, so that the address of its first entry tells states
		// apart.
		same := map[*bool][]int{}
		for s, z := range drawn {
			same[&z[0]] = append(same[&z[0]], s)
		}
		latents, size := t.Latents(f), f.LatentSize()
		out = make(Ensemble, len(drawn))
		for _, samples := range same {
			// All samples of the group have the honest clients of its first one.
			seen, err := f.pool(&u, func(m int) bool { return drawn[samples[0]][m] })
			if err != nil {
				return nil, nil, nil, err
			}
			var latent []float32
			for _, s := range samples {
				latent = append(latent, latents[(from+s)*size:(from+s+1)*size]...)
			}
			heads, err := f.Heads(ctx, seen, latent, len(samples))
			if err != nil {
				return nil, nil, nil, err
			}
			for i, s := range samples {
				out[s] = heads[i]
			}
		}
	}
	return by, out, j, nil
}

// judged is a round whose clients were judged.
type judged struct {
	uploads   honesty.Uploads // with the masses that count
	states    *honesty.States
	judgement *Judgement
	form      *Form // of these masses
}

// judged judges the clients.
// States that a part brings along are not inferred again. The masses that count are confirmed once
// for a round, and kept in its memo.
func (t *FMP) judged(ctx context.Context, f *Form) (*judged, error) {
	c, err := t.claims()
	if err != nil {
		return nil, err
	}
	states := t.part.States
	if states == nil {
		states, err = honesty.Infer(ctx, c.uploads, c.lambda, t.in.Seed, t.in.Threads)
		if err != nil {
			return nil, err
		}
	}
	out := &judged{uploads: c.uploads, states: states}
	marginal := states.Marginal()
	if out.uploads.Masses, err = memo.Once(t.memo, "counted", func() ([]float64, error) {
		return out.uploads.Confirm(c.claimed, c.lambda, marginal), nil
	}); err != nil {
		return nil, err
	}
	out.judgement = c.judge(out.uploads, states, marginal)
	out.form, err = t.among(f, out.judgement)
	return out, err
}

// judge returns the posterior's view of the clients, given the uploads with the masses that count.
// Masses are [clients, classes]: entry i is of client i/classes. The Judgement shares them.
func (c *claims) judge(u honesty.Uploads, states *honesty.States, honest []float64) *Judgement {
	j := &Judgement{Yielded: c.yielded, Honest: honest, Claimed: make([]float64, u.Clients),
		Counted: make([]float64, u.Clients),
		Dispute: states.Dispute(u), claimed: c.claimed, counted: u.Masses}
	for i, n := range c.claimed {
		m := i / u.Classes
		j.Claimed[m], j.Counted[m] = j.Claimed[m]+n, j.Counted[m]+u.Masses[i]
	}
	return j
}

// share returns the share of a client's mass of a class that counts, at client x classes + class.
// It is 0 where the client claims no image of the class.
func (j *Judgement) share(i int) float64 {
	if j.claimed[i] > 0 {
		return j.counted[i] / j.claimed[i]
	}
	return 0
}
