package rival

import (
	"context"
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"fmp/models/rng"
	"fmp/pipeline/internal/memo"
	"fmp/pipeline/internal/moment"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
	"fmp/pipeline/privacy"
)

// citePrivate cites the source of noise-aware posteriors.
const citePrivate = "Bernstein and Sheldon 2018, Differentially private Bayesian inference for " +
	"exponential families, NeurIPS 31; Heikkilä et al. 2017, Differentially private Bayesian " +
	"learning on distributed data, NeurIPS 30"

// fmpDP is FMP from class sums with differential privacy: its posterior accounts for the added
// noise (package privacy). Numbers of a release are sums over clients, and its posterior weighs
// them by their known noise.
var fmpDP = method{
	Info{Name: "FMP-DP",
		Title: "FMP of differentially private class sums, by a posterior that knows the noise",
		Group: OneShot, Cite: citePrivate, Private: true, Keep: true},
	func(ctx context.Context, t *Task, _ Settings) (*posterior.Result, error) {
		totals, account, err := t.released(ctx)
		if err != nil {
			return nil, err
		}
		round := posterior.PrivateRound{Totals: totals, Account: account, Seed: t.in.Seed,
			Stream: t.in.Stream}
		r, err := round.NoiseAware(ctx, t.in.Private, t.in.Latents)
		if err == nil {
			r.UploadBytes = t.releaseBytes()
		}
		return r, err
	},
}

// fmpDPPlugin is the plug-in baseline: noisy counts and means in place of the true ones. The
// difference to FMP-DP is the value of knowing the noise. Both read the same release.
var fmpDPPlugin = method{
	Info{Name: "FMP-DP-plugin",
		Title: "FMP that takes differentially private class sums for the true ones",
		Group: OneShot, Cite: citeFMP, Private: true},
	func(ctx context.Context, t *Task, _ Settings) (*posterior.Result, error) {
		totals, account, err := t.released(ctx)
		if err != nil {
			return nil, err
		}
		// classes that the corpus lacks: the private predictor, which is not told of the noise
		if t.in.Conjugate == nil {
			plain, counts := totals.Plain(t.in.Latents)
			round := posterior.PrivateRound{Totals: plain, Account: account, Seed: t.in.Seed,
				Stream: t.in.Stream}
			r, err := round.Heads(ctx, t.in.Private, counts)
			if err == nil {
				r.UploadBytes = t.releaseBytes()
			}
			return r, err
		}
		e, err := t.in.Conjugate.Heads(ctx, totals.Points(),
			t.means.Latents(t.in.Conjugate), t.in.Latents)
		if err != nil {
			return nil, err
		}
		return &posterior.Result{Ensembles: []posterior.Ensemble{e}, Coordinates: t.in.Conjugate,
			UploadBytes: t.releaseBytes(),
			Diagnostics: posterior.Spent(account), Spent: account}, nil
	},
}

// releaseBytes returns the size of a release on the wire, 8 bytes per number. Numbers are integers
// of 64 bits: a count and K sums for each class, held or not.
func (t *Task) releaseBytes() float64 { return 8 * float64(t.c*(t.in.Private.K()+1)) }

// private returns the predictor of private rounds and their budget. A budget out of bounds is an
// error as well.
func (t *Task) private() (posterior.Private, *privacy.Budget, error) {
	if t.in.Private == nil || t.in.Privacy == nil {
		return nil, nil, fmt.Errorf("no private predictor and budget; fmp train private " +
			"makes the one, and privacy.epsilon above 0 states the other")
	}
	return t.in.Private, t.in.Privacy, t.in.Privacy.Check()
}

