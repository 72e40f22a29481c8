package posterior

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"fmp/pipeline/erm"
)

// Hamiltonian Monte Carlo (Neal 2011) in whitened coordinates, where the target is close to N(0, I): there a
// trajectory of length pi/2 turns a position into a momentum, and draws are nearly independent. Where points are few
// and the prior is wide, most of the posterior lies far beyond the mode, where the likelihood is flatter: half-way
// through the warm-up, chains whiten anew by the mean curvature that they met, and trajectories are somewhat longer,
// of lengths that vary, lest one be a period of some coordinate. Step sizes are adapted by dual averaging.
const (
	hmcTrajectory = 2
	hmcJitter     = 0.6 // trajectories vary by this share
	hmcTarget     = 0.8 // acceptance aimed at
	hmcMaxStep    = 1.9
	hmcMaxSteps   = 100 // leapfrog steps a trajectory
	hmcDivergence = 1000
)

// diagnostics of a set of chains.
type diagnostics struct {
	rhat, rhatEnergy, acceptance, stepSize float64
	divergences                            int
}

// summary is the worst of several: the largest R-hat, the smallest mean acceptance and step size, all
// divergences. It is nil where no chain was run.
func summary(all []*diagnostics) map[string]float64 {
	var out map[string]float64
	for _, d := range all {
		if d == nil {
			continue
		}
		if out == nil {
			out = map[string]float64{"rhat": d.rhat, "rhat_energy": d.rhatEnergy, "acceptance": d.acceptance, "step_size": d.stepSize, "divergences": float64(d.divergences)}
			continue
		}
		out["rhat"] = max(out["rhat"], d.rhat)
		out["rhat_energy"] = max(out["rhat_energy"], d.rhatEnergy)
		out["acceptance"] = min(out["acceptance"], d.acceptance)
		out["step_size"] = min(out["step_size"], d.stepSize)
		out["divergences"] += float64(d.divergences)
	}
	return out
}

