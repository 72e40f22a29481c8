package experiment

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"fmp/models/rng"
	"fmp/pipeline/discriminant"
	"fmp/pipeline/lab/internal/processor"
	"fmp/pipeline/lab/rival"
	"fmp/pipeline/lab/score"
	"fmp/pipeline/metric"
	"fmp/pipeline/moments"
	"fmp/pipeline/open"
	"fmp/pipeline/point"
	"fmp/pipeline/posterior"
	"fmp/pipeline/task"
)

// Data is the input of a run: standardised feature rows of the parts of one data set. It is
// read-only, and may be shared by concurrent runs.
type Data struct {
	// Clients is the part from which new tasks' clients draw; Corpus the meta-training corpus,
	// which only the tuned protocol reads, nil where there is none.
	Clients, Corpus *task.Bank
	// Tuning holds the classes of the setting tuning.classes; nil without it.
	Tuning *task.Bank
	// Test holds len(TestLabels) rows of features, used only for the reported figures.
	Test       []float32
	TestLabels []int
	// Shifts are the features of other and corrupted images that the settings ask for.
	Shifts []score.Shift
}

// Compressor makes clients' uploads (fmp/pipeline/compress). Compress returns one set for each
// client, in their order. It changes none of the clients' sets.
type Compressor interface {
	Compress(ctx context.Context, clients []*point.Set) ([]*point.Set, error)
}

// ConjugateModel is the conjugate predictor of server and clients (fmp/pipeline/sample).
type ConjugateModel interface {
	posterior.Conjugate
	Compressor
}

// Tools are the models of a run in their engine. They are safe for concurrent use, and their
// figures do not depend on the number of goroutines.
type Tools struct {
	Compressor Compressor
	Drawer     posterior.Drawer
	// Conjugate is nil where there is no conjugate predictor.
	Conjugate ConjugateModel
	// Open is nil where there is no open predictor.
	Open *open.Predictor
	// Embedded is how features are embedded where clients send moments: where there is neither; nil
	// otherwise.
	Embedded *posterior.Embedded
	// Calibration is the number of calibration points that each of these sends.
	Calibration int
	// Private is nil where the settings ask for no private round.
	Private posterior.Private
	// Shared, if not nil, holds the resources that the run shares with concurrent ones.
	Shared *Shared

	// class means of every row of corpus and clients' part, as Conjugate reads them
	all   *point.Set
	soft  *point.Set    // the rows themselves as Open reads them
	known *rival.Corpus // moments of Data.Corpus, for the methods of the run
}

// Progress is called with the progress of a stage, possibly from several goroutines.
type Progress func(Step)

// Cells returns the cells of a run in the order of its results: partition, repeat, protocol,
// method.
func Cells(c *Config) ([]Cell, error) {
	methods, err := c.methods()
	if err != nil {
		return nil, err
	}
	names := make([]string, len(methods))
	for i, m := range methods {
		names[i] = m.Info().Name
	}
	return c.cellsOf(names), nil
}

// cellsOf returns the cells of methods, in that order. The order decides that of files and tables,
// and not that of the work.
func (c *Config) cellsOf(methods []string) []Cell {
	var out []Cell
	for _, p := range c.Partitions() {
		for r := range c.Seeds {
			for _, protocol := range c.Protocols() {
				for _, m := range methods {
					out = append(out, Cell{p.Name(), r, protocol, m})
				}
			}
		}
	}
	return out
}

// lacking returns the cells without a record, of the methods that run.json and the settings name
// and those of the records. Where neither names any, an earlier version had fewer methods. ran may
// be nil. A name in the settings that no method has is passed over, as of an earlier version.
func (c *Config) lacking(ran []string, rs []Record) []Cell {
	methods, has := slices.Clone(ran), map[Cell]bool{}
	add := func(name string) {
		if !slices.Contains(methods, name) {
			methods = append(methods, name)
		}
	}
	for _, name := range c.Methods {
		if m, err := rival.Lookup(name); err == nil {
			add(m.Info().Name)
		}
	}
	for _, r := range rs {
		has[r.Cell] = true
		add(r.Method)
	}
	return slices.DeleteFunc(c.cellsOf(methods), func(at Cell) bool { return has[at] })
}

