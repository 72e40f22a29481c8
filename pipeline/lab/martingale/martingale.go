// Package martingale measures predictive resampling: images or points are drawn from a method's own
// prediction, one batch after the other, and the head is made again after each (Fong, Holmes and
// Walker 2023). Where the prediction of a class is a martingale, its mean over paths stays at its
// start, and the paths' ends are samples of the posterior.
package martingale

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"

	"fmp/models/rng"
	"fmp/pipeline/candidate"
	"fmp/pipeline/erm"
	"fmp/pipeline/internal/parallel"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/lab/rival"
	"fmp/pipeline/metric"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
)

// Options are the settings of a measurement. Paths are two at least, as a standard error over one
// does not exist.
type Options struct {
	experiment.Rounds         // Samples is not read: a method's own samples are as many as Paths
	Paths             int     // 2 or more
	Batches, Batch    int     // batches of a path, and draws of a batch
	Test              int     // test images at which probabilities are followed
	L2                float64 // penalty of the fits to points
}

// Names of rows.
const (
	// They are the methods' names in the table of methods.
	Points = "FMP-ISAB"
	One    = "FMP-one"
)

// Row holds the paths of one method, means over repeats. A martingale has a Drift of 0 at every
// step, within two or three of its DriftError. The Spread of the last step should then approach the
// row's own Spread as Drawn grows.
type Row struct {
	Method string `json:"method"`
	Steps  []Step `json:"steps"`
	// Spread is the standard deviation over the method's own samples of the followed probability, a
	// mean over test images.
	Spread float64 `json:"spread"`
}

// Step is the state of paths after a batch. The probability that is followed is that of the class
// which the start takes for the most probable.
type Step struct {
	Seen        float64 `json:"seen"`        // images or points before the batch
	Drawn       float64 `json:"drawn"`       // since the start
	Probability float64 `json:"probability"` // a mean over paths and test images
	// Drift is the change of Probability by the batch, and DriftError its standard error over
	// paths.
	Drift      float64 `json:"drift"`
	DriftError float64 `json:"drift_error"`
	// Moved is the distance of an image's mean over paths from its start, its root mean square over
	// images, less the noise of paths. It is 0 where the noise of paths explains the distance or
	// more.
	Moved  float64 `json:"moved"`
	Spread float64 `json:"spread"` // standard deviation over paths, a mean over test images
}

// start is the beginning of paths: the heads after each batch of one path, and the method's own
// samples.
type start struct {
	seen float64 // images or points of all clients
	// path draws one path, of Batches + 1 heads, the first before any batch. Several run at a time,
	// each with a generator of its own. A path may take r as its own, and must not change the
	// round's statistics, which paths share.
	path    func(ctx context.Context, r *rand.Rand) ([]erm.Theta, error)
	samples posterior.Ensemble
}

// Run follows the paths of FMP-ISAB, whose points the predictor draws, and of FMP-one without a
// corpus, whose images the discriminant of most weight draws. Both methods have the same clients in
// a repeat. The first error ends the run without rows. Rows are in the order FMP-ISAB, FMP-one.
func Run(ctx context.Context, p *experiment.Prepared, o Options) ([]Row, error) {
	if p.Tools.Drawer == nil || p.Tools.Compressor == nil {
		return nil, errors.New("martingale: no predictor or embedding for this data set; fmp " +
			"train makes them")
	}
	rows := []Row{{Method: Points}, {Method: One}}
	for i := range rows {
		rows[i].Steps = make([]Step, o.Batches+1)
	}
	for repeat := range o.Repeats {
		drawn, err := p.Data.Clients.Partition(rng.New(o.Seed, "martingale", repeat), o.Clients,
			o.Points, o.Alpha)
		if err != nil {
			return nil, err
		}
		clients := p.Data.Clients.Clients(drawn)
		test := p.Data.Test[:min(o.Test, len(p.Data.TestLabels))*p.Data.Clients.Dx]
		for i, begin := range []func(context.Context, *experiment.Prepared, []*point.Set,
			int) (*start, error){o.points, o.one} {
			s, err := begin(ctx, p, clients, repeat)
			if err == nil {
				err = o.follow(ctx, &rows[i], s, test, repeat)
			}
			if err != nil {
				return nil, fmt.Errorf("martingale: repeat %d, %s: %w", repeat, rows[i].Method, err)
			}
			o.Report("paths", 2*repeat+i+1, 2*o.Repeats)
		}
	}
	return rows, nil
}

