// Package discriminant computes posteriors of linear discriminants from clients' moments, without
// an image of the server's own.
//
// Rows x of class c are N(mu_c, W) with mu_c ~ N(m0, tau W). With n_c images, means x̄_c, and the
// scatter S of all clients within their classes, of nu degrees of freedom:
//
//	W   = (nu0 t I + S)/(nu0 + nu),   t = tr S/(nu k),   nu0 = 2 k
//	m_c = m0 + n_c/(n_c + n0) (x̄_c - m0),   n0 = 1.5 noise/tau,   noise = tr(W^-1 S/nu)/k
//	a_c = W^-1 (m_c - m0),   logit_c = ((x - m0)'a_c - (m_c - m0)'a_c/2) / T
//	T   = max(kappa sqrt(Q b), b),   Q = mean over held classes of (m_c - m0)'a_c
//	b   = (sum |(x̄_mc - x̄_c) sqrt(n_mc) . a|^2 / tr a'Wa + 4) / (dof + 4)
//
// W has an inverse-Wishart prior about a multiple of I. tau, the variance of class means in units
// of W, is by weighted moments (pooled.shrink). The sum in b is over clients' own class means of
// classes that two clients hold, along the columns of a, [k, C], centred over classes. dof is the
// number of these means less that of these classes.
//
// b measures the variance that W, shrunk toward the identity, misses along the head's directions,
// from numbers that are no part of W. Gaussian rows of one covariance have T = b. Images have
// heavier tails the further their classes lie apart, and T grows as the square root of the classes'
// separation Q/b. kappa belongs to the extractor (meta.Kappa); its prior is lognormal, and the
// calibration points correct it and are added to the moments then. A sample draws class means
// (their variance tempered) and kappa. Strength, 1.5, the tempering, the square root and the weight
// of a calibration point were chosen on classes of CIFAR-100 (docs/notes/moments.md).
package discriminant

import (
	"context"
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/mat"

	"fmp/pipeline/erm"
	"fmp/pipeline/internal/moment"
	"fmp/pipeline/moments"
	"fmp/pipeline/point"
)

const (
	// strength is nu0 in units of k. 1,500, 2,500 and 4,000 degrees of freedom of 1,280 features
	// differ by .005 nats at most (docs/notes/moments.md).
	strength = 2.0
	// caution is a factor on n0: class means err more along the head's directions than on average.
	// It lowers NLL by .002 to .010 (docs/notes/moments.md).
	caution = 1.5
	// Tempering multiplies the variance of the class means that samples draw. At 1 NLL is up to
	// .006 higher at 20 images a client, and within .001 at 50. Intervals undo it.
	Tempering = 0.3
	// pointWeight is that of a calibration point as evidence on kappa: those of one client are
	// alike, and clients' shares of the classes are not those of new images.
	pointWeight = 0.5
	// rounding is how far features of one image are apart on two engines, as a share of their norm.
	rounding = 1e-6
	// maxWeights bounds the numbers of all heads together, and so memory: 128 MiB.
	maxWeights = 16 << 20
)

// Kappa is the prior of kappa: log kappa ~ N(log Median, Deviation^2).
type Kappa struct{ Median, Deviation float64 }

// Unknown is the prior for an extractor of which nothing is known: the middle of 0.70 (a network of
// ImageNet) to 1.07 (three small networks).
var Unknown = Kappa{0.85, 0.25}

// Client is one client's upload: class means with counts as weights, and the scatter and points
// beside them.
type Client struct {
	Means  *point.Set
	Within *moments.Within
	// Curve is that of the client's own images; nil where it has too few.
	Curve *moments.ClientCurve
	// Share is the share of its images that count, above 0 and at most 1; 0 stands for 1.
	Share float64
	// Shift is subtracted from the client's rows, [k], as another camera adds it to all of them;
	// nil for nothing.
	Shift []float64
}

// Options of a posterior.
type Options struct {
	Kappa   Kappa // zero: Unknown
	Samples int   // heads; fewer where they would take much memory
	// Corpus holds moments of a server's own images, of any classes; nil if there are none. It is
	// believed where the calibration points say so.
	Corpus *Client
	Seed   uint64
	Stream string
	// Effects is the covariance, [k, k], of the shifts of clients whose images the heads are for;
	// nil where these have none. Kappa is then told by calibration points with their clients'
	// shifts.
	Effects *mat.SymDense
	// Drawn is told how many of the heads are drawn; nil: nobody asks.
	Drawn func(done, all int)
}