// methods returns the requested methods. If all are requested, those that lack something are left
// out; if some are named, that is an error. Named methods are in the order of the settings, and all
// of them in that of the registry.
func (c *Config) methods() ([]rival.Method, error) {
	names := c.Methods
	if len(names) == 0 {
		names = rival.Names()
	}
	var out []rival.Method
	for _, name := range names {
		m, err := rival.Lookup(name)
		if err != nil {
			return nil, fmt.Errorf("setting methods: %w", err)
		}
		if lacks := c.lacks(m.Info()); lacks == "" {
			out = append(out, m)
		} else if len(c.Methods) > 0 {
			return nil, fmt.Errorf("setting methods: %s %s, or leave the method out",
				m.Info().Name, lacks)
		}
	}
	return out, nil
}

// lacks returns why a run with these settings cannot have a method; "" where it can. It goes by
// settings alone: a predictor that is missing shows only once models are opened.
func (c *Config) lacks(i rival.Info) string {
	switch {
	case i.NeedsCorpus && c.Dataset.Splits.Corpus == 0:
		return "needs statistics of a corpus and dataset.splits.corpus is 0: give the corpus a part"
	case i.Private && c.Privacy.Epsilon == 0:
		return "is of private rounds and privacy.epsilon is 0: give one"
	case i.Fitted && !c.OpenScope():
		return "is of open scope, where heads are fitted to the uploads: set corpus.dataset or " +
			"corpus.classes"
	case c.Posterior.Samples < i.Least:
		return fmt.Sprintf("weighs clients by how their samples vary and posterior.samples is "+
			"%d: raise it to %d", c.Posterior.Samples, i.Least)
	}
	return ""
}

// leftOut returns notes of the methods that a run of all methods leaves out for want of samples.
func (c *Config) leftOut() []string {
	var out []string
	for _, m := range rival.All() {
		if i := m.Info(); len(c.Methods) == 0 && c.Posterior.Samples < i.Least {
			out = append(out, fmt.Sprintf("left out is %s: it %s", i.Name, c.lacks(i)))
		}
	}
	return out
}

// settings returns those of the shared protocol: the defaults of methods, with the run's own
// penalty, tolerance, sampler and covariances.
func (c *Config) settings() rival.Settings {
	s := rival.DefaultSettings()
	s.L2, s.Tolerance = c.ERM.L2, c.ERM.Tolerance
	s.Sampler, s.Covariance = c.Posterior.BNN, c.Posterior.Consensus
	return s
}

// threads returns the number of threads of the run; one a processor where the setting is 0.
func (c *Config) threads() int {
	if c.Engine.Threads > 0 {
		return c.Engine.Threads
	}
	return runtime.GOMAXPROCS(0)
}

// running is a run at work.
type running struct {
	Config
	data     *Data
	tools    Tools
	dir      *Directory
	progress Progress
	tuned    *Tuned
	test     *score.Test
	embedded *score.Test // as rivals have it in the protocol calibrated
	inner    int         // threads of a task
	alone    bool        // whether a cell runs at a time
}

// Run computes the cells that the directory does not have yet, finishes it, and returns all
// records. Tasks (a partition and a repeat), and the methods of the last ones, run in parallel on
// as many threads as the settings say. Every random number comes from a stream named after its
// task, so the results depend neither on the order nor on the number of threads. Cancelling ctx
// stops before the next method; finished cells stay in the directory. The order is the corpus's
// moments, tuning, limits, cells. An error leaves the finished cells and choices, and the same call
// goes on from them. dir stays open: the caller closes it.
func Run(ctx context.Context, c Config, data *Data, tools Tools, dir *Directory,
	progress Progress) ([]Record, error) {
	c.FillDefaults()
	cells, err := Cells(&c)
	if err != nil {
		return nil, err
	}
	if progress == nil {
		progress = func(Step) {}
	}
	r := &running{Config: c, data: data, tools: tools, dir: dir, progress: progress}
	if err := r.tools.knows(ctx, c, data); err != nil {
		return nil, err
	}
	if r.tuned, err = r.tune(ctx); err != nil {
		return nil, err
	}
	if r.test, err = data.test(c); err != nil {
		return nil, err
	}
	if c.Protocol == protocolCalibrated {
		t := *r.test
		if t.Features, err = tools.embed(ctx, t.Features); err != nil {
			return nil, err
		}
		r.embedded = &t
	}
	if c.Scores.Coverage {
		err := tools.Shared.Do(ctx, 1,
			func() error { return r.tools.limits(ctx, data, r.test, c.OpenScope()) })
		if err != nil {
			return nil, fmt.Errorf("limit of infinite data: %w", err)
		}
	}
	if err := r.cells(ctx, cells); err != nil {
		return nil, err
	}
	return dir.Finish(cells)
}

