package candidate

import (
	"math"
	"math/rand/v2"

	"fmp/models/rng"
	"fmp/pipeline/erm"
)

// Mixture is a posterior: heads with weights.
type Mixture struct {
	Components []Component
	Evidence   []Evidence // of every candidate
	// LogKappa is the log of the factor on the temperature that the clients measured, and
	// LogKappaError its deviation.
	LogKappa, LogKappaError float64
	// Counted is the share of the images of a corpus of the round's names that counts, 0 to 1.
	Counted float64
	// Unlike names its classes whose class means lie elsewhere while those of the others do not:
	// less than half of their images counts.
	Unlike []int
}

// Component is one candidate's head.
type Component struct {
	Name   string
	Weight float64 // weights sum to 1
	Head   erm.Theta
	// Deviation is that of the log temperature: logits are those of the head times exp(-z), z of
	// N(0, Deviation^2).
	Deviation float64

	spread   spreader  // nil: none
	resample *resample // nil: a regression
}

// spreader draws heads about one.
type spreader interface {
	draw(t erm.Theta, r *rand.Rand) erm.Theta
}

// Evidence is that of the clients for one candidate.
type Evidence struct {
	Name string
	// LogLikelihood is that of clients left out, in nats, at the best temperature.
	LogLikelihood float64
	// LogTemperature is the temperature's posterior mean before kappa, and LogTemperatureError its
	// deviation.
	LogTemperature, LogTemperatureError float64
	Weight                              float64 // 0 for a candidate that is no component

	left   []float64 // the likelihood's parts, of the groups that were left out
	corpus bool      // with the covariance of a corpus, or in the coordinates in which it varies
}

// Corpora returns the log evidence of the round's corpora: that of the best candidate that reads
// one, less that of the best without; false where there are none.
func (m *Mixture) Corpora() (evidence float64, ok bool) {
	with, without := math.Inf(-1), math.Inf(-1)
	for _, e := range m.Evidence {
		if e.corpus {
			with = max(with, e.LogLikelihood)
		} else {
			without = max(without, e.LogLikelihood)
		}
	}
	return with - without, !math.IsInf(with, -1) && !math.IsInf(without, -1)
}

// place is a component at a node of its temperature.
type place struct {
	*Component
	at     float64 // 0 where the temperature is known
	weight float64
}

// places returns the components at every node of their temperature, with weights that sum to 1. The
// posterior's probabilities are the weighted mean of the softmaxes of their heads: with weights w_k
// of components, heads H_k and nodes (q, z) of N(0, 1)
//
//	p(y|x) = sum_k w_k sum_q q softmax(exp(-z Deviation_k) H_k'[x, 1])_y
func (m *Mixture) places() (out []place) {
	for i := range m.Components {
		c := &m.Components[i]
		if c.Deviation == 0 {
			out = append(out, place{c, 0, c.Weight})
			continue
		}
		for _, n := range nodes {
			out = append(out, place{c, n.at, c.Weight * n.weight})
		}
	}
	return out
}

// head returns the component's head there.
func (p *place) head() erm.Theta {
	if p.Deviation == 0 {
		return p.Head
	}
	t := erm.NewTheta(p.Head.D, p.Head.C)
	axpy(math.Exp(-p.at*p.Deviation), p.Head.W, t.W)
	return t
}

// Ensemble returns s equally likely heads: those of places by systematic resampling, whose counts
// differ from s times the weight by less than one, in random order, each with class means of its
// own (spread). Heads without spread that appear more than once share memory.
func (m *Mixture) Ensemble(s int, o Options) []erm.Theta {
	places := m.places()
	r := rng.New(o.Seed, "candidate", o.Stream, "ensemble")
	u, sum, at := r.Float64(), 0.0, 0
	drawn := make([]int, s)
	for i := range drawn {
		for at < len(places)-1 && sum+places[at].weight < (float64(i)+u)/float64(s) {
			sum += places[at].weight
			at++
		}
		drawn[i] = at
	}
	r.Shuffle(s, func(i, j int) { drawn[i], drawn[j] = drawn[j], drawn[i] })
	out := make([]erm.Theta, s)
	same := map[int]erm.Theta{}
	for i, at := range drawn {
		t, ok := same[at]
		if !ok {
			t = places[at].head()
			same[at] = t
		}
		if spread := places[at].spread; spread != nil {
			t = spread.draw(t, rng.New(o.Seed, "candidate", o.Stream, "latent", i))
		}
		out[i] = t
	}
	return out
}

// minProbability is the least probability whose logarithm is told.
const minProbability = 1e-12