// hmc runs s.Chains chains and returns samples of their draws, evenly spaced, alternating between chains.
func hmc(ctx context.Context, t *target, samples int, s Settings, threads int, stream func(chain int) *rand.Rand) ([][]float64, *diagnostics, error) {
	draws := max(s.Draws, (samples+s.Chains-1)/s.Chains)
	draws += draws % 2 // R-hat splits chains in halves
	chains := make([]*chain, s.Chains)
	err := parallel(ctx, s.Chains, threads, func(ctx context.Context, i int) error {
		c := &chain{t: t, o: erm.NewObjective(t.problem), r: stream(i)}
		chains[i] = c
		if err := c.run(ctx, s.Warmup, draws); err != nil {
			return fmt.Errorf("chain %d: %w", i, err)
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	out := make([][]float64, samples)
	perChain := (samples + s.Chains - 1) / s.Chains
	for i := range out {
		out[i] = chains[i%s.Chains].kept[(i/s.Chains+1)*draws/perChain-1]
	}
	d := &diagnostics{stepSize: math.Inf(1)}
	series := make([][]float64, len(chains))
	for i, c := range chains {
		d.acceptance += c.accepted / float64(draws) / float64(len(chains))
		d.stepSize = min(d.stepSize, c.epsilon)
		d.divergences += c.divergences
		series[i] = c.energies
	}
	d.rhatEnergy = splitRHat(series)
	for k := range t.dim() {
		for i, c := range chains {
			series[i] = make([]float64, draws)
			for j, a := range c.kept {
				series[i][j] = a[k]
			}
		}
		d.rhat = max(d.rhat, splitRHat(series))
	}
	return out, d, nil
}

// chain is one Markov chain.
type chain struct {
	t *target
	o *erm.Objective
	r *rand.Rand

	head, headGradient []float64
	sum                []float64 // buffer for the sum over classes
	kept               [][]float64
	energies           []float64 // potential energy of what was kept
	accepted           float64   // sum of acceptance probabilities of kept draws
	epsilon            float64
	divergences        int // after warm-up
}

// potential is J at z, with the sum over classes given its own energy (see target), and writes its gradient with respect to z.
func (c *chain) potential(z, gradient []float64) float64 {
	c.t.unwhiten(z, c.head)
	f := c.o.Gradient(c.head, c.headGradient) + c.t.sumEnergy(c.head, c.headGradient, c.sum)
	c.t.whitenGradient(c.headGradient, gradient)
	return f
}

// averaging is dual averaging of log step sizes towards an acceptance of hmcTarget (Hoffman and Gelman 2014,
// equations 4 to 6, with their constants).
type averaging struct{ mu, slack, log, n float64 }

func newAveraging(epsilon float64) *averaging { return &averaging{mu: math.Log(10 * epsilon)} }

// next is the step size after one of acceptance probability p.
func (a *averaging) next(p float64) float64 {
	const gamma, t0, kappa = 0.05, 10, 0.75
	a.n++
	a.slack += (hmcTarget - p - a.slack) / (a.n + t0)
	log := a.mu - math.Sqrt(a.n)/gamma*a.slack
	a.log += math.Pow(a.n, -kappa) * (log - a.log)
	// Beyond 2 the leapfrog is unstable on N(0, I), whatever its first accidents suggest.
	return math.Min(math.Exp(log), hmcMaxStep)
}

// final is the step size adapted.
func (a *averaging) final() float64 { return math.Min(math.Exp(a.log), hmcMaxStep) }

func (c *chain) run(ctx context.Context, warmup, draws int) error {
	n := c.t.dim()
	c.head, c.headGradient, c.sum = make([]float64, n), make([]float64, n), make([]float64, n/c.t.c)
	z, g := normal(c.r, n), make([]float64, n) // about a draw from the Laplace approximation
	u := c.potential(z, g)
	if math.IsNaN(u) || math.IsInf(u, 0) {
		return fmt.Errorf("the energy at the start is %v; scale the features or raise erm.l2", u)
	}
	z1, g1, p := make([]float64, n), make([]float64, n), make([]float64, n)
	c.epsilon = 1 / math.Pow(float64(n), 0.25) // the scaling of HMC's step with dimension (Beskos et al. 2013)
	step := newAveraging(c.epsilon)
	mean := make([]float64, c.t.problem.N*c.t.c)

	for iteration := range warmup + draws {
		if err := ctx.Err(); err != nil {
			return err
		}
		switch iteration {
		case warmup / 2:
			var err error
			c.t.unwhiten(z, c.head)
			if c.t, err = c.t.blocks(c.o, mean); err != nil {
				return err
			}
			c.t.whiten(c.head, z)
			u = c.potential(z, g)
			c.epsilon = step.final()
			step = newAveraging(c.epsilon)
		case warmup:
			c.epsilon = step.final()
		}
		for i := range p {
			p[i] = c.r.NormFloat64()
		}
		length := hmcTrajectory * (1 + hmcJitter*(2*c.r.Float64()-1))
		steps := min(max(int(math.Round(length/c.epsilon)), 1), hmcMaxSteps)
		before := u + floats.Dot(p, p)/2
		copy(z1, z)
		copy(g1, g)
		var u1 float64
		for range steps {
			floats.AddScaled(p, -c.epsilon/2, g1)
			floats.AddScaled(z1, c.epsilon, p)
			u1 = c.potential(z1, g1)
			floats.AddScaled(p, -c.epsilon/2, g1)
		}
		change := u1 + floats.Dot(p, p)/2 - before
		probability := math.Exp(math.Min(0, -change))
		if math.IsNaN(change) {
			probability = 0
		}
		if iteration >= warmup && !(change < hmcDivergence) {
			c.divergences++
		}
		if c.r.Float64() < probability {
			z, z1, g, g1, u = z1, z, g1, g, u1
		}
		if iteration < warmup {
			c.epsilon = step.next(probability)
			if window := warmup/2 - warmup/4; iteration >= warmup/4 && iteration < warmup/2 {
				c.t.unwhiten(z, c.head)
				addCurvature(mean, 1/float64(window), c.o.Probabilities(c.head))
			}
			continue
		}
		a := make([]float64, n)
		c.t.unwhiten(z, a)
		c.kept = append(c.kept, a)
		c.energies = append(c.energies, u)
		c.accepted += probability
	}
	return nil
}

// splitRHat is the potential scale reduction of chains split in halves (Gelman et al. 2013, Bayesian Data
// Analysis, section 11.4): 1 where all halves agree. Constant chains that agree give 1.
func splitRHat(chains [][]float64) float64 {
	var means, variances []float64
	n := len(chains[0]) / 2
	for _, c := range chains {
		for _, half := range [][]float64{c[:n], c[len(c)-n:]} {
			m, v := stat.MeanVariance(half, nil)
			means, variances = append(means, m), append(variances, v)
		}
	}
	within := stat.Mean(variances, nil)
	between := stat.Variance(means, nil) // B / n
	if within == 0 {
		if between == 0 {
			return 1
		}
		return math.Inf(1)
	}
	return math.Sqrt(float64(n-1)/float64(n) + between/within)
}
