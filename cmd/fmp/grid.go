package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
	"golang.org/x/sync/errgroup"

	"fmp/cmd/internal/outputs"
	"fmp/onnx/atomicfile"
	"fmp/onnx/regularfile"
	"fmp/pipeline/federate/store"
	"fmp/pipeline/federate/work"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/settings"
)

// gridOptions are the flags of fmp grid. out is settled by run where the flag is not given.
type gridOptions struct {
	out, tokenFile string
	// threads are those of all runs together, 0 for one a core.
	threads      int
	dry, workers bool
	store        store.Options
}

// newGridCommand declares fmp grid. Its flags of NATS are those of fmp serve, and want --workers. A
// grid's folder holds its runs, its name on queues and, with --nats-listen, the queue.
func newGridCommand() *cobra.Command {
	var o gridOptions
	cmd := &cobra.Command{
		Use:   "grid FILE",
		Short: "Run all combinations of some settings, resuming what was stopped",
		Long: `Read a grid (YAML): settings that all runs share, in the form of a settings file, and under vary a
list of values for each key that varies. Every combination gets a run directory of its own under
--out.

  settings:
    seeds: 10
  vary:
    dataset.name: [mnist, cifar10]
    posterior.samples: [5, 20, 80]

Several runs go on at the same time, on --threads threads together; those on the same images behind
the same extractor load them once. No figure depends on the number of threads.

A grid that was stopped, by Ctrl-C or worse, resumes when the same command is given again: finished
cells are not done again, and half-finished ones count for nothing. A run that fails is reported
with its settings, and the others go on; the exit code is then that of the first failure, and the
same command tries the failed ones again.

--workers gives the runs that nobody has begun to fmp worker, on any number of machines, and writes
each one's report as it comes back. Workers find data sets and models as fmp run does, on their own
machine; a run of other data or models than this machine's is refused. results.jsonl is the same,
byte for byte, whoever makes it on the same release and engine.`,
		Example: `  fmp grid samples.yaml --dry-run
  fmp grid samples.yaml --out grids/samples
  fmp grid samples.yaml --workers --nats-listen 127.0.0.1:4222 --nats-token-file nats.token
  fmp results list grids/samples`,
		Args: exactArgs("FILE"),
	}
	cmd.Flags().StringVar(&o.out, "out", "",
		"folder of the run directories (default: grids/ and the file's name)")
	outputs.Made(cmd.Flags(), "out")
	cmd.Flags().IntVar(&o.threads, "threads", 0, "threads of all runs together; 0 means one a core")
	cmd.Flags().BoolVar(&o.dry, "dry-run", false, "list the runs and how far they are, and do none")
	jsonFlag(cmd, "print the runs' tables as JSON")
	cmd.Flags().BoolVar(&o.workers, "workers", false,
		"leave the runs to fmp worker; with --nats or --nats-listen")
	bindStore(cmd, &o.store, &o.tokenFile)
	cmd.Flags().IntVar(&o.store.Replicas, "nats-replicas", 1,
		"on how many of the servers of --nats the queue is kept: 1 to 5")
	cmd.Flags().StringVar(&o.store.Listen, "nats-listen", "", "loopback `HOST:PORT` on which a "+
		"NATS server in this program lets workers in (with --nats-token-file)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) }
	return cmd
}

// run makes the runs of a grid, or lists them. All settings of all runs are checked before the
// first is begun.
// A dry run opens no engine and no queue. Engines are opened before runs are given to workers.
func (o *gridOptions) run(cmd *cobra.Command, file string) error {
	if o.threads < 0 || o.threads > maxGridThreads {
		return usageErrorf("--threads is %d; allowed are 0 to %d", o.threads, maxGridThreads)
	}
	data, err := regularfile.ReadFile(file, experiment.MaxGridBytes)
	if err != nil {
		return usageError(fmt.Errorf("grid: %w", err))
	}
	g, err := experiment.ParseGrid(data)
	if err != nil {
		return usageError(fmt.Errorf("%s: %w", file, err))
	}
	runs, err := g.Runs()
	if err != nil {
		return usageError(fmt.Errorf("%s: %w", file, err))
	}
	if o.out == "" {
		base := filepath.Base(file)
		o.out = filepath.Join("grids", strings.TrimSuffix(base, filepath.Ext(base)))
	}
	// Every run is set to as many, and shares them by experiment.Shared.
	o.threads = cmp.Or(o.threads, runtime.GOMAXPROCS(0))
	todo, err := newGridWork(runs, o.out, o.threads)
	if err != nil {
		return usageError(err)
	}
	if o.dry {
		plan := todo.plan()
		return tabulate(cmd, plan, func(w io.Writer) {
			for _, r := range plan {
				fmt.Fprintf(w, "%s\t%d of %d cells done\n", r.Directory, r.Finished, r.Cells)
			}
		})
	}
	if o.workers {
		o.store.Dir = filepath.Join(o.out, queueFolder)
		if err := checkStore(&o.store, o.tokenFile, true); err != nil {
			return usageError(fmt.Errorf("grid: %w", err))
		}
	} else if o.store.URL != "" || o.store.Listen != "" {
		return usageErrorf("grid: --nats and --nats-listen are where workers come " +
			"in; add --workers")
	}
	// before runs are given away: without an engine nobody would take them back
	defer todo.close()
	if err := todo.open(cmd); err != nil {
		return err
	}
	if o.workers {
		st, err := store.Open(cmd.Context(), "fmp-grid", o.store)
		if err != nil {
			return err
		}
		defer st.Close()
		if err := todo.give(cmd.Context(), st, o.store.Dir); err != nil {
			return err
		}
	}
	// Runs that ended well are printed also where others failed or an interrupt came.
	done, failed := todo.do(cmd)
	return errors.Join(failed, tabulate(cmd, done, func(w io.Writer) { gridLines(w, done) }))
}

// gridLines writes one line a method, partition and run. Rows of controls are left out. Figures are
// means over repeats, to four digits.
// Without a run there is no heading.
func gridLines(w io.Writer, runs []*runOutput) {
	for i, o := range runs {
		if i == 0 {
			fmt.Fprintln(w, "run\tpartition\tsettings\tmethod\tACC\tECE\tNLL")
		}
		for _, t := range o.Tables {
			for _, row := range t.Rows {
				if !row.Control() {
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.4f\t%.4f\t%.4f\n", o.Directory, t.Partition,
						t.Protocol, row.Method, row.ACC.Mean, row.ECE.Mean, row.NLL.Mean)
				}
			}
		}
	}
}

