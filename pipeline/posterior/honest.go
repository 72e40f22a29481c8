package posterior

import (
	"context"

	"fmp/models/rng"
	"fmp/pipeline/honesty"
	"fmp/pipeline/point"
)

// Judgement is the posterior's view of the clients of a round.
type Judgement struct {
	// Honest is, for each client, the probability that its upload was computed from images of the classes that it names.
	Honest []float64
	// Dispute is the share of each class's mass that the posterior leaves out; from honesty.Contested on, the class is contested.
	Dispute []float64

	trusted *point.Set // class means of the clients that are more likely honest than not
}

// honestHeads returns FMP's samples, each given the uploads of the clients that are honest in it (package honesty). Where every
// client is honest in every sample they equal FMP's samples without this model.
func (t *FMP) honestHeads(ctx context.Context, f *Form) (*Form, Ensemble, *Judgement, error) {
	u, lambda, err := t.Claims()
	if err != nil {
		return nil, nil, nil, err
	}
	states := t.part.States
	if states == nil {
		if states, err = honesty.Infer(ctx, u, lambda, t.in.Seed, t.in.Threads); err != nil {
			return nil, nil, nil, err
		}
	}
	j := &Judgement{Honest: states.Marginal(), Dispute: states.Dispute(u)}
	if f, err = t.among(f, j.Honest); err != nil {
		return nil, nil, nil, err
	}
	out, err := t.part.made(f.LatentSize()/t.c+1, t.c)
	if err != nil {
		return nil, nil, nil, err
	}
	if out == nil {
		from, to := t.part.of(t.in.Samples)
		drawn := states.Draw(t.in.Samples, rng.New(t.in.Seed, t.in.Stream, "honesty"))[from:to]
		// Samples with the same honest clients are computed together.
		same := map[*bool][]int{}
		for s, z := range drawn {
			same[&z[0]] = append(same[&z[0]], s)
		}
		latents, size := t.Latents(f), f.LatentSize()
		out = make(Ensemble, len(drawn))
		for _, samples := range same {
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
	j.trusted, err = f.pool(&u, func(m int) bool { return j.Honest[m] >= 0.5 })
	return f, out, j, err
}
