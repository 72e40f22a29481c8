package rival

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"fmp/pipeline/erm"
	"fmp/pipeline/internal/parallel"
)

// Hamiltonian Monte Carlo (Neal 2011) as if in whitened coordinates, where the target is close to
// N(0, I): there a trajectory of length pi/2 turns a position into a momentum, and draws are nearly
// independent. With few points and a wide prior, most of the posterior lies far from the mode,
// where the likelihood is flatter: half-way through the warm-up, chains whiten anew by the mean
// curvature along the chain, and trajectories are somewhat longer and of varying length, so that
// none is a period of some coordinate. Step sizes are adapted by dual averaging.
//
// Whitening z = U (T - mode) with momentum p is equivalent to keeping T itself with velocity v =
// U^-1 p, which the force -g(T) accelerates by -(U'U)^-1 g: one product per step instead of two.
const (
	hmcTrajectory = 2   // mean length of a trajectory in whitened coordinates
	hmcJitter     = 0.6 // relative variation of trajectory lengths
	hmcTarget     = 0.8 // target acceptance
	hmcMaxStep    = 1.9 // a leapfrog step is unstable on N(0, I) from 2 on
	hmcMaxSteps   = 100 // leapfrog steps per trajectory
	// hmcDivergence is the gain of total energy from which on a trajectory has diverged: it would
	// be accepted with a probability of e^-1000.
	hmcDivergence = 1000
)

// diagnostics are those of a set of chains. rhat is the largest split R-hat over coordinates, and
// rhatEnergy that of the potential energy. acceptance is the mean over kept draws, stepSize the
// least of the chains, and divergences counts trajectories after warm-up.
type diagnostics struct {
	rhat, rhatEnergy, acceptance, stepSize float64
	divergences                            int
}

