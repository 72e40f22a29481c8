// Package scale learns how much of the uncertainty of its own fit an open predictor's posterior
// samples have (sample.Refit), and how far the best temperatures of tasks lie apart, by leaving
// classes out: moments come from half of the corpus's classes, tasks from the other half.
package scale

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"

	"fmp/models/rng"
	"fmp/pipeline/internal/parallel"
	"fmp/pipeline/meta"
	"fmp/pipeline/metric"
	"fmp/pipeline/open"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
	"fmp/pipeline/sample"
	"fmp/pipeline/task"
)

// Config configures the learning of a scale.
type Config struct {
	// Corpus holds the features of the predictor's corpus.
	Corpus *task.Bank
	// Clients is the number of clients of a task.
	Clients, Threads int
	// Tasks is their number; default 24.
	Tasks int
	Seed  uint64
	// Level is that of the intervals whose ends are learned.
	Level float64
	// Progress, if not nil, is called after every task with their number.
	Progress func(done, total int)
}

// Tasks have 5 to 20 classes, and clients and points as those that the scalars learn from
// (meta.DrawOpen).
const (
	least, most = 5, 20
	batches     = 200 // of the joint score
	samples     = 32
)

// grid holds the scales that are tried: 0 leaves the fit's uncertainty out, 1 is the posterior of
// the fit.
var grid = []float64{0, 1. / 16, 1. / 8, 1. / 4, 1. / 2, 1, 2}

// Bounds on the deviation of log temperatures: fewer tasks than there are do not tell it apart from
// none.
const minDeviation, maxDeviation = 0.05, 0.5

// Learn returns the scale of least mean NLL plus joint NLL over tasks on classes left out, which
// training of the scalars minimises too: that of the parabola through the best value tried and its
// neighbours. The deviation is that of the log of the tasks' best temperatures from 0, the
// temperature of the scalars: the mean square less the mean sampling variance of the tasks' images.
func Learn(ctx context.Context, p *open.Predictor, c Config) (scale, deviation float64, err error) {
	tasks := c.tasks()
	losses, cooled := make([][]float64, tasks), make([][]sample.Cooled, tasks)
	err = c.each(ctx, "scale",
		func(ctx context.Context, i int, r *rand.Rand, alpha float64) (err error) {
			losses[i], cooled[i], err = c.losses(ctx, p, r, alpha)
			return err
		})
	if err != nil {
		return 0, 0, err
	}
	mean := make([]float64, len(grid))
	for _, row := range losses {
		for j, v := range row {
			mean[j] += v / float64(tasks)
		}
	}
	scale = best(grid, mean)
	return scale, spread(cooled, floats.NearestIdx(grid, scale)), nil
}

func (c *Config) tasks() int { return cmp.Or(c.Tasks, 24) }

// each does something for every task, each with its own stream.
func (c *Config) each(ctx context.Context, what string,
	do func(ctx context.Context, i int, r *rand.Rand, alpha float64) error) error {
	tasks := c.tasks()
	done := make(chan struct{}, tasks)
	return parallel.Each(ctx, max(1, c.Threads), tasks, func(ctx context.Context, i int) error {
		if err := do(ctx, i, rng.New(c.Seed, "open", what, i),
			meta.OpenAlphas[i%len(meta.OpenAlphas)]); err != nil {
			return fmt.Errorf("%s of the posterior, task %d: %w", what, i, err)
		}
		done <- struct{}{}
		if c.Progress != nil {
			c.Progress(len(done), tasks)
		}
		return nil
	})
}

// spread returns the deviation of the log temperatures of tasks from 0, at place k of the grid.
// Tasks whose images tell nothing of their temperature do not count.
func spread(tasks [][]sample.Cooled, k int) float64 {
	var square, n float64
	for _, row := range tasks {
		if t := row[k]; !math.IsInf(t.Variance, 0) {
			square, n = square+t.Log*t.Log-t.Variance, n+1
		}
	}
	return min(max(math.Sqrt(max(square, 0)/max(n, 1)), minDeviation), maxDeviation)
}

// best returns where the parabola through the least loss and its neighbours, in steps of the grid,
// is least; a value of the grid's ends is itself. The grid is 0 and a geometric series.
func best(grid, loss []float64) float64 {
	k := floats.MinIdx(loss)
	if k < 2 || k == len(grid)-1 {
		return grid[k]
	}
	up, down := loss[k+1]-loss[k], loss[k-1]-loss[k]
	return grid[k] * math.Pow(grid[k+1]/grid[k], (down-up)/(2*(up+down)))
}

// without leaves half of the corpus's classes out: it returns the predictor with the moments of the
// others, and the classes.
func (c *Config) without(p *open.Predictor, r *rand.Rand) (*open.Predictor, []int, error) {
	known, classes, err := meta.LeaveOut(c.Corpus, r, p.K())
	if err != nil {
		return nil, nil, err
	}
	known.Scalars = p.Scalars
	return known, classes, nil
}

// draw draws a task of some of the classes of a bank: target images held out or half of all, and as
// many more as there are, at most more.
func (c *Config) draw(bank *task.Bank, classes []int, r *rand.Rand, alpha float64,
	more int) (*task.Task, error) {
	left, err := bank.Choose(classes[:min(len(classes), least+r.IntN(most-least+1))])
	if err != nil {
		return nil, err
	}
	return meta.DrawOpen(left, r, c.Clients, []float64{alpha}, more)
}

// losses returns the loss of one task at each scale, and its temperature there.
func (c *Config) losses(ctx context.Context, p *open.Predictor, r *rand.Rand,
	alpha float64) ([]float64, []sample.Cooled, error) {
	known, classes, err := c.without(p, r)
	if err != nil {
		return nil, nil, err
	}
	drawn, err := c.draw(c.Corpus, classes, r, alpha, 0)
	if err != nil {
		return nil, nil, err
	}
	refit, seen, err := round(known, drawn.Clients)
	if err != nil {
		return nil, nil, err
	}
	features, labels := drawn.Target.Labelled()
	near := metric.NearBatches(r, features, c.Corpus.Dx, batches)
	rows, err := refit.Map(ctx, features)
	if err != nil {
		return nil, nil, err
	}
	latent := make([]float32, samples*refit.LatentSize())
	rng.Normal(r, latent)
	out, cooled := make([]float64, len(grid)), make([]sample.Cooled, len(grid))
	for j, scale := range grid {
		heads, err := refit.Posterior(ctx, seen, latent, samples, scale)
		if err != nil {
			return nil, nil, err
		}
		a, err := metric.Examine(ctx, heads, rows, labels, 1)
		if err != nil {
			return nil, nil, err
		}
		s, err := metric.Score(a.Mean, labels)
		if err != nil {
			return nil, nil, err
		}
		cooled[j] = sample.Temperature(heads, rows, labels, math.Inf(1))
		out[j] = s.NLL + metric.JointNLL(a.Likelihood, near)
	}
	return out, cooled, nil
}

// round returns the predictor that a round of the clients' points leads to, and their pooled class
// means.
func round(known *open.Predictor, clients []*point.Set) (*sample.Refit, *point.Set, error) {
	sets := make([]*point.Set, len(clients))
	for m, set := range clients {
		var err error
		if sets[m], err = known.Soften(set); err != nil {
			return nil, nil, err
		}
	}
	stats, err := known.Pool(sets)
	if err != nil {
		return nil, nil, err
	}
	refit, _, err := posterior.OpenRefit(known, stats)
	if err != nil {
		return nil, nil, err
	}
	seen, err := point.Pool(sets...)
	return refit, seen, err
}