// cells computes those that the directory does not have. Goroutines take them from one queue, and
// each computes with inner threads. At the first error the others stop before their next cell. A
// goroutine holds inner threads of [Shared] for one cell at a time. A cell that is half done when
// another fails is finished and recorded, unless its method heeds ctx.
func (r *running) cells(ctx context.Context, cells []Cell) error {
	q, count := &queue{}, newCounter("methods", r.progress)
	work, ctx := errgroup.WithContext(ctx)
	for _, p := range r.Partitions() {
		for repeat := range r.Seeds {
			g := r.group(ctx, p, repeat)
			for _, cell := range cells {
				if cell.Partition != p.Name() || cell.Repeat != repeat {
					continue
				}
				finished := r.dir.Done(cell)
				count.expect(cell.Method, finished)
				if !finished {
					g.cells = append(g.cells, cell)
				}
			}
			q.groups = append(q.groups, g)
		}
	}
	// Threads are dealt to cells first, and the rest of them to each cell.
	var runs int
	runs, r.inner = r.tools.Shared.plan(r.threads(), count.total-count.done)
	r.alone = runs == 1 && (r.tools.Shared == nil || r.tools.Shared.runs == 1)
	count.report()
	for range runs {
		work.Go(func() error {
			var own *group
			for {
				var cell Cell
				if own, cell = q.next(own); own == nil {
					return nil
				}
				if err := r.tools.Shared.Do(ctx, r.inner,
					func() error { return r.cell(ctx, own, cell, count) }); err != nil {
					return err
				}
			}
		})
	}
	return work.Wait()
}

// group returns the group of a partition and a repeat, without cells. Its task is made by the first
// cell that asks for it, while others wait; an error is theirs too. A group without cells makes no
// task. The rivals' task of the protocol calibrated is made in the same way.
func (r *running) group(ctx context.Context, p Partition, repeat int) *group {
	g := &group{partition: p, repeat: repeat}
	g.task = sync.OnceValues(func() (*rival.Task, error) {
		t, _, err := r.tools.drawn(ctx, &r.Config, r.data.Clients, p, repeat, r.inner)
		return t, err
	})
	g.calibrated = sync.OnceValues(func() (*calibrated, error) {
		t, err := g.task()
		if err != nil {
			return nil, err
		}
		return r.calibrate(ctx, t.Clients(), p.stream(repeat))
	})
	return g
}

// cell computes and records one cell. Processor time is the whole process's, and is recorded only
// where no other cell runs beside it. The making of the task is not in its time, and the work that
// methods share is in the first one's.
func (r *running) cell(ctx context.Context, g *group, cell Cell, count *counter) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	t, err := g.task()
	if err != nil {
		return err
	}
	start, used := time.Now(), processor.Time()
	record, err := r.scoreIn(ctx, g, t, cell)
	if err != nil {
		return fmt.Errorf("%s: %w", cell, err)
	}
	took := Took{Clock: time.Since(start)}
	if r.alone {
		took.Processor = processor.Time() - used
	}
	if err := r.dir.Add(*record, took); err != nil {
		return err
	}
	count.finish(cell.Method, took.Clock)
	return nil
}

// jointBatches is the number of batches of each kind over which joint scores are averaged. They are
// drawn once for a run, so that methods are compared on the same ones.
const jointBatches = 1000

// test returns the points that all methods are scored on; test sets too small for neighbourhoods
// have no joint scores.
func (d *Data) test(c Config) (*score.Test, error) {
	t := &score.Test{Features: d.Test, Labels: d.TestLabels, Shifts: d.Shifts}
	if len(d.TestLabels) < metric.Neighbours {
		return t, nil
	}
	var err error
	t.Batches, err = batches(c, d.Test, d.Clients.Dx)
	return t, err
}