// maxGridThreads bounds --threads as engine.threads is. The bound keeps a slip from starting
// goroutines without number.
const maxGridThreads = 1024

// queueFolder is the state of the queue of --nats-listen, and the grid's name on any queue, in the
// folder of the run directories.
const queueFolder, gridFile = ".queue", "grid"

// gridWork is the runs of a grid, ready to be done. runs, states and the results of do have one
// order, that of the grid.
type gridWork struct {
	runs    []experiment.GridRun
	states  []gridRun
	threads int
	shared  *experiment.Shared
	// runners are by the settings of their engine.
	runners map[settings.Engine]*runner
	// queue holds the jobs of runs that workers make, by index; nil: none.
	queue *work.Grid
	jobs  map[int]work.Job
}

// gridName returns the name of a grid, which it makes at first: its jobs are its own, and are found
// again when it goes on. The name is random text, of 26 letters and digits, and stays in the
// folder. Two grids of one file in two folders have two names, and so jobs of their own. Commands
// that begin at once take turns, and have one name. The folder above is locked for it, as an
// embedded queue holds the lock of dir itself.
func gridName(dir string) (string, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	lock, err := atomicfile.Take(filepath.Dir(dir))
	if err != nil {
		return "", err
	}
	defer lock.Close()
	file := filepath.Join(dir, gridFile)
	data, err := regularfile.ReadFile(file, 1<<10)
	if errors.Is(err, fs.ErrNotExist) {
		data = []byte(rand.Text())
		err = atomicfile.WriteBytes(file, data)
	}
	return string(data), err
}

// give puts the runs that nobody has begun into the queue. A comment in the settings makes each a
// job of its own, as who has the result of a job removes it. Settings of this machine are taken out
// of a job: its folder, threads and library. Order in the queue is that of the grid. After an error
// some jobs are in the queue; the same command finds them there.
func (w *gridWork) give(ctx context.Context, st *store.Store, dir string) error {
	grid, err := gridName(dir)
	if err != nil {
		return err
	}
	if w.queue, err = work.NewGrid(ctx, st); err != nil {
		return err
	}
	w.jobs = map[int]work.Job{}
	for i, r := range w.runs {
		// A run that was begun here has a manifest, and its cells are not given away.
		if _, err := experiment.ReadManifest(r.Config.Output.Dir); !errors.Is(err, fs.ErrNotExist) {
			continue // it goes on here
		}
		c := r.Config
		c.Output.Dir, c.Engine.Threads, c.Engine.Library = "", 0, "" // the worker's own
		settings, err := yaml.Marshal(c)
		if err != nil {
			return fmt.Errorf("run %s: %w", r.Name, err)
		}
		settings = fmt.Appendf(nil, "# run %q of grid %q\n%s", r.Name, grid, settings)
		if w.jobs[i], err = w.queue.Ask(ctx, settings); err != nil {
			return fmt.Errorf("run %s: %w", r.Name, err)
		}
	}
	return nil
}

// take waits for the run that a worker makes, and returns its files; nil where none makes it. It
// waits until a worker has made it or the context ends. nil without an error means that the run is
// to be made here.
func (w *gridWork) take(ctx context.Context, i int) (map[string][]byte, error) {
	job, ok := w.jobs[i]
	if !ok {
		return nil, nil
	}
	return w.queue.Wait(ctx, job)
}