// points starts from the clients' compressed points. A batch is drawn given all points before it,
// and the head is fitted again to all of them. A path of T batches costs T + 1 fits. A path is
// sequential, and paths run beside each other: a fit has one thread for that reason.
func (o Options) points(ctx context.Context, p *experiment.Prepared, clients []*point.Set,
	repeat int) (*start, error) {
	uploads, err := p.Tools.Compressor.Compress(ctx, clients)
	if err != nil {
		return nil, err
	}
	seen, err := point.Pool(uploads...)
	if err != nil {
		return nil, err
	}
	fit := func(set *point.Set) (erm.Theta, error) {
		problem, err := erm.FromSets(o.L2, set)
		if err != nil {
			return erm.Theta{}, err
		}
		s, err := erm.Solve(ctx, problem, erm.Options{Threads: 1})
		if err != nil {
			return erm.Theta{}, err
		}
		return s.Theta, nil
	}
	// The method's own samples draw as many points as a whole path, all at once. Their spread is
	// that of a single large batch, to which the paths' spread is compared.
	m := &posterior.Martingale{Drawer: p.Tools.Drawer, Samples: o.Paths,
		Fresh: o.Batches * o.Batch, Seed: o.Seed,
		Stream: fmt.Sprint("martingale/", repeat), Threads: o.Threads}
	e, err := m.Posterior(ctx, "samples", seen, posterior.Fit{L2: o.L2, Tolerance: 1e-9},
		posterior.SampleRange{}, "samples")
	if err != nil {
		return nil, err
	}
	path := func(ctx context.Context, r *rand.Rand) ([]erm.Theta, error) {
		set := seen
		var heads []erm.Theta
		for batch := 0; ; batch++ {
			head, err := fit(set)
			if err != nil {
				return nil, err
			}
			// After the last batch no further point is drawn.
			if heads = append(heads, head); batch == o.Batches {
				return heads, nil
			}
			noise, err := p.Tools.Drawer.Noise(r, 1, o.Batch)
			if err != nil {
				return nil, err
			}
			drawn, err := p.Tools.Drawer.Draw(ctx, set, noise, 1)
			if err != nil {
				return nil, err
			}
			if set, err = point.Pool(set, drawn[0]); err != nil {
				return nil, err
			}
		}
	}
	return &start{seen.Mass(), path, e}, nil
}

// one starts from the clients' statistics, without a corpus. Forward draws the paths of the
// component of most weight. Forward copies the component's statistics, and a regression, which has
// no prediction of images, makes it fail.
func (o Options) one(_ context.Context, _ *experiment.Prepared, clients []*point.Set,
	repeat int) (*start, error) {
	r, _, err := rival.RoundOf(clients, fmt.Sprint("martingale/", repeat))
	if err != nil {
		return nil, err
	}
	of := candidate.Options{Seed: o.Seed, Stream: fmt.Sprint("martingale/", repeat),
		Threads: o.Threads}
	m, err := r.Posterior(of)
	if err != nil {
		return nil, err
	}
	path := func(_ context.Context, r *rand.Rand) ([]erm.Theta, error) {
		return m.Components[0].Forward(o.Batches, o.Batch, r)
	}
	return &start{float64(o.Clients * o.Points), path, m.Ensemble(o.Paths, of)}, nil
}