// released simulates the round: each client clips, rounds and sums, and noise from the task's
// stream is added as the budget says. The round is drawn once for all methods of the task. With
// noise of the clients' own, each has a stream. Sums are of integers, so that the order of clients
// does not matter. The release is remembered: methods that are tuned read one. Simulated noise
// comes from a seed: it protects nobody, unlike a client's.
func (t *Task) released(ctx context.Context) (*privacy.Totals, *privacy.Account, error) {
	p, b, err := t.private()
	if err != nil {
		return nil, nil, err
	}
	type round struct {
		totals  *privacy.Totals
		account *privacy.Account
	}
	r, err := memo.Once(t.memo, "released", func() (*round, error) {
		account := b.Spend(t.c, len(t.in.Clients))
		sum := privacy.NewRelease(t.c, p.K())
		for m, set := range t.in.Clients {
			own, err := t.clientRelease(ctx, set)
			if err != nil {
				return nil, fmt.Errorf("client %d: %w", m, err)
			}
			// A client's own noise is in its sums before they leave it.
			if b.Noise == privacy.Local {
				if err := own.AddNoise(account.Deviation,
					rng.Bytes(rng.New(t.in.Seed, t.in.Stream, "noise", m))); err != nil {
					return nil, err
				}
			}
			if err := sum.Add(own); err != nil {
				return nil, err
			}
		}
		if b.Noise != privacy.Local {
			for i := range account.Releases {
				if err := sum.AddNoise(account.Deviation,
					rng.Bytes(rng.New(t.in.Seed, t.in.Stream, "noise/server", i))); err != nil {
					return nil, err
				}
			}
		}
		return &round{sum.Totals(p.Clip(), account.Variance()), &account}, nil
	})
	if err != nil {
		return nil, nil, err
	}
	return r.totals, r.account, nil
}

// clientRelease returns a client's sums, before noise. Rows are clipped one by one for the unit of
// an image. For that of a client the whole of its sums is clipped in addition.
func (t *Task) clientRelease(ctx context.Context, set *point.Set) (*privacy.Release, error) {
	features, labels := set.Labelled()
	w, err := t.in.Private.Rows(ctx, features)
	if err != nil {
		return nil, err
	}
	own, err := privacy.Sum(w, labels, t.c, t.in.Private.K(), t.in.Private.Clip())
	if err == nil && t.in.Privacy.Unit == privacy.Client {
		own.Clip(t.in.Privacy.ClientNorm(t.c))
	}
	return own, err
}

// fedpftDP is FedPFT with differential privacy (Beitollahi et al. 2024, section 4.2), made as
// strong as the round allows: one Gaussian with full covariance per class over all clients instead
// of one per client, in the k coordinates of the private predictor, with the noise of the analytic
// Gaussian mechanism. It releases the sums of CountSteps, of w and of w w'/R, whose last part is as
// long as the second; covariances are projected onto the positive semidefinite cone, and a softmax
// regression is fitted to as many draws as points are counted.
var fedpftDP = method{
	Info{Name: "FedPFT-DP",
		Title: "softmax regression on draws from differentially private class Gaussians",
		Group: OneShot,
		Cite:  citeFedPFT,
		Param: ParamL2, Grid: gridL2, Private: true},
	func(ctx context.Context, t *Task, s Settings) (*posterior.Result, error) {
		drawn, err := memo.Once(t.memo, "fedpft-dp",
			func() (*point.Set, error) { return t.privateGaussians(ctx) })
		if err != nil {
			return nil, err
		}
		e, err := t.fitOnce(ctx, "fedpft-dp", []*point.Set{drawn}, s.L2, s)
		if err != nil {
			return nil, err
		}
		k := t.in.Private.K()
		return &posterior.Result{Ensembles: []posterior.Ensemble{e},
			Coordinates: privateRows{t.in.Private}, UploadBytes: 8 *
				float64(t.c*(1+k+k*(k+1)/2))}, nil
	},
}

// maxDrawn bounds the draws of a class, however large its noisy count. Noise on a count is
// unbounded, and a fit to more draws gains nothing.
const maxDrawn = 20_000

