package scale

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"fmp/models"
	"fmp/models/rng"
	"fmp/pipeline/meta"
	"fmp/pipeline/open"
	"fmp/pipeline/point"
	"fmp/pipeline/sample"
	"fmp/pipeline/task"
)

// maxLimit is the number of images, at most, that stand for images without end.
const maxLimit = 8192

// minEnd and maxEnd bound ends that are learned.
const minEnd, maxEnd = 0.5, 8

// maxSlope and slopeStep are of the slopes that are tried: changes per doubling of the images a
// class.
const maxSlope, slopeStep = 0.5, 0.01

// Ends returns how far intervals reach, learned on tasks of classes that the extractor has not
// learned: those of a bank or, where it is nil, of the corpus's, half of them left out. Residuals
// are how far the limit, a fit to all images, lies from the middle of an interval
// (sample.Refit.Residuals); their outer twentieths lie beyond the ends, which are lines in the
// logarithm of the images a class (Koenker and Bassett 1978): the fewer there are, the farther off
// is the limit. An extractor tells classes apart that it has learned, so that their limit is too
// near: without a bank intervals do not get narrower.
func Ends(ctx context.Context, p *open.Predictor, unlearned *task.Bank,
	c Config) (models.SizedEnds, error) {
	tasks := make([]residuals, c.tasks())
	err := c.each(ctx, "intervals",
		func(ctx context.Context, i int, r *rand.Rand, alpha float64) (err error) {
			tasks[i], err = c.residuals(ctx, p, unlearned, r, alpha)
			return err
		})
	if err != nil {
		return models.SizedEnds{}, err
	}
	few, many := math.Log2(models.FewImages), math.Log2(models.ManyImages)
	bound := func(v float64) float32 {
		if unlearned == nil {
			v = max(v, 1)
		}
		return float32(min(max(v, minEnd), maxEnd))
	}
	at := func(down, up line, size float64) models.Ends {
		return models.Ends{Down: bound(down.at(size)), Up: bound(up.at(size))}
	}
	tail := (1 - c.Level) / 2
	down, up := outer(tasks, -1, tail), outer(tasks, 1, tail)
	return models.SizedEnds{Few: at(down, up, few), Many: at(down, up, many)}, nil
}

// residuals are those of a task, with the log2 of its images a class.
type residuals struct {
	of   []float64
	size float64
}

type line struct{ level, slope float64 }

func (l line) at(size float64) float64 { return l.level + l.slope*size }

// outer returns the line beyond which a share of the residuals lie, times sign, of least quantile
// loss: of the residuals' distances u above the line it is the sum of
//
//	max((1 - tail) u, -tail u)
//
// Slopes are tried one by one. The level that a slope asks for is a quantile, so that n residuals
// cost O(n log n) a slope.
func outer(tasks []residuals, sign, tail float64) (best line) {
	least := math.Inf(1)
	var off []float64
	for slope := -maxSlope; slope < maxSlope+slopeStep/2; slope += slopeStep {
		off = off[:0]
		for _, t := range tasks {
			for _, v := range t.of {
				off = append(off, sign*v-slope*t.size)
			}
		}
		slices.Sort(off)
		n := len(off)
		// It is the finite-sample quantile (Vovk et al. 2005).
		level := off[n-max(int(tail*float64(n+1)), 1)]
		loss := 0.0
		for _, v := range off {
			loss += max((1-tail)*(v-level), tail*(level-v))
		}
		if loss < least {
			least, best = loss, line{level, slope}
		}
	}
	return best
}

// residuals returns those of one task.
func (c *Config) residuals(ctx context.Context, p *open.Predictor, unlearned *task.Bank,
	r *rand.Rand, alpha float64) (out residuals, err error) {
	known, bank := p, unlearned
	var classes []int
	if bank != nil {
		classes = r.Perm(bank.C)
	} else {
		bank = c.Corpus
		if known, classes, err = c.without(p, r); err != nil {
			return out, err
		}
	}
	drawn, err := c.draw(bank, classes, r, alpha, maxLimit)
	if err != nil {
		return out, err
	}
	refit, seen, err := round(known, drawn.Clients)
	if err != nil {
		return out, err
	}
	refit.Scale = p.Scale
	latent := make([]float32, samples*refit.LatentSize())
	rng.Normal(r, latent)
	heads, err := refit.Heads(ctx, seen, latent, samples)
	if err != nil {
		return out, err
	}
	features, labels := drawn.Target.Labelled()
	held := min(meta.OpenTarget, (len(labels)+len(drawn.Clients)*drawn.Clients[0].N)/2)
	all, err := point.Pool(drawn.Clients...)
	if err == nil && held < len(labels) {
		var more *point.Set
		if more, err = point.FromLabelled(features[held*bank.Dx:], bank.Dx, labels[held:],
			drawn.Target.C); err == nil {
			all, err = point.Pool(all, more)
		}
	}
	if err != nil {
		return out, err
	}
	if all, err = known.Softened(all); err != nil {
		return out, err
	}
	limit, err := refit.IntervalLimit(ctx, all)
	if err != nil {
		return out, err
	}
	present, images := 0.0, 0.0
	for _, n := range open.Means(seen).Mass {
		present, images = present+min(n, 1), images+n
	}
	out.size = math.Log2(images / present)
	out.of, err = refit.Residuals(ctx,
		sample.Drawn{Seen: seen, Heads: heads, Latent: latent, Uniform: make([]float32, samples)},
		limit, features[:held*bank.Dx], c.Level)
	return out, err
}
