// Package honesty estimates the probability that each client of a round is honest, that is, that
// its upload was computed from images of the classes that it names. The estimate is part of the
// posterior: every posterior sample draws a state, the set of honest clients, and uses their
// uploads only.
//
// Uploads are class means in coordinates in which a class's points have covariance I and class
// means are N(0, diag(λ)) (package posterior's conjugate form). A cell is a client and a class
// with mass N > 0; its precision
//
//	a = 1 / (2.5/N + 0.3)
//
// lets no cell count for more than 3.3 points. With z_m = 1 for an honest client and μ_c shared by
// the honest ones,
//
//	honest:  x_mc ~ N(μ_c, 1/a),  μ_c ~ N(0, λ)      integrated out
//	bad:     x_mc ~ .6  N(m_c, v_c + 1/a)            this cell is correct (attacks on one class)
//	              + .3  Σ_{j≠c} T_cj N(m_j, v_j + 1/a)   another class's (flipped labels)
//	              + .05 N(0, λ + 1/a)                a class that nobody holds
//	              + .05 N(0, 30 (λ + 1/a))           garbage
//
// where (m, v) are the moments of μ given the honest uploads, and T_c ~ Dirichlet(.3/(C−1)) is
// shared by all bad clients, so that colluders pay for their target once (integrated out with a
// variational bound). A class that a single client holds has (m_c, v_c) = (0, λ): three of the
// densities coincide there, so that its holder is not suspected for it, nor is it where that class
// is like another (related). The likelihood is tempered with power .5, the prior probability that a
// client is honest is .95, and fewer than half of the clients are bad. The constants were fitted on
// corpora under simulated attacks and are the same for all data sets.
//
// The share of a claimed mass that counts is bounded before clients are judged, and further by the
// others' confirmation (influence.go).
//
// Limitation: colluders who outnumber the honest holders of a class are not detected. A bad client
// that alone holds a class is not contradicted by anybody.
package honesty

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"fmp/pipeline/internal/parallel"
	"fmp/pipeline/point"
)

// Prior is the probability that a client is honest before anything is known of it.
const Prior = 0.95

// Constants of the model.
const (
	// pointVariance is the variance of a mean of one image about its class at a client, in units of
	// W. cellVariance is that of a mean of any number of images.
	pointVariance = 2.5
	cellVariance  = 0.3
	// power is that of the likelihood of class means, and of other odds: at 0 all clients would
	// keep the prior.
	power = 0.5
	// rubbish is the factor on the variance of garbage, beside that of a class that nobody holds.
	rubbish = 30.0
	// maxOdds bounds the log odds of honesty that others tell, in nats.
	maxOdds = 200.0
	// concentration is the sum of the parameters of the Dirichlet of T_c. The smaller it is, the
	// more T_c lies on one target.
	concentration = 0.3
)

// logMix are the logarithms of the weights of the kinds of a bad client's cell: its own class,
// another's, one that nobody holds, and garbage.
var logMix = [4]float64{math.Log(0.6), math.Log(0.3), math.Log(0.05), math.Log(0.05)}

// Exact is the largest number of clients for which all states are enumerated; for more clients,
// Gibbs chains propose states.
const Exact = 10

// Numbers of chains and sweeps of the annealed Gibbs sampler. Above a hundred clients there are
// fewer chains, as their cost grows and the influence of one client shrinks.
const (
	maxChains = 24
	minChains = 4
	// sweeps over the clients of a chain. The power of the likelihood rises from 0.03 of its own in
	// the first to all of it in three fifths of them, by equal factors.
	sweeps = 20
	greedy = 2 // sweeps from the end of a chain to the nearby mode
)

// Chains returns the number of chains that propose states for a round; 0 if all states are
// enumerated.
func (u *Uploads) Chains() int {
	switch {
	case u.Clients <= u.exact():
		return 0
	case u.large():
		return minChains
	}
	return max(minChains, min(maxChains, 100*maxChains/u.Clients))
}

// Uploads are the bounded uploads of a round, as class means.
type Uploads struct {
	Clients, Classes, K int
	// Masses [clients, classes]; 0 if a client holds nothing of a class.
	Masses []float64
	// Means [clients, classes, k] of the classes; arbitrary where the mass is 0. Where Rows
	// [clients, classes] is not nil, it has the places of the means that are held, of k numbers.
	Means []float64
	Rows  []int32
	// Copy is, for each client, the first client of those that sent copies of one upload (see
	// [Uploads.Copies]); nil if there are none.
	Copy []int
	// Odds [clients] are log odds of honesty that something else than class means tells; nil where
	// nothing does.
	Odds []float64
	// Known are class means that nobody doubts; nil: none.
	Known *Known
	// Wide says that the uploads have fewer coordinates than the round (wide.go), and Pool's class
	// means are of these.
	Wide bool
	// Progress is told of the steps of Propose, or of Weigh where no chain proposed states, from
	// any goroutine; nil: nobody asks.
	Progress func(stage string, done, total int)
}

// counter returns a function that reports one step more, of total.
func (u *Uploads) counter(total int) func() {
	if u.Progress == nil {
		return func() {}
	}
	const stage = "who is honest"
	u.Progress(stage, 0, total)
	var done atomic.Int64
	return func() { u.Progress(stage, int(done.Add(1)), total) }
}

// Known are class means of images that the server knows, its own or those of an earlier round,
// which anchor who is honest. They count as those of as many clients as there are, which are honest
// in every state, so that no number of colluders outvotes them, and are not pooled. Where they have
// all classes that clients hold, all clients but one may be bad.
type Known struct {
	Masses []float64 // [classes]; 0 where nothing is known
	Means  []float64 // [classes, k]
}