// Posterior is the result.
type Posterior struct {
	// Heads are linear in rows, [k+1, C] each, the biases last.
	Heads []erm.Theta
	// Kappa is the mean of log kappa's posterior, exponentiated, and Deviation its standard
	// deviation. Points counts the calibration points that tell it; of none it is the prior.
	Kappa  Kappa
	Points int
	// Spread is b, Separation Q/b, and Pseudo n0.
	Spread, Separation, Pseudo float64
	// Corpus is the log evidence of the corpus, its prior odds included; below 0 it took no part.
	// It is 0 where there is none, and where nothing weighs it, for which Unread is the reason.
	Corpus float64
	Unread string
	Means  *mat.Dense // m_c, [C, k]
}

// MaxSamples returns the largest number of samples of heads of k features and c classes: together
// they take 128 MiB at most, but for two.
func MaxSamples(k, c int) int { return max(2, maxWeights/((k+1)*c)) }

// Compute computes the posterior from the uploads of at least one client.
func Compute(ctx context.Context, clients []Client, o Options) (*Posterior, error) {
	if o.Kappa == (Kappa{}) {
		o.Kappa = Unknown
	}
	if !(o.Kappa.Median > 0) || !(o.Kappa.Deviation > 0) ||
		math.IsInf(o.Kappa.Median+o.Kappa.Deviation, 0) || o.Samples < 1 {
		return nil,
			fmt.Errorf(
				"discriminant: kappa %v with deviation %v and %d samples; "+
					"want finite numbers above 0", o.Kappa.Median, o.Kappa.Deviation, o.Samples)
	}
	p, err := pool(clients)
	if err != nil {
		return nil, err
	}
	p.effects = o.Effects
	o.Samples = min(o.Samples, MaxSamples(p.k, p.c))
	kappas := []float64{o.Kappa.Median}
	weights := []float64{1}
	var evidence float64
	points := 0
	if o.Corpus != nil {
		p.unread = "no client that counts has calibration points"
	}
	if len(p.labels) > 0 && p.total() > 0 {
		rows := p.rows
		points = len(p.labels)
		if o.Effects != nil {
			p.rows = p.seen(clients)
		}
		kappas, weights, evidence, err = p.choose(o)
		if p.rows = rows; err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p.addCalibration()
	h, err := p.head(p.rows)
	if err != nil {
		return nil, err
	}
	out := &Posterior{Spread: h.spread, Separation: h.separation, Pseudo: h.pseudo,
		Corpus: evidence,
		Unread: p.unread, Means: mat.DenseCopyOf(h.away), Points: points}
	for y := range p.c {
		floats.Add(out.Means.RawRowView(y), h.origin)
	}
	for i, w := range weights {
		l := math.Log(kappas[i])
		out.Kappa.Median += w * l
		out.Kappa.Deviation += w * l * l
	}
	out.Kappa.Deviation = math.Sqrt(max(out.Kappa.Deviation-out.Kappa.Median*out.Kappa.Median, 0))
	out.Kappa.Median = math.Exp(out.Kappa.Median)
	if points == 0 {
		out.Kappa = o.Kappa
	}
	out.Heads, err = p.draw(ctx, h, quantiles(kappas, weights, o), o)
	return out, err
}

// LogLikelihood returns the log-likelihood of labelled rows, which no client holds, at each value
// of kappa.
func LogLikelihood(clients []Client, rows []float32, labels []int, kappas []float64,
	o Options) ([]float64, error) {
	p, err := pool(clients)
	if err != nil {
		return nil, err
	}
	if len(labels) == 0 || len(rows) != len(labels)*p.k {
		return nil, fmt.Errorf("discriminant: %d numbers for %d labels of rows of %d", len(rows),
			len(labels), p.k)
	}
	p.addCalibration()
	x := moment.Rows(rows, p.k)
	h, err := p.head(x)
	if err != nil {
		return nil, err
	}
	return p.logLikelihood(h, x, labels, kappas, o)
}

// Whitening returns the map of differences of rows, [k, k], to coordinates in which W is I, and the
// map back. A scatter that is no covariance takes no part in W.
func Whitening(clients []Client) (white, back *mat.Dense, err error) {
	p, _, _, err := properPool(clients)
	if err != nil {
		return nil, nil, err
	}
	_, chol, _, err := p.within()
	if err != nil {
		return nil, nil, err
	}
	var upper, inverse mat.TriDense
	chol.UTo(&upper) // W = U'U
	if err := inverse.InverseTri(&upper); err != nil {
		return nil, nil, fmt.Errorf("discriminant: covariance within classes: %w", err)
	}
	return mat.DenseCopyOf(&inverse), mat.DenseCopyOf(&upper), nil
}

// ErrOneClass is wrapped by the error for uploads that hold one class alone.
var ErrOneClass = errors.New("all images are of one class; a classifier needs two")
