// Package audit attacks clients' uploads: membership inference on class means, scatter and
// calibration points, and on the release of a private round, with the lower bound on epsilon that
// the attack proves.
package audit

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat/distuv"

	"fmp/models/rng"
	"fmp/onnx/sorting"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/lab/score"
	"fmp/pipeline/metric"
	"fmp/pipeline/privacy"
	"fmp/pipeline/task"
)

// Options set the extent of an audit. Rounds and Seed decide every random number of an audit.
type Options struct {
	// Rounds is the number of rounds attacked, 1 to 10,000, each with new clients.
	Rounds int
	Seed   uint64
	// Points is the number of images per client; 0 stands for the run's own. Private rounds have
	// the run's own.
	Points int
	// Calibrate is the number of calibration points, at most, that clients send beside class means.
	Calibrate int
}

// Attack is the success of membership inference, measured and in theory. 0.5 and 0.01 are the
// success of an attacker who knows nothing.
type Attack struct {
	// AUC is the area under the ROC curve, and TPR the true positive rate at a false positive rate
	// of 1%.
	AUC float64 `json:"auc"`
	TPR float64 `json:"tpr_at_1"`
	// TheoryAUC and TheoryTPR are the values for two normal distributions of variance 1 whose means
	// are TheoryD apart.
	TheoryD   float64 `json:"theory_d"`
	TheoryAUC float64 `json:"theory_auc"`
	TheoryTPR float64 `json:"theory_tpr_at_1"`
}

// theory sets the success in theory of the best attack, whose scores are N(0, 1) without a member
// and N(d, 1) with it: AUC = Phi(d / sqrt 2), TPR = Phi(d - z) where z is the 99% quantile. By the
// lemma of Neyman and Pearson no test of these two distributions does better.
func (a *Attack) theory(d float64) {
	n := distuv.UnitNormal
	a.TheoryD, a.TheoryAUC, a.TheoryTPR = d, n.CDF(d/math.Sqrt2), n.CDF(d-n.Quantile(0.99))
}

// Private is the attack on the release of a private round. The attacker knows every canary, but not
// the coin that decided whether it was included; it guesses the coins of the tenth of them of which
// it is most certain. Epsilon of the proof lies below that of the budget, or the mechanism is
// broken, but for the error that its confidence leaves.
type Private struct {
	Attack
	Budget   privacy.Budget `json:"budget"`
	Canaries int            `json:"canaries"`
	proof
}

// proof is the lower bound on epsilon, at Confidence, that the right ones of guesses prove. An
// Epsilon of 0 proves nothing and refutes nothing.
type proof struct {
	Guesses    int     `json:"guesses"`
	Right      int     `json:"right"`
	Epsilon    float64 `json:"epsilon_lower"`
	Confidence float64 `json:"confidence"`
}

// guess is the score of a canary, above 0 where it is more likely in, and whether it is.
type guess struct {
	score float64
	in    bool
}

// count adds the tenth of guesses that is most certain. It sorts guesses in place, by certainty,
// and ties keep their order. Guesses about the rest would be near to chance, and a bound from many
// such is weaker.
func (p *proof) count(guesses []guess) {
	sorting.Stably(guesses, func(a, b guess) int {
		return -cmp.Compare(math.Abs(a.score), math.Abs(b.score))
	})
	for _, g := range guesses[:max(1, len(guesses)/10)] {
		p.Guesses++
		if (g.score > 0) == g.in {
			p.Right++
		}
	}
}

// conclude computes the success of scores of those that were in and not, and, of guesses about n
// canaries, the bound. sigma is the noise's deviation for sensitivity 1, so that a canary of the
// largest norm moves scores by 1/sigma. One side without scores is an error.
func (a *Attack) conclude(p *proof, in, not []float64, n int, sigma, delta float64) (err error) {
	if a.AUC, err = metric.AUROC(in, not); err != nil {
		return err
	}
	a.TPR = score.TruePositives(in, not, 0.01)
	a.theory(1 / sigma)
	p.Confidence, p.Epsilon = confidence, lowerBound(n, p.Guesses, p.Right, delta, confidence)
	return nil
}

// confidence is the confidence level of lower bounds. One audit in twenty of a sound mechanism may
// prove more than is true.
const confidence = 0.95

