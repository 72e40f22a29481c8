package experiment

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"fmp/models/rng"
	"fmp/pipeline/lab/rival"
	"fmp/pipeline/meta"
	"fmp/pipeline/metric"
	"fmp/pipeline/task"
)

// Tuned is tuning.json: the choices of the tuned protocol, by partition and method. The file is
// written after every choice, so that it may lack some while a run is at work.
type Tuned struct {
	Choices []Choice `json:"choices"`
}

// Choice is the chosen value of one method's setting on one partition, and the values it was chosen
// from.
type Choice struct {
	Partition string `json:"partition"`
	rival.Choice
}

// ReadTuned reads the choices of a run; none where nothing was tuned.
func ReadTuned(dir string) (*Tuned, error) {
	out := &Tuned{}
	b, err := readOptional(filepath.Join(dir, TuningFile), "tuning")
	if err != nil {
		return nil, err
	}
	if b == nil {
		return out, nil
	}
	if err := parseJSON(b, out); err != nil {
		return nil, fmt.Errorf("%s: %w; remove it and run again",
			filepath.Join(dir, TuningFile), err)
	}
	return out, nil
}

// EdgeNotes names the settings that were chosen at an end of their grid, where a value beyond might
// be better. They are notes for readers, and no errors.
func (t *Tuned) EdgeNotes() []string {
	var out []string
	for _, c := range t.Choices {
		for _, name := range c.AtEnd() {
			value, further := c.More[name]
			if !further {
				value = c.Value
			}
			out = append(out, fmt.Sprintf("the %s of %s on %s, %g, is at the end of its grid: a "+
				"value beyond might be better", name, c.Method, c.Partition, value))
		}
	}
	return out
}

// choice returns a method's choice on a partition, which points into t.
func (t *Tuned) choice(partition, method string) (*Choice, error) {
	for i, c := range t.Choices {
		if c.Partition == partition && c.Method == method {
			return &t.Choices[i], nil
		}
	}
	return nil, fmt.Errorf("tuning chose no settings for %s on %s; remove %s from the run "+
		"directory and run again", method, partition, TuningFile)
}

// tuning is the tuned protocol at work: the choices made so far, by partition and method.
type tuning struct {
	*running
	methods    []rival.Method
	followers  []rival.Info // these get the value of another method, which is tuned anyway
	partitions []Partition
	mu         sync.Mutex // guards choices, and the file that holds them
	// choices has that of partition i and method j at i len(methods) + j; nil: not made yet.
	choices []*Choice
	missing [][]int // of each partition the methods without a choice
	count   *counter
}