// privateGaussians returns points drawn from the noisy class Gaussians, in the heads' coordinates.
//
// A class has 1 + k + k (k+1)/2 sums, with R the clipping radius: share for each point, w, and the
// lower triangle of w w'/R, whose products off the diagonal are times sqrt(2). The norm of these
// numbers is then that of the whole matrix. Noise has the deviation sigma(epsilon, delta) times the
// largest norm of one unit, twice that where units are replaced. The order of additions is fixed,
// so that kept runs repeat to the last bit. It costs O(N k^2) for N images and holds C (1 + k + k
// (k+1)/2) sums. Noise is drawn in float64, without the protection of integers against attacks on
// its last bits: the method is simulated alone.
func (t *Task) privateGaussians(ctx context.Context) (*point.Set, error) {
	p, b, err := t.private()
	if err != nil {
		return nil, err
	}
	k, radius := p.K(), p.Clip()
	width := 1 + k + k*(k+1)/2
	// A point contributes a norm of R sqrt(1/16 + 1 + 1): products off the diagonal count twice in
	// |w w'|.
	share := radius * privacy.CountSteps / privacy.Steps
	one := math.Sqrt(share*share + 2*radius*radius)
	n := float64(b.Points)
	// the norms of one that a client may contribute, as in [privacy.Budget.ClientNorm]
	all := 0.7 * math.Sqrt(n*(1+n/float64(t.c)))
	// Sigma is for sensitivity 1, and one is the largest norm of a point's sums.
	deviation := privacy.Sigma(b.Epsilon, b.Delta) * one
	if b.Unit == privacy.Client {
		deviation *= all
	}
	if b.Relation == privacy.ReplaceOne {
		deviation *= 2
	}
	sums := make([]float64, t.c*width)
	for m, set := range t.in.Clients {
		own := make([]float64, t.c*width)
		features, labels := set.Labelled()
		w, err := p.Rows(ctx, features)
		if err != nil {
			return nil, err
		}
		for i, y := range labels {
			row := w[i*k : (i+1)*k]
			by := min(1, radius/max(point.Norm(row), 1e-150)) // rows of zeros stay
			to := own[y*width:][:width]
			to[0] += share
			at := 1 + k
			for a, v := range row {
				x := float64(v) * by
				to[1+a] += x
				for c := range a + 1 {
					v := x * float64(row[c]) * by / radius
					if c < a {
						v *= math.Sqrt2
					}
					to[at] += v
					at++
				}
			}
		}
		if b.Unit == privacy.Client {
			var square float64 // in order, as kept runs have it
			for _, v := range own {
				square += v * v
			}
			floats.Scale(min(1, all*one/math.Sqrt(max(square, 1e-300))), own)
		}
		if b.Noise == privacy.Local {
			r := rng.New(t.in.Seed, t.in.Stream, "fedpft-dp/noise", m)
			floats.AddScaled(own, deviation, normal(r, len(own)))
		}
		floats.Add(sums, own)
	}
	if b.Noise != privacy.Local {
		r := rng.New(t.in.Seed, t.in.Stream, "fedpft-dp/noise")
		parts := math.Sqrt(float64(b.Parts(len(t.in.Clients)))) // independent, so variances add up
		floats.AddScaled(sums, deviation*parts, normal(r, len(sums)))
	}
	return t.drawGaussians(sums, share, width)
}

// privateRows maps feature rows to w, for heads on these coordinates. Heads are fitted to draws of
// w, and so must be applied to w.
type privateRows struct{ posterior.Private }

// Map returns w = [n, k] of feature rows.
func (p privateRows) Map(ctx context.Context, features []float32) ([]float32, error) {
	return p.Rows(ctx, features)
}

// drawGaussians draws, for each class, as many points as its noisy count says (at least one) from
// the Gaussian of its noisy sums: count times share, the sum of w, and the sum of w w'/R on and
// below the diagonal. With n the count, m the mean and S the second moment over n, the covariance
// is S - m m'. Noise can make its eigenvalues L negative: draws are m + Q max(L, 0)^1/2 z, z from
// N(0, I). A class that nobody holds is drawn once at least. Points have weight 1.
func (t *Task) drawGaussians(sums []float64, share float64, width int) (*point.Set, error) {
	k, radius := t.in.Private.K(), t.in.Private.Clip()
	var all []*point.Set
	for c := range t.c {
		own := sums[c*width:][:width]
		n := max(own[0]/share, 1)
		mean := make([]float64, k)
		for j, v := range own[1 : 1+k] {
			mean[j] = v / n
		}
		cov := mat.NewSymDense(k, nil)
		at := 1 + k
		for a := range k {
			for b := range a + 1 {
				v := own[at] * radius / n
				if b < a {
					v /= math.Sqrt2
				}
				cov.SetSym(a, b, v-mean[a]*mean[b])
				at++
			}
		}
		values, root, ok := moment.Eigen(cov)
		if !ok {
			return nil, fmt.Errorf("the covariance of class %d: its eigenvalues did "+
				"not converge", c)
		}
		root.Apply(func(_, j int, v float64) float64 {
			return v * math.Sqrt(max(values[j], 0))
		}, root)
		// Draws are the server's own and cost no privacy: each class has a stream.
		r := rng.New(t.in.Seed, t.in.Stream, "fedpft-dp/draw", c)
		drawn := point.New(int(math.Round(min(n, maxDrawn))), k, t.c)
		x := mat.NewVecDense(k, nil)
		for i := range drawn.N {
			x.MulVec(root, mat.NewVecDense(k, normal(r, k)))
			row := drawn.Row(i)
			for j := range k {
				row[j] = float32(mean[j] + x.AtVec(j))
			}
			row[k+c] = 1
		}
		all = append(all, drawn)
	}
	return point.Pool(all...)
}
