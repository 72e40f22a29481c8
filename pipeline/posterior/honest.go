package posterior

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"fmp/models/rng"
	"fmp/pipeline/honesty"
	"fmp/pipeline/point"
)

// Judgement is what the posterior says of the clients of a round.
type Judgement struct {
	// Honest is the probability of each client that its upload is what it computed from images of the classes that it names.
	Honest []float64
	// Dispute is the share of each class's mass that the posterior leaves out; from honesty.Contested on it is contested.
	Dispute []float64
}

// honestHeads are FMP's samples, each given the uploads of the clients that are honest in it (package honesty). Where every
// client is honest in every sample they are those that FMP has without.
func (t *Task) honestHeads(ctx context.Context) (Ensemble, *Judgement, error) {
	u, lambda, err := t.in.Conjugate.Claims(t.in.ClassMeans)
	if err != nil {
		return nil, nil, err
	}
	states, err := honesty.Infer(ctx, u, lambda, t.in.Seed, t.in.Threads)
	if err != nil {
		return nil, nil, err
	}
	drawn := states.Draw(t.in.Latents, rng.New(t.in.Seed, t.in.Stream, "honesty"))
	// Samples with the same clients are made together.
	same := map[string][]int{}
	for s, z := range drawn {
		k := fmt.Sprint(z)
		same[k] = append(same[k], s)
	}
	latents, size := t.latents(), t.in.Conjugate.LatentSize()
	out := make(Ensemble, t.in.Latents)
	for _, k := range slices.Sorted(maps.Keys(same)) {
		samples := same[k]
		var sets []*point.Set
		for m, honest := range drawn[samples[0]] {
			if honest {
				sets = append(sets, t.in.ClassMeans[m])
			}
		}
		seen, err := point.Pool(sets...)
		if err != nil {
			return nil, nil, err
		}
		var latent []float32
		for _, s := range samples {
			latent = append(latent, latents[s*size:(s+1)*size]...)
		}
		heads, err := t.in.Conjugate.Heads(ctx, seen, latent, len(samples))
		if err != nil {
			return nil, nil, err
		}
		for i, s := range samples {
			out[s] = heads[i]
		}
	}
	return out, &Judgement{Honest: states.Marginal(), Dispute: states.Dispute(u)}, nil
}
