package posterior

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"

	"fmp/pipeline/honesty"
	"fmp/pipeline/internal/memo"
	"fmp/pipeline/point"
	"fmp/pipeline/sample"
)

// Calibration holds labelled images that took no part in class means. A round in open scope chooses
// two numbers by them: the temperature, and the penalty of the fits of its heads (sample.Refit),
// which says how far a head may lie from the form that the corpus leads to. Both are those of the
// corpus where there are no points, and where its classes are the round's (closed scope).
//
// The points are classified by samples that have not seen them. With T the temperature relative to
// the corpus's and P/60 = 10^(-j/2) the penalty relative to its own, the choice is that of the
// largest
//
//	sum_i log p(y_i | x_i, T, P) - log(1 + (log T / s)²) - j
//
// The second term is a Cauchy prior of log T, of the scale s by which tasks of the corpus's classes
// differ that are left out of it: nearly all of its mass is near, and points of another source than
// the corpus's outweigh its tails (Gelman et al. 2008, arXiv 0901.4011). The third is the price of
// a free parameter in Akaike's criterion (1974), for each step.
type Calibration struct {
	Features []float32 // n x dx, row-major, as the extractor computes them
	Labels   []int
	Client   []int // the number of each one's client, from 0
}

const (
	// maxChoosing bounds the points that a choice is made by, fewSamples the samples that a penalty
	// is judged by.
	maxChoosing, fewSamples = 1000, 20
	// penaltySteps is the number of penalties that are tried, the corpus's own times penaltyStep to
	// the power 0 to 3: down to 10^(-3/2) of it.
	penaltySteps = 4
)

// Diagnostics of rounds with calibration points: their number, and temperature and penalty relative
// to the corpus's.
const (
	DiagnosticPoints      = "calibration points"
	DiagnosticTemperature = "temperature"
	DiagnosticPenalty     = "penalty"
)

var penaltyStep = math.Sqrt(0.1)

// check returns an error for points that are not those of a round.
func (c *Calibration) check(classes, clients int) error {
	n := len(c.Labels)
	if n == 0 || len(c.Client) != n || len(c.Features) == 0 || len(c.Features)%n != 0 {
		return fmt.Errorf("posterior: %d numbers, %d labels and %d clients of calibration "+
			"points; want as many of each, and at least one", len(c.Features), n, len(c.Client))
	}
	for i, y := range c.Labels {
		if y < 0 || y >= classes || c.Client[i] < 0 || c.Client[i] >= clients {
			return fmt.Errorf("posterior: calibration point %d is of class %d of %d and client %d "+
				"of %d", i, y, classes, c.Client[i], clients)
		}
	}
	return nil
}

// Calibrate gives a round its calibration points; nothing may have been sampled yet.
func (t *FMP) Calibrate(c *Calibration) error {
	t.in.Calibration = c
	return c.check(t.c, max(len(t.in.ClassMeans), len(t.in.Soft)))
}

// trusted returns the points of clients that are more likely honest than not, maxChoosing at most,
// evenly apart. Of a client as many count as the lower median of those that send any (honesty.Cap),
// as nobody can check how many images are behind them.
func (c *Calibration) trusted(j *Judgement) *Calibration {
	dx := len(c.Features) / len(c.Labels)
	out := &Calibration{}
	sent := map[int]float64{}
	for _, m := range c.Client {
		sent[m]++
	}
	limit, taken := honesty.Cap(slices.Collect(maps.Values(sent))), map[int]float64{}
	step := max(1, float64(len(c.Labels))/maxChoosing)
	for at := 0.0; int(at) < len(c.Labels); at += step {
		i := int(at)
		m := c.Client[i]
		if taken[m]++; taken[m] <= limit && (j == nil || j.Honest[m] >= 0.5) {
			out.Features = append(out.Features, c.Features[i*dx:(i+1)*dx]...)
			out.Labels, out.Client = append(out.Labels, c.Labels[i]), append(out.Client, m)
		}
	}
	return out
}

// chosen is a form whose penalty calibration points chose, with these points on the coordinates of
// its heads.
type chosen struct {
	form   *Form
	rows   []float32
	labels []int
	step   int
	spread float64 // s
}

// calibrated returns the form with the penalty that the calibration points choose. seen are the
// pooled class means of the clients that are more likely honest than not.
func (t *FMP) calibrated(ctx context.Context, f *Form, j *Judgement,
	seen *point.Set) (*chosen, error) {
	refit, ok := f.Conjugate.(*sample.Refit)
	if !ok || t.in.Calibration == nil || t.in.NoLatent {
		return &chosen{form: f}, nil
	}
	return memo.Once(t.memo, "calibrated", func() (*chosen, error) {
		points := t.in.Calibration.trusted(j)
		if len(points.Labels) == 0 {
			return &chosen{form: f}, nil
		}
		rows, err := refit.Map(ctx, points.Features)
		if err != nil {
			return nil, fmt.Errorf("calibration points: %w", err)
		}
		out := &chosen{rows: rows, labels: points.Labels, spread: t.in.Open.TemperatureSpread()}
		few, best, penalty := min(fewSamples, t.in.Samples), math.Inf(-1), refit.Penalty
		for step := range penaltySteps {
			tried := &sample.Refit{Conjugate: refit.Conjugate, Penalty: penalty, Doubt: refit.Doubt,
				Scale: refit.Scale, Ends: refit.Ends}
			heads, err := tried.Heads(ctx, seen, t.Latents(f)[:few*f.LatentSize()], few)
			if err != nil {
				return nil, err
			}
			if value := sample.Temperature(heads, rows, points.Labels, out.spread).Value -
				float64(step); value > best {
				form := *f
				form.Conjugate = tried
				best, out.form, out.step = value, &form, step
			}
			penalty *= penaltyStep
		}
		if out.form == nil {
			return nil, errors.New("calibration points have no likelihood; check that their " +
				"features are finite")
		}
		return out, nil
	})
}

// diagnostics returns those of the form, and the choice.
func (c *chosen) diagnostics(temperature float64) map[string]float64 {
	if len(c.labels) == 0 {
		return c.form.diagnostics
	}
	out := maps.Clone(c.form.diagnostics)
	out[DiagnosticPoints], out[DiagnosticTemperature] = float64(len(c.labels)), temperature
	out[DiagnosticPenalty] = math.Pow(penaltyStep, float64(c.step))
	return out
}

// temper divides heads by the temperature that the calibration points choose for them, and returns
// it; 1 where there are none.
func (c *chosen) temper(e Ensemble) (Ensemble, float64) {
	if len(c.labels) == 0 {
		return e, 1
	}
	temperature := math.Exp(sample.Temperature(e, c.rows, c.labels, c.spread).Log)
	out := make(Ensemble, len(e))
	for s, h := range e {
		out[s] = Theta{D: h.D, C: h.C, W: make([]float64, len(h.W))}
		floats.AddScaled(out[s].W, 1/temperature, h.W)
	}
	return out, temperature
}