// planned is a run that a dry run of the grid tells of. Cells and Finished count records:
// partition, repeat, protocol and method.
type planned struct {
	Directory string `json:"directory"`
	Cells     int    `json:"cells"`
	Finished  int    `json:"finished"`
}

// plan tells how far every run is. It reads no file: newGridWork has read the directories.
func (w *gridWork) plan() []planned {
	out := []planned{}
	for i, r := range w.runs {
		out = append(out, planned{r.Config.Output.Dir, w.states[i].cells, w.states[i].done})
	}
	return out
}

// newGridWork checks the runs and reads how far each is. Cells are counted without any image being
// read. runs stay as they are; the copies get their directories and threads. A directory that
// cannot be read is an error, and one that is not there a run without cells.
func newGridWork(runs []experiment.GridRun, out string, threads int) (*gridWork, error) {
	w := &gridWork{runs: slices.Clone(runs), threads: threads}
	for i := range w.runs {
		r := &w.runs[i]
		r.Config.Output.Dir, r.Config.Engine.Threads = filepath.Join(out, r.Name), threads
		cells, err := experiment.Cells(&r.Config)
		if err != nil {
			return nil, fmt.Errorf("run %s: %w", r.Name, err)
		}
		was, err := experiment.Summarise(r.Config.Output.Dir)
		if err != nil {
			return nil, fmt.Errorf("run %s: %w", r.Name, err)
		}
		s := gridRun{name: r.Name, cells: len(cells)}
		if was != nil {
			// A directory of another grid may have more cells; experiment.Open refuses it later.
			s.done = min(was.Finished, len(cells))
		}
		w.states = append(w.states, s)
	}
	return w, nil
}

// open opens the engines of the runs. Runs of the same engine settings share one. After an error
// the engines that were opened are closed by close.
func (w *gridWork) open(cmd *cobra.Command) (err error) {
	var configs []experiment.Config
	for _, r := range w.runs {
		configs = append(configs, r.Config)
	}
	w.shared, err = experiment.NewShared(w.threads, w.atOnce(), configs)
	if err != nil {
		return err
	}
	w.runners = map[settings.Engine]*runner{}
	for _, c := range configs {
		if w.runners[c.Engine] != nil {
			continue
		}
		one, err := newRunner(cmd.Context(), c.Engine, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		one.shared = w.shared
		w.runners[c.Engine] = one
	}
	return nil
}

// close closes the engines, none before open.
func (w *gridWork) close() {
	for _, r := range w.runners {
		r.eng.Close()
	}
}

// atOnce is the number of runs that go on at the same time. Each has one thread at least. More runs
// than threads would only hold memory.
func (w *gridWork) atOnce() int { return min(w.threads, len(w.runs)) }

// do makes the runs, and returns those that ended well, in the order of the grid, and the errors of
// others. A run that fails stops no other. An interrupt is the context's error, with the runs that
// ended before. Data that no other run will use are released as runs end
// ([experiment.Shared.Done]). Goroutines write to their own index of the results, and so need no
// lock. Runs are begun in the order of the grid.
func (w *gridWork) do(cmd *cobra.Command) ([]*runOutput, error) {
	stderr := cmd.ErrOrStderr()
	p := newGridProgress(stderr, w.states)
	outputs, errs := make([]*runOutput, len(w.runs)), make([]error, len(w.runs))
	var g errgroup.Group
	g.SetLimit(w.atOnce())
	for i, r := range w.runs {
		g.Go(func() error {
			ctx := cmd.Context()
			if ctx.Err() != nil {
				return nil
			}
			progress := p.begin(i)
			made, err := w.take(ctx, i)
			var o *runOutput
			if err == nil {
				o, err = w.runners[r.Config.Engine].run(ctx, r.Config, made, progress)
			}
			// It comes in all cases, as others wait for the memory.
			err = errors.Join(err, w.shared.Done(r.Config))
			if ctx.Err() != nil && errors.Is(err, context.Canceled) {
				return nil // stopped, which is no failure of the run
			}
			if outputs[i] = o; err != nil {
				outputs[i], errs[i] = nil, fmt.Errorf("run %s: %w", r.Name, err)
			}
			p.end(i, err == nil && o.resumed, err)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	p.close()
	done := slices.DeleteFunc(outputs, func(o *runOutput) bool { return o == nil })
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if err := cmd.Context().Err(); err != nil {
		finished, total := p.cells()
		fmt.Fprintf(stderr, "stopped with %d of %d cells done; the same command goes on "+
			"from there\n", finished, total)
		return done, err
	}
	if len(errs) > 0 {
		return done, fmt.Errorf("%d of %d runs failed; the same command tries them again\n%w",
			len(errs), len(w.runs), errors.Join(errs...))
	}
	return done, nil
}