// batches draws those of a run's joint scores. The stream is named by the seed alone: runs of a
// seed on the same images share them.
func batches(c Config, features []float32, dx int) (*metric.Batches, error) {
	return metric.NewBatches(rng.New(c.Seed, "joint"), features, dx, jointBatches)
}

// limits computes the limits of the methods as data grow, from all rows of corpus and clients'
// part. In open scope, where the corpus has other classes, they are from the latter alone. It sets
// the class means of all rows in the tools, and in test the heads fitted to all rows. All rows
// stand for infinite data, and the clients' own rows are among them. Nobody else may use the tools
// meanwhile.
func (k *Tools) limits(ctx context.Context, d *Data, test *score.Test, open bool) error {
	var sets []*point.Set
	for _, b := range []*task.Bank{d.Corpus, d.Clients} {
		if b == nil || b == d.Corpus && open {
			continue
		}
		s, err := point.FromLabelled(b.Features, b.Dx, b.Labels, b.C)
		if err != nil {
			return err
		}
		sets = append(sets, s)
	}
	all, err := point.Pool(sets...)
	if err != nil {
		return err
	}
	if k.Conjugate != nil {
		means, err := k.Conjugate.Compress(ctx, []*point.Set{all})
		if err != nil {
			return err
		}
		k.all = means[0]
	}
	if k.Open != nil {
		if k.soft, err = k.Open.Softened(all); err != nil {
			return err
		}
	}
	if test.Limit, err = score.LimitHead(ctx, all); err != nil {
		return err
	}
	test.Regression, err = score.RegressionHead(ctx, all, test.Limit)
	return err
}

// knows gives the tools the corpus' moments where a requested method needs them, and in closed
// scope its class means as the conjugate predictor reads them. Tools are copied before they get the
// moments of another corpus, so that the run's own stay. Without a method that reads the corpus
// nothing is computed. Moments of n rows cost O(n dx^2).
func (k *Tools) knows(ctx context.Context, c Config, d *Data) error {
	k.known = nil
	methods, err := c.methods()
	if err != nil || d.Corpus == nil || !slices.ContainsFunc(methods, func(m rival.Method) bool {
		i := m.Info()
		return i.NeedsCorpus || i.ReadsCorpus || k.Embedded != nil && i.Name == "FMP"
	}) {
		return err
	}
	b := d.Corpus
	if k.known, err = rival.NewCorpus(b.Features, b.Dx, b.Labels, b.C); err != nil {
		return err
	}
	if k.Conjugate == nil || c.OpenScope() {
		return nil
	}
	rows, err := point.FromLabelled(b.Features, b.Dx, b.Labels, b.C)
	if err != nil {
		return err
	}
	means, err := k.Conjugate.Compress(ctx, []*point.Set{rows})
	if err != nil {
		return fmt.Errorf("class means of the corpus: %w", err)
	}
	k.known.Read = means[0]
	return nil
}

// Task returns the task of clients who hold the given rows of the clients' part, with everything
// that the methods of a run read. Equal rows under one stream give equal figures; a stream is used
// for one task of a run.
func (p *Prepared) Task(ctx context.Context, rows [][]int, stream string) (*rival.Task, error) {
	return p.Tools.task(ctx, p.Config, p.Data.Clients.Clients(rows), stream,
		p.Config.threads(), nil)
}

// draw returns the task of a partition and a repeat: the rows of the clients' part that each client
// holds, and those of its calibration points. The stream names no method: all methods of a repeat
// have the same clients.
func (c *Config) draw(bank *task.Bank, p Partition,
	repeat int) (rows, beside [][]int, err error) {
	return bank.PartitionBeside(rng.New(c.Seed, "clients", p.stream(repeat)), c.Federation.Clients,
		c.Federation.Points, c.Posterior.Calibrate, p.Alpha)
}