// follow adds the paths' probabilities at the test features, with a share of 1/Repeats. All paths
// begin at one head, whose most probable class is followed at each image. It predicts the test
// images Paths (Batches + 1) times. The generator of path i is named by method, repeat and i:
// figures do not depend on the threads. It keeps Paths (Batches + 1) heads in memory.
func (o Options) follow(ctx context.Context, row *Row, s *start, test []float32, repeat int) error {
	paths := make([][]erm.Theta, o.Paths)
	if err := parallel.Each(ctx, max(o.Threads, 1), len(paths),
		func(ctx context.Context, i int) (err error) {
			paths[i], err = s.path(ctx, rng.New(o.Seed, "martingale", row.Method, repeat, i))
			return err
		}); err != nil {
		return err
	}
	first, err := metric.Predict(ctx, paths[0][:1], test, o.Threads)
	if err != nil {
		return err
	}
	top := make([]int, first.N)
	for i := range top {
		top[i] = floats.MaxIdx(first.Row(i))
	}
	followed := func(head erm.Theta) ([]float64, error) {
		p, err := metric.Predict(ctx, []erm.Theta{head}, test, o.Threads)
		if err != nil {
			return nil, err
		}
		out := make([]float64, p.N)
		for i, c := range top {
			out[i] = p.Row(i)[c]
		}
		return out, nil
	}
	share := 1 / float64(o.Repeats)
	begin, before := make([][]float64, o.Paths), make([][]float64, o.Paths)
	for t := range row.Steps {
		now := make([][]float64, o.Paths)
		for i := range now {
			if now[i], err = followed(paths[i][t]); err != nil {
				return err
			}
		}
		if t == 0 {
			begin, before = now, now
		}
		row.Steps[t].add(now, before, begin, share)
		// Step t is after batch t, and before that batch t - 1 of them were drawn.
		row.Steps[t].Seen += share * (s.seen + float64(max(t-1, 0)*o.Batch))
		row.Steps[t].Drawn = float64(t * o.Batch)
		before = now
	}
	own := make([][]float64, len(s.samples))
	for i := range own {
		if own[i], err = followed(s.samples[i]); err != nil {
			return err
		}
	}
	_, deviation := columns(own)
	row.Spread += share * stat.Mean(deviation, nil)
	return nil
}

// add adds the state of paths, [paths][images], beside that before the batch and at the start. With
// n paths of deviation d the mean over them has a variance of d^2/n. Moved has the square of its
// distance to the start less that. Errors of repeats are independent: their squares add up. At the
// first step all three are one, so that drift and distance are 0.
func (s *Step) add(now, before, begin [][]float64, share float64) {
	n := float64(len(now))
	at, deviation := columns(now)
	from, _ := columns(begin)
	s.Probability += share * stat.Mean(at, nil)
	s.Spread += share * stat.Mean(deviation, nil)
	changes, moved := make([]float64, len(now)), 0.0
	for i := range now {
		// Changes are paired by path, which takes the spread between paths out of the error.
		changes[i] = stat.Mean(now[i], nil) - stat.Mean(before[i], nil)
	}
	drift, apart := stat.MeanStdDev(changes, nil)
	s.Drift += share * drift
	s.DriftError = math.Hypot(s.DriftError, share*stat.StdErr(apart, n))
	for i := range at {
		moved += ((at[i]-from[i])*(at[i]-from[i]) - deviation[i]*deviation[i]/n) / float64(len(at))
	}
	s.Moved += share * math.Sqrt(max(moved, 0))
}

// columns returns the mean and the standard deviation, of denominator n - 1, of each column. rows
// are [paths][images], of which there are two at least: of one the deviation is NaN.
func columns(rows [][]float64) (average, deviation []float64) {
	column := make([]float64, len(rows))
	for i := range rows[0] {
		for k, r := range rows {
			column[k] = r[i]
		}
		mean, apart := stat.MeanStdDev(column, nil)
		average, deviation = append(average, mean), append(deviation, apart)
	}
	return average, deviation
}