// tune chooses every method's own setting and temperature by NLL on held-out rows of tasks drawn
// from the corpus, of the same size and partition as the run's. Test images are not used. The
// choices of an earlier run in the same directory are read back, and each choice is saved as it is
// made, so that a stopped run resumes with the next. The tasks of one partition are made while the
// methods of the one before are tuned. Choices do not depend on their order. Without the tuned
// protocol the choices are none, and nothing is read. Tuning comes before any cell, so that an
// error of it costs no cell.
func (r *running) tune(ctx context.Context) (*Tuned, error) {
	if !slices.Contains(r.Protocols(), "tuned") {
		return &Tuned{}, nil
	}
	u, err := r.newTuning()
	if err != nil {
		return nil, err
	}
	if u.count.done == len(u.choices) {
		return u.made(), nil
	}
	if r.data.Corpus == nil {
		return nil, fmt.Errorf("tuning: this data set has no meta-training corpus: set " +
			"dataset.splits.corpus above 0 or protocol to shared")
	}
	fits, inner := r.tools.Shared.plan(r.threads(), len(u.choices)-u.count.done)
	u.count.report()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(fits)
	for pi, p := range u.partitions {
		if len(u.missing[pi]) == 0 {
			continue
		}
		var held []rival.Held
		err := r.tools.Shared.Do(ctx, inner, func() (err error) {
			held, err = r.heldTasks(ctx, p, inner)
			return err
		})
		if err != nil {
			stop()
			if was := g.Wait(); was != nil && errors.Is(err, context.Canceled) {
				err = was // the earlier error, which stopped this one
			}
			return nil, fmt.Errorf("tuning: %w", err)
		}
		for _, mi := range u.missing[pi] {
			g.Go(func() error { return u.choose(ctx, pi, mi, held, inner) })
		}
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return u.made(), nil
}

// newTuning lists the methods to be tuned, and reads the choices of an earlier run. A method whose
// leader runs too gets the leader's choice; methods that calibrate themselves have none. A choice
// in the file of a method that the run has not is not kept.
func (r *running) newTuning() (*tuning, error) {
	all, err := r.Config.methods()
	if err != nil {
		return nil, err
	}
	u := &tuning{running: r, partitions: r.Partitions(), count: newCounter("tuning", r.progress)}
	for _, m := range all {
		info := m.Info()
		if info.Calibrated {
			continue
		}
		if slices.ContainsFunc(all,
			func(o rival.Method) bool { return o.Info().Name == info.Follows }) {
			u.followers = append(u.followers, info)
		} else {
			u.methods = append(u.methods, m)
		}
	}
	was, err := ReadTuned(r.dir.Path)
	if err != nil {
		return nil, err
	}
	u.choices = make([]*Choice, len(u.partitions)*len(u.methods))
	u.missing = make([][]int, len(u.partitions))
	for pi, p := range u.partitions {
		for mi, m := range u.methods {
			name := m.Info().Name
			choice, err := was.choice(p.Name(), name)
			u.count.expect(name, err == nil)
			if err != nil {
				u.missing[pi] = append(u.missing[pi], mi)
				continue
			}
			u.choices[pi*len(u.methods)+mi] = choice
		}
	}
	return u, nil
}

// made returns the choices so far. Followers' choices are copies of their leaders', after all
// others. The caller holds mu, or is alone.
func (u *tuning) made() *Tuned {
	out := &Tuned{}
	for _, c := range u.choices {
		if c != nil {
			out.Choices = append(out.Choices, *c)
		}
	}
	// The loop reads a copy, as it adds to the list; a follower leads no other.
	for _, c := range slices.Clone(out.Choices) {
		for _, f := range u.followers {
			if f.Follows == c.Method {
				c.Method = f.Name
				out.Choices = append(out.Choices, c)
			}
		}
	}
	return out
}

// choose tunes one method on the held-out tasks of one partition, and saves its choice. The file
// has all choices so far, in the order of partitions and methods, whichever was made first. mu is
// held while the file is written, so that a later one has all choices of an earlier one.
func (u *tuning) choose(ctx context.Context, partition, method int, held []rival.Held,
	inner int) error {
	m, p := u.methods[method], u.partitions[partition].Name()
	var choice rival.Choice
	var took time.Duration
	err := u.tools.Shared.Do(ctx, inner, func() (err error) {
		start := time.Now()
		choice, _, err = rival.Tune(ctx, m, held, u.settings(), nil)
		took = time.Since(start)
		return err
	})
	if err != nil {
		return err
	}
	if err := u.dir.Tuned(p, m.Info().Name, took); err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.choices[partition*len(u.methods)+method] = &Choice{Partition: p, Choice: choice}
	if err := writeJSON(u.dir.file(TuningFile), u.made()); err != nil {
		return err
	}
	u.count.finish(m.Info().Name, took)
	return nil
}

// tuningBatches is the number of batches of a tuning task over which joint scores are averaged.
const tuningBatches = 250

// heldTasks draws the tasks of the corpus on which one partition is tuned: clients as in the run,
// and held-out rows that no client has. In open scope each task has classes of its own. Streams are
// named "tuning", partition and number: no task of the run has such a name. Every method is tuned
// on the same tasks, which share their memos. Target rows are tuning.points in number.
func (r *running) heldTasks(ctx context.Context, p Partition, threads int) ([]rival.Held, error) {
	c, data, tools := r.Config, r.data, r.tools
	s := task.Sampler{Bank: data.Corpus, Points: c.Federation.Points, Alphas: []float64{p.Alpha},
		Target: c.Tuning.Points, FixedLabels: true}
	var out []rival.Held
	for i := range c.Tuning.Tasks {
		stream := fmt.Sprintf("tuning/%s/%d", p.Name(), i)
		if c.OpenScope() {
			var err error
			if s.Bank, tools, err = leaveOut(ctx, rng.New(c.Seed, "classes", stream), c, data,
				tools); err != nil {
				return nil, err
			}
		}
		drawn, err := s.Draw(rng.New(c.Seed, "clients", stream), c.Federation.Clients)
		if err != nil {
			return nil, err
		}
		if !c.OpenScope() {
			if tools, err = r.withoutRows(ctx, drawn); err != nil {
				return nil, err
			}
		}
		t, err := tools.task(ctx, c, s.Bank.Clients(drawn.Rows), stream, threads, nil)
		if err != nil {
			return nil, err
		}
		h := rival.Held{Task: t}
		h.Features, h.Labels = drawn.Target.Labelled()
		if len(h.Labels) >= metric.Neighbours {
			h.Batches = metric.NearBatches(rng.New(c.Seed, "joint", stream), h.Features,
				s.Bank.Dx, tuningBatches)
		}
		out = append(out, h)
	}
	return out, nil
}

// withoutRows returns tools that know only those rows of the corpus which a tuning task does not
// score: moments of the very rows that are scored would ask for settings that trust them too much.
// The clients' rows stay: without them the corpus would be much smaller than the run's. Where less
// than half of it, or fewer than two images of a class, would be left the tools know all of it. The
// run's own tools stay as they are.
func (r *running) withoutRows(ctx context.Context, t *task.Task) (Tools, error) {
	tools := r.tools
	if tools.known == nil {
		return tools, nil
	}
	rest, err := r.data.Corpus.Without(t.Held)
	if err != nil || rest == nil {
		return tools, err
	}
	d := *r.data
	d.Corpus = rest
	err = tools.knows(ctx, r.Config, &d)
	return tools, err
}

// tunedOnSeen returns a note where tuning tasks in closed scope score images that the corpus's
// moments have seen, as less than half of the corpus would be left without them; "" elsewhere, and
// where no method reads the moments. Draws that would leave fewer than two images of a class are
// not told of.
func (c *Config) tunedOnSeen(corpus *task.Bank) string {
	if corpus == nil || c.OpenScope() || !slices.Contains(c.Protocols(), "tuned") ||
		2*c.Tuning.Points <= corpus.Len() {
		return ""
	}
	methods, err := c.methods()
	if err != nil || !slices.ContainsFunc(methods, func(m rival.Method) bool {
		return m.Info().NeedsCorpus || m.Info().ReadsCorpus
	}) {
		return ""
	}
	return fmt.Sprintf("settings are tuned on images that the corpus's moments have seen: "+
		"tuning.points is %d and the corpus has %d images; lower the first, or enlarge "+
		"dataset.splits.corpus", c.Tuning.Points, corpus.Len())
}

// leaveOut returns the bank of a tuning task in open scope: as many classes of the corpus as the
// run's tasks have, drawn anew each time, and tools that know only the rest of the corpus. If fewer
// than two classes would remain, they know all of it. Classes of the setting tuning.classes take
// the place of the corpus's, all of them where they are fewer, without uploads of an embedding
// then, and tools know all of the corpus. The scalars of the open predictor stay those that were
// trained, and its coordinates are made anew from the rest. Neither data nor the tools given are
// changed.
func leaveOut(ctx context.Context, r *rand.Rand, c Config, data *Data,
	tools Tools) (*task.Bank, Tools, error) {
	n := data.Clients.C
	if apart := data.Tuning; apart != nil {
		if apart.C < n { // the embedding is of the run's classes
			tools.Compressor = nil
		}
		bank, err := apart.Choose(r.Perm(apart.C)[:min(n, apart.C)])
		return bank, tools, err
	}
	if data.Corpus.C < n {
		return nil, tools, fmt.Errorf("the tasks have %d classes and the corpus %d: "+
			"settings cannot be tuned on it; set protocol to shared, or give corpus.classes more",
			n, data.Corpus.C)
	}
	classes := r.Perm(data.Corpus.C)
	bank, err := data.Corpus.Choose(classes[:n])
	if err != nil || len(classes)-n < 2 {
		return bank, tools, err
	}
	rest, err := data.Corpus.Choose(classes[n:])
	if err != nil {
		return nil, tools, err
	}
	if tools.known != nil {
		d := *data
		d.Corpus = rest
		if err := tools.knows(ctx, c, &d); err != nil {
			return nil, tools, err
		}
	}
	if tools.Open != nil {
		known, err := meta.UntrainedOpen(rest, tools.Open.K())
		if err != nil {
			return nil, tools, err
		}
		known.Scalars, known.Scale = tools.Open.Scalars, tools.Open.Scale
		tools.Open = known
	}
	return bank, tools, nil
}