// drawn returns the task of a partition and a repeat, and the rows of its clients.
func (k Tools) drawn(ctx context.Context, c *Config, bank *task.Bank, p Partition, repeat,
	threads int) (*rival.Task, [][]int, error) {
	rows, beside, err := c.draw(bank, p, repeat)
	if err != nil {
		return nil, nil, err
	}
	t, err := k.task(ctx, *c, bank.Clients(rows), p.stream(repeat), threads,
		calibration(bank, beside))
	return t, rows, err
}

// calibration returns the calibration points of clients that hold the given rows for it; nil where
// none has any. Rows are copied, client by client.
func calibration(bank *task.Bank, beside [][]int) *posterior.Calibration {
	out := &posterior.Calibration{}
	for m, own := range beside {
		for _, i := range own {
			out.Features = append(out.Features, bank.Row(i)...)
			out.Labels, out.Client = append(out.Labels, bank.Labels[i]), append(out.Client, m)
		}
	}
	if len(out.Labels) == 0 {
		return nil
	}
	return out
}

// task computes the clients' uploads and returns their task. The embedding's uploads are computed
// only where a method reads them: where FMP has neither predictor nor moments, and for FMP-ISAB and
// the control of a run without a closed form. by are images by which FMP chooses in open scope;
// nil: none. Uploads are made once and read by all methods of the task. Class means are computed
// where there is a predictor for them, whether or not a method asks.
func (k Tools) task(ctx context.Context, c Config, clients []*point.Set, stream string, threads int,
	by *posterior.Calibration) (*rival.Task, error) {
	in := rival.Input{
		Calibration: by, Clients: clients, Drawer: k.Drawer, Open: k.Open,
		Samples: c.Posterior.Samples, Fresh: c.Predictor.Fresh, Latents: c.Conjugate.Samples,
		NoLatent: c.Conjugate.Latent == "none", Scope: c.Posterior.Scope,
		Corpus: k.known, Named: !c.OpenScope(), Private: k.Private,
		Privacy: c.Privacy.Budget(c.Federation.Points), Limits: k.all,
		Seed: c.Seed, Stream: stream,
		Threads: threads,
	}
	methods, err := c.methods()
	if err != nil {
		return nil, err
	}
	// The control shuffles class means where there is a closed form, and uploads of the embedding
	// elsewhere.
	closed := k.Conjugate != nil || k.Open != nil
	if k.Compressor != nil && (!closed && k.Embedded == nil || slices.ContainsFunc(methods,
		func(m rival.Method) bool { return m.Info().Compresses || m.Info().Control && !closed })) {
		if in.Uploads, err = k.Compressor.Compress(ctx, clients); err != nil {
			return nil, err
		}
	}
	if k.Conjugate != nil {
		in.Conjugate = k.Conjugate
		if in.ClassMeans, err = k.Conjugate.Compress(ctx, clients); err != nil {
			return nil, err
		}
	}
	if k.Open != nil {
		in.SoftLimits = k.soft
		for _, c := range clients {
			soft, err := k.Open.Soften(c)
			if err != nil {
				return nil, err
			}
			in.Soft = append(in.Soft, soft)
		}
	}
	if k.Embedded != nil {
		if in.Moments, err = k.Moments(ctx, clients, stream); err != nil {
			return nil, err
		}
		in.Embedded, in.Kappa = k.Embedded, c.Kappa()
	}
	return rival.NewTask(in)
}

// Moments computes the clients' uploads of moments; stream names the round. Calibration points are
// chosen by hashes with a key of the client: of equal images two clients do not choose the same.
// Calibration points are in neither means nor scatter. The cost is O(n dx^2) for n rows in all.
func (k Tools) Moments(ctx context.Context, clients []*point.Set,
	stream string) ([]discriminant.Client, error) {
	var out []discriminant.Client
	for m, set := range clients {
		h, labels := set.Labelled()
		rows, err := k.Embedded.Map(ctx, h)
		if err != nil {
			return nil, err
		}
		var u discriminant.Client
		dx := len(rows) / len(labels)
		chosen := moments.Calibration(rows, dx, momentsKey(stream, m), k.Calibration)
		if u.Means, u.Within, err = moments.Parted(rows, dx, labels, set.C, chosen); err != nil {
			return nil, fmt.Errorf("client %d: %w", m, err)
		}
		if u.Curve, err = moments.CurveOf(rows, dx, labels, set.C, stream); err != nil {
			return nil, fmt.Errorf("client %d: %w", m, err)
		}
		out = append(out, u)
	}
	return out, nil
}