// summary returns the worst of several diagnostics: the largest R-hat, the smallest mean acceptance
// and step size, and the sum of divergences. It is nil where no chain was run.
func summary(all []*diagnostics) map[string]float64 {
	var out map[string]float64
	for _, d := range all {
		if d == nil {
			continue
		}
		if out == nil {
			out = map[string]float64{"rhat": d.rhat, "rhat_energy": d.rhatEnergy,
				"acceptance": d.acceptance, "step_size": d.stepSize,
				"divergences": float64(d.divergences)}
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

// hmc runs s.Chains chains and returns samples draws, evenly spaced, alternating between chains. A
// chain keeps s.Draws draws or as many as the samples need, rounded up to an even number. stream
// gives each chain its own random numbers, so that draws do not depend on threads. A step of the
// integrator costs O(C r (N + r)) for heads of C x r numbers and N points.
func hmc(ctx context.Context, t *target, samples int, s Settings, threads int,
	stream func(chain int) *rand.Rand) ([][]float64, *diagnostics, error) {
	draws := max(s.Draws, (samples+s.Chains-1)/s.Chains)
	draws += draws % 2 // R-hat splits chains in halves
	chains := make([]*chain, s.Chains)
	err := parallel.Each(ctx, max(threads, 1), s.Chains, func(ctx context.Context, i int) error {
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

	sum, force  []float64 // buffers for the sum over classes
	kept        [][]float64
	energies    []float64 // potential energy of the kept draws
	accepted    float64   // sum of acceptance probabilities of kept draws
	epsilon     float64
	divergences int // after warm-up
}

// gradient writes the gradient of J at a head, with the separate energy of the sum over classes
// (see target), and the acceleration that it causes.
func (c *chain) gradient(head, g, acceleration []float64) {
	c.o.Slope(head, g)
	c.t.sumEnergy(head, g, c.sum, c.force)
	c.t.accelerate(g, acceleration)
}

// potential is gradient; it also returns the energy.
func (c *chain) potential(head, g, acceleration []float64) float64 {
	u := c.o.Gradient(head, g) + c.t.sumEnergy(head, g, c.sum, c.force)
	c.t.accelerate(g, acceleration)
	return u
}

// averaging is dual averaging of log step sizes towards an acceptance of hmcTarget (Hoffman and
// Gelman 2014, equations 4 to 6, with their constants).
type averaging struct{ mu, slack, log, n float64 }

func newAveraging(epsilon float64) *averaging { return &averaging{mu: math.Log(10 * epsilon)} }

// next returns the step size after a step with acceptance probability p. With n steps so far
//
//	slack <- (1 - 1/(n + t0)) slack + (target - p)/(n + t0)
//	log   =  mu - sqrt(n)/gamma slack
//	mean  <- n^-kappa log + (1 - n^-kappa) mean
//
// where mu = log 10 epsilon lets early steps be large, and the mean of logs is the final step.
func (a *averaging) next(p float64) float64 {
	const gamma, t0, kappa = 0.05, 10, 0.75
	a.n++
	a.slack += (hmcTarget - p - a.slack) / (a.n + t0)
	log := a.mu - math.Sqrt(a.n)/gamma*a.slack
	a.log += math.Pow(a.n, -kappa) * (log - a.log)
	// Beyond 2 the leapfrog integrator is unstable on N(0, I), even where the first steps suggest
	// otherwise.
	return math.Min(math.Exp(log), hmcMaxStep)
}

// final returns the adapted step size.
func (a *averaging) final() float64 { return math.Min(math.Exp(a.log), hmcMaxStep) }

// run runs the chain and keeps draws. The first quarter of the warm-up leaves the start, and the
// second gathers the mean curvature. The chain then whitens by it, and in the other half adapts its
// step again. A step of the integrator (leapfrog) has velocities at half steps and positions at
// whole ones; whitening the velocity gives the momentum p = U v, whose energy is |p|^2/2.
func (c *chain) run(ctx context.Context, warmup, draws int) error {
	n := c.t.dim()
	c.sum, c.force = make([]float64, n/c.t.c), make([]float64, n/c.t.c)
	buffer := func() []float64 { return make([]float64, n) }
	at, g, a := buffer(), buffer(), buffer()
	c.t.unwhiten(normal(c.r, n), at) // about a draw from the Laplace approximation
	floats.Add(at, c.t.mode)
	u := c.potential(at, g, a)
	if math.IsNaN(u) || math.IsInf(u, 0) {
		return fmt.Errorf("the energy at the start is %v; scale the features or raise erm.l2", u)
	}
	at1, a1, p, v := buffer(), buffer(), buffer(), buffer()
	// the scaling of HMC's step with dimension (Beskos et al. 2013)
	c.epsilon = 1 / math.Pow(float64(n), 0.25)
	step := newAveraging(c.epsilon)
	mean := make([]float64, c.t.problem.N*c.t.c)

	for iteration := range warmup + draws {
		if err := ctx.Err(); err != nil {
			return err
		}
		switch iteration {
		case warmup / 2:
			var err error
			if c.t, err = c.t.blocks(c.o, mean); err != nil {
				return err
			}
			u = c.potential(at, g, a)
			c.epsilon = step.final()
			step = newAveraging(c.epsilon)
		case warmup:
			c.epsilon = step.final()
		}
		for i := range p {
			p[i] = c.r.NormFloat64()
		}
		// Lengths are uniform about hmcTrajectory, and off by the share hmcJitter at most.
		length := hmcTrajectory * (1 + hmcJitter*(2*c.r.Float64()-1))
		steps := min(max(int(math.Round(length/c.epsilon)), 1), hmcMaxSteps)
		before := u + floats.Dot(p, p)/2
		c.t.unwhiten(p, v)
		copy(at1, at)
		floats.AddScaled(v, -c.epsilon/2, a)
		for range steps - 1 {
			floats.AddScaled(at1, c.epsilon, v)
			c.gradient(at1, g, a1)
			floats.AddScaled(v, -c.epsilon, a1)
		}
		floats.AddScaled(at1, c.epsilon, v)
		u1 := c.potential(at1, g, a1)
		floats.AddScaled(v, -c.epsilon/2, a1)
		c.t.whiten(v)
		change := u1 + floats.Dot(v, v)/2 - before
		probability := math.Exp(math.Min(0, -change))
		if math.IsNaN(change) {
			probability = 0
		}
		if iteration >= warmup && !(change < hmcDivergence) {
			c.divergences++
		}
		if c.r.Float64() < probability {
			at, at1, a, a1, u = at1, at, a1, a, u1
		}
		if iteration < warmup {
			c.epsilon = step.next(probability)
			if window := warmup/2 - warmup/4; iteration >= warmup/4 && iteration < warmup/2 {
				addCurvature(mean, 1/float64(window), c.o.Probabilities(at))
			}
			continue
		}
		c.kept = append(c.kept, slices.Clone(at))
		c.energies = append(c.energies, u)
		c.accepted += probability
	}
	return nil
}

// splitRHat returns the potential scale reduction of chains split in halves (Gelman et al. 2013,
// Bayesian Data Analysis, section 11.4): 1 where all halves agree, also for constant chains. With n
// draws of a half, W the mean of the halves' variances and V the variance of their means it is
// sqrt((n-1)/n + V/W).
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