// anchored reports whether every class that a client holds is known.
func (u *Uploads) anchored() bool {
	if u.Known == nil {
		return false
	}
	for i, n := range u.Masses {
		if n > 0 && u.Known.Masses[i%u.Classes] == 0 {
			return false
		}
	}
	return true
}

// Pool returns the pooled class means of the selected clients, one point per class that they hold,
// so that later stages read no more than that however many clients there are.
func (u *Uploads) Pool(of func(client int) bool) *point.Set {
	counts := make([]float64, u.Clients)
	for m := range counts {
		if of(m) {
			counts[m] = 1
		}
	}
	pooled := u.weighted(counts)
	all := point.New(u.Classes, u.K, u.Classes)
	for c, n := range pooled.mass {
		all.W[c] = float32(n)
		row := all.Row(c)
		row[u.K+c] = 1
		for j := range u.K {
			if n > 0 {
				row[j] = float32(pooled.sum[c*u.K+j] / n)
			}
		}
	}
	return all.Held()
}

// States are the candidate sets of honest clients, with their probabilities.
type States struct {
	// Honest [state][client] says who is honest.
	Honest [][]bool
	// P [state] are the probabilities; they sum to 1.
	P []float64
}

// Check returns an error unless the states, made elsewhere, are valid for this number of clients.
func (s *States) Check(clients int) error {
	if len(s.P) == 0 || len(s.P) != len(s.Honest) {
		return fmt.Errorf("honesty: %d states with %d probabilities; want as many, and at least "+
			"one", len(s.Honest), len(s.P))
	}
	sum := 0.0
	for q, p := range s.P {
		if len(s.Honest[q]) != clients || !(p >= 0) {
			return fmt.Errorf(
				"honesty: state %d is of %d clients and has probability %v; "+
					"want %d clients and 0 to 1", q, len(s.Honest[q]), p, clients)
		}
		sum += p
	}
	if math.Abs(sum-1) > 1e-6 {
		return fmt.Errorf("honesty: the states' probabilities sum to %v; want 1", sum)
	}
	return nil
}

// Marginal returns each client's probability of being honest.
func (s *States) Marginal() []float64 {
	out := make([]float64, len(s.Honest[0]))
	for q, z := range s.Honest {
		for m, honest := range z {
			if honest {
				out[m] += s.P[q]
			}
		}
	}
	for m := range out {
		out[m] = min(out[m], 1)
	}
	return out
}

// Draw draws one state for each of n posterior samples by systematic resampling: a state of
// probability p is drawn n p times, to within one.
func (s *States) Draw(n int, r *rand.Rand) [][]bool {
	out := make([][]bool, n)
	u, at, sum := r.Float64(), 0, s.P[0]
	for i := range out {
		for (u+float64(i))/float64(n) > sum && at+1 < len(s.P) {
			at++
			sum += s.P[at]
		}
		out[i] = s.Honest[at]
	}
	r.Shuffle(n, func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// Dispute returns, for each class, the expected share of its mass that the posterior leaves out;
// above [Contested] a class is contested.
func (s *States) Dispute(u Uploads) []float64 {
	p := s.Marginal()
	out, all := make([]float64, u.Classes), make([]float64, u.Classes)
	for m := range u.Clients {
		for c := range u.Classes {
			n := u.Masses[m*u.Classes+c]
			all[c] += n
			out[c] += n * (1 - p[m])
		}
	}
	for c := range out {
		if all[c] > 0 {
			out[c] /= all[c]
		}
	}
	return out
}

// Contested is the share of a class's mass left out above which the class is contested.
const Contested = 0.35

// Infer computes the posterior probabilities of the states of a round. lambda [k] are the variances
// of class means between the corpus's classes. seed determines the random streams of the chains,
// which more than [Exact] clients need; threads (0: one per processor) does not affect the result.
func Infer(ctx context.Context, u Uploads, lambda []float64, seed uint64,
	threads int) (*States, error) {
	proposed, err := u.Propose(ctx, lambda, seed, 0, u.Chains(), threads)
	if err != nil {
		return nil, err
	}
	return Weigh(ctx, u, lambda, proposed, threads)
}

// Weigh computes the probabilities of the states that all chains of a round proposed, in order; for
// up to [Exact] clients, of every state. Up to [Exact] clients have 2^clients states, of which
// those with fewer than half bad are weighed.
func Weigh(ctx context.Context, u Uploads, lambda []float64, proposed [][]bool,
	threads int) (*States, error) {
	h, err := newModel(u, lambda)
	if err != nil {
		return nil, fmt.Errorf("honesty: %w", err)
	}
	var states [][]bool
	if u.Clients <= u.exact() {
		for s := range uint(1) << u.Clients {
			z := fromBits(s, u.Clients)
			if h.tie(z); u.Clients-bits.OnesCount(s) <= h.most &&
				slices.Equal(z, fromBits(s, u.Clients)) {
				states = append(states, z)
			}
		}
	} else if states, err = h.distinct(proposed); err != nil {
		return nil, fmt.Errorf("honesty: %w", err)
	}
	l := make([]float64, len(states))
	step := func() {}
	if len(proposed) == 0 {
		step = u.counter(len(states))
	}
	if err := parallel.Each(ctx, threads, len(states), func(_ context.Context, q int) error {
		l[q] = h.logPosterior(states[q])
		step()
		return nil
	}); err != nil {
		return nil, err
	}
	top := slices.Max(l)
	var sum float64
	for q := range l {
		l[q] = math.Exp(l[q] - top)
		sum += l[q]
	}
	for q := range l {
		l[q] /= sum
	}
	return &States{states, l}, nil
}

func fromBits(s uint, n int) []bool {
	z := make([]bool, n)
	for m := range z {
		z[m] = s>>m&1 == 1
	}
	return z
}