// cellSettings returns the method of a cell and its settings: the raw ones, or those that tuning
// chose. The choice is nil where nothing was chosen. It points into tuned, which nobody writes by
// then.
func cellSettings(c Config, cell Cell,
	tuned *Tuned) (rival.Method, rival.Settings, *Choice, error) {
	m, err := rival.Lookup(cell.Method)
	if err != nil {
		return nil, rival.Settings{}, nil, err
	}
	info := m.Info()
	s, err := info.Raw(c.settings())
	if err != nil || cell.Protocol != "tuned" || info.Calibrated {
		return m, s, nil, err
	}
	choice, err := tuned.choice(cell.Partition, cell.Method)
	if err != nil {
		return nil, s, nil, err
	}
	s, err = choice.Apply(s)
	return m, s, choice, err
}

// scoreIn runs the method of a cell on its task, as the protocol has it, and scores it. In the
// protocol calibrated a rival is tuned anew for each cell, on the task's own points.
func (r *running) scoreIn(ctx context.Context, g *group, t *rival.Task,
	cell Cell) (*Record, error) {
	m, s, choice, err := cellSettings(r.Config, cell, r.tuned)
	if err != nil {
		return nil, err
	}
	// FMP calibrates itself
	if cell.Protocol != protocolCalibrated || m.Info().Conjugate || m.Info().Calibrated {
		return r.score(ctx, t, r.test, cell, g.partition, applied{m, s, choice})
	}
	c, err := g.calibrated()
	if err != nil {
		return nil, err
	}
	chosen, s, err := rival.Tune(ctx, m, []rival.Held{c.held}, r.settings(), nil)
	if err != nil {
		return nil, err
	}
	return r.score(ctx, c.task, r.embedded, cell, g.partition,
		applied{m, s, &Choice{g.partition.Name(), chosen}})
}

// applied is a method with its settings, and how they were chosen; nil for those of all methods.
type applied struct {
	rival.Method
	settings rival.Settings
	choice   *Choice
}

// inHindsight returns the least NLL of a search on the scored images and of the row itself, whose
// settings are among those that hindsight has: a search may miss them.
func inHindsight(best rival.Choice, own float64) float64 { return min(slices.Min(best.NLL), own) }

// score runs a method on a task and scores it. Hindsight tunes the method once more, on the scored
// images themselves: a bound of tuning that no protocol may use. Hindsight costs the method's whole
// grid once more for each cell.
func (r *running) score(ctx context.Context, t *rival.Task, test *score.Test, cell Cell,
	p Partition, a applied) (*Record, error) {
	m, s, choice := a.Method, a.settings, a.choice
	info := m.Info()
	out := &Record{Cell: cell, Dataset: r.Dataset.Label(), Alpha: p.Alpha,
		Group: string(info.Group)}
	if choice != nil {
		out.Temperature, out.More = choice.Temperature, choice.More
	}
	if out.Param = info.Param; out.Param != "" {
		out.Value = s.Value(out.Param)
	}
	res, err := m.Run(ctx, t, s)
	if err != nil {
		return nil, err
	}
	scored, err := test.Score(ctx, t.Clients(), res, r.inner)
	if err != nil {
		return nil, err
	}
	out.Scores, out.BySamples, out.Coverage, out.Shifted, out.Membership = scored.Scores,
		scored.First, scored.Coverage, scored.Shifted,
		scored.Membership
	out.Absent = scored.Absent
	// A method that follows another has no settings of its own to choose.
	if r.Scores.Hindsight &&
		(choice != nil || cell.Protocol == protocolCalibrated || info.Calibrated) &&
		info.Follows == "" {
		best, _, err := rival.Tune(ctx, rival.InHindsight(m),
			[]rival.Held{{Task: t, Features: test.Features, Labels: test.Labels}},
			r.settings(), nil)
		if err != nil {
			return nil, fmt.Errorf("in hindsight: %w", err)
		}
		nll := inHindsight(best, out.NLL)
		out.Hindsight = &nll
	}
	out.UploadBytes, out.Diagnostics = res.UploadBytes, res.Diagnostics
	return out, nil
}