// RunPrivate audits the release of private rounds. Twice as many units as the round has (clients,
// or images of each client) are canaries, each included by a fair coin. With u the canary's
// contribution, S the release and C the covariance of S - E S over coins and noise, the score is u'
// C^-1 (S - E S), that of the likelihood ratio. In theory no attacker exceeds d' = 1/sigma against
// noise of sigma. Half of the canaries are in on average, so that a release sums up as many units
// as a round of the run. The rows are mapped once for all rounds. A run that is not private is an
// error.
func RunPrivate(ctx context.Context, p *experiment.Prepared, alpha float64,
	o Options) (*Private, error) {
	c := p.Config
	v, of := p.Tools.Private, c.Privacy.Budget(c.Federation.Points)
	if v == nil || of == nil {
		return nil, fmt.Errorf("audit: the run is not private; set privacy.epsilon")
	}
	b, bank := *of, p.Data.Clients
	w, err := v.Rows(ctx, bank.Features)
	if err != nil {
		return nil, err
	}
	if bank, err = task.NewBank(w, v.K(), bank.Labels, bank.C); err != nil {
		return nil, err
	}
	out := &Private{Budget: b}
	account := b.Spend(bank.C, c.Federation.Clients)
	var in, not []float64
	for round := range o.Rounds {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		// Coins and noise come from one stream, in this order for each group.
		r := rng.New(o.Seed, "audit", "canaries", round)
		units, groups, err := canaries(p, bank, b, alpha, round, o.Seed)
		if err != nil {
			return nil, err
		}
		var guesses []guess
		for _, group := range groups { // canaries whose parts are in one release
			total := privacy.NewRelease(bank.C, v.K())
			coins := make([]bool, len(group))
			for i, u := range group {
				if coins[i] = r.IntN(2) == 1; coins[i] {
					if err := total.Add(units[u]); err != nil {
						return nil, err
					}
				}
			}
			// Noise is added once for each party that adds any.
			releases := account.Releases
			if b.Noise == privacy.Local {
				releases = 1 // the attacker sees every client's
			}
			// Noise of k releases adds up to k times its variance.
			for range releases {
				if err := total.AddNoise(account.Deviation, rng.Bytes(r)); err != nil {
					return nil, err
				}
			}
			scores, err := canaryScores(units, group, total,
				float64(releases)*float64(account.Deviation)*float64(account.Deviation))
			if err != nil {
				return nil, err
			}
			for i, s := range scores {
				guesses = append(guesses, guess{s, coins[i]})
				if coins[i] {
					in = append(in, s)
				} else {
					not = append(not, s)
				}
			}
		}
		out.Canaries += len(guesses)
		out.count(guesses)
	}
	return out, out.conclude(&out.proof, in, not, out.Canaries, account.Sigma, b.Delta)
}

// canaries returns the contributions of twice as many units as a round has, and the groups of them
// in one release: all of them or, where clients add their own noise, those of each client. The bank
// has the rows that clients sum up. Canaries of more images than the clients' part has are an
// error. Each contribution is clipped as a client does it, in integer steps. groups hold indices
// into units, and every unit is in one group.
func canaries(p *experiment.Prepared, bank *task.Bank, b privacy.Budget, alpha float64, round int,
	seed uint64) (units []*privacy.Release, groups [][]int, err error) {
	c := p.Config.Federation
	clients, points := c.Clients, 2*c.Points
	if b.Unit == privacy.Client {
		clients, points = 2*c.Clients, c.Points
	}
	if need, have := clients*points, bank.Len(); need > have {
		return nil, nil, fmt.Errorf("audit: canaries are twice a round's images, %d, and "+
			"the clients' part has %d; lower federation.clients or federation.points", need, have)
	}
	rows, err := bank.Partition(rng.New(seed, "audit", "clients", round), clients, points, alpha)
	if err != nil {
		return nil, nil, err
	}
	var all []int
	for _, of := range rows {
		first := len(units)
		images := 1
		if b.Unit == privacy.Client {
			images = len(of)
		}
		for unit := range slices.Chunk(of, images) {
			x, labels := bank.Points(unit, nil).Labelled()
			u, err := privacy.Sum(x, labels, bank.C, bank.Dx, p.Tools.Private.Clip())
			if err != nil {
				return nil, nil, err
			}
			if b.Unit == privacy.Client {
				u.Clip(b.ClientNorm(bank.C))
			}
			units = append(units, u)
		}
		var own []int
		for i := first; i < len(units); i++ {
			own, all = append(own, i), append(all, i)
		}
		if b.Noise == privacy.Local {
			groups = append(groups, own)
		}
	}
	if b.Noise != privacy.Local {
		groups = [][]int{all}
	}
	return units, groups, nil
}

// canaryScores returns u' C^-1 (S - E S) for each canary of a group, above 0 where it is more
// likely included. Each canary u_i is in S by a fair coin, so that with a variance v of the noise
// in each number
//
//	E S = 1/2 sum_i u_i,   C = v I + 1/4 sum_i u_i u_i'
//
// C has the canary's own coin in it as well. This divides its score by 1 + u' D^-1 u / 4, where D
// is C without the coin, and keeps the sign. For n numbers and G canaries the cost is O(n^3 + G
// n^2). Sums of many coins are near to normal, for which the ratio is linear in S.
func canaryScores(units []*privacy.Release, group []int, total *privacy.Release,
	variance float64) ([]float64, error) {
	n := len(total.Values)
	rest := mat.NewVecDense(n, nil)
	for i, v := range total.Values {
		rest.SetVec(i, float64(v))
	}
	cov := mat.NewSymDense(n, nil)
	for i := range n {
		cov.SetSym(i, i, variance)
	}
	parts := make([]*mat.VecDense, len(group))
	for i, u := range group {
		parts[i] = mat.NewVecDense(n, nil)
		for j, v := range units[u].Values {
			parts[i].SetVec(j, float64(v))
		}
		rest.AddScaledVec(rest, -0.5, parts[i])
		cov.SymRankOne(cov, 0.25, parts[i])
	}
	var chol mat.Cholesky
	if !chol.Factorize(cov) {
		return nil, fmt.Errorf("audit: the covariance of the release is singular")
	}
	var solved mat.VecDense
	if err := chol.SolveVecTo(&solved, rest); err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	out := make([]float64, len(group))
	for i, u := range parts {
		out[i] = mat.Dot(u, &solved)
	}
	return out, nil
}
