package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"fmp/onnx/regularfile"
	"fmp/pipeline/experiment"
)

func newGridCommand() *cobra.Command {
	var out string
	var threads int
	var dry, asJSON bool
	cmd := &cobra.Command{
		Use:   "grid FILE",
		Short: "Run all combinations of some settings, resuming what was stopped",
		Long: `Read a grid (YAML): settings that all runs share, in the form of a settings file, and under vary a list of
values for each key that varies. Every combination gets a run directory of its own under --out.

  settings:
    seeds: 10
  vary:
    dataset.name: [mnist, cifar10]
    posterior.samples: [5, 20, 80]

Several runs go on at the same time, on --threads threads together; those on the same images behind the same
extractor load them once. No figure depends on the number of threads.

A grid that was stopped, by Ctrl-C or worse, goes on where it was when the same command is given again: finished
cells are not done again, and half-finished ones count for nothing. A run that fails is reported with its
settings, and the others go on; the exit code is then that of the first failure, and the same command tries
the failed ones again.`,
		Example: `  fmp grid samples.yaml --dry-run
  fmp grid samples.yaml --out grids/samples
  fmp results list grids/samples`,
		Args: exactArgs("FILE"),
	}
	cmd.Flags().StringVar(&out, "out", "", "folder of the run directories (default: grids/ and the file's name)")
	cmd.Flags().IntVar(&threads, "threads", 0, "threads of all runs together; 0 means one a core")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "list the runs and how far they are, and do none")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the runs' tables as JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if threads < 0 || threads > maxGridThreads {
			return usageErrorf("--threads is %d; allowed are 0 to %d", threads, maxGridThreads)
		}
		data, err := readGrid(args[0])
		if err != nil {
			return usageError(err)
		}
		g, err := experiment.ParseGrid(data)
		if err != nil {
			return usageError(fmt.Errorf("%s: %w", args[0], err))
		}
		runs, err := g.Runs()
		if err != nil {
			return usageError(fmt.Errorf("%s: %w", args[0], err))
		}
		if out == "" {
			base := filepath.Base(args[0])
			out = filepath.Join("grids", strings.TrimSuffix(base, filepath.Ext(base)))
		}
		if threads == 0 {
			threads = runtime.GOMAXPROCS(0)
		}
		work, err := newGridWork(cmd, runs, out, threads)
		if err != nil {
			return usageError(err)
		}
		if dry && asJSON {
			return printJSON(cmd.OutOrStdout(), work.plan())
		}
		if dry {
			return work.list(cmd.OutOrStdout())
		}
		done, failed := work.do(cmd)
		if asJSON {
			return errors.Join(failed, printJSON(cmd.OutOrStdout(), done))
		}
		if err := printGrid(cmd.OutOrStdout(), done); err != nil {
			return err
		}
		return failed
	}
	return cmd
}

// maxGridThreads bounds --threads as engine.threads is.
const maxGridThreads = 1024

// gridWork is the runs of a grid, ready to be done.
type gridWork struct {
	runs    []experiment.GridRun
	states  []gridRun
	threads int
}

// planned is a run that a dry run of the grid tells of.
type planned struct {
	Directory string `json:"directory"`
	Cells     int    `json:"cells"`
	Finished  int    `json:"finished"`
}

// plan tells how far every run is.
func (w *gridWork) plan() []planned {
	out := []planned{}
	for i, r := range w.runs {
		out = append(out, planned{r.Config.Output.Dir, w.states[i].cells, w.states[i].done})
	}
	return out
}

// newGridWork checks the runs and reads how far each is.
func newGridWork(cmd *cobra.Command, runs []experiment.GridRun, out string, threads int) (*gridWork, error) {
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
			s.done = min(was.Finished, len(cells))
		}
		w.states = append(w.states, s)
	}
	return w, nil
}

// list prints the runs and how far they are.
func (w *gridWork) list(to io.Writer) error {
	t := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	for i, r := range w.runs {
		fmt.Fprintf(t, "%s\t%d of %d cells done\n", r.Config.Output.Dir, w.states[i].done, w.states[i].cells)
	}
	return t.Flush()
}

// do makes the runs, and returns those that ended well, in the order of the grid, and what went wrong with others.
func (w *gridWork) do(cmd *cobra.Command) ([]*runOutput, error) {
	stderr := cmd.ErrOrStderr()
	var configs []experiment.Config
	for _, r := range w.runs {
		configs = append(configs, r.Config)
	}
	atOnce := min(w.threads, len(w.runs))
	shared, err := experiment.NewShared(w.threads, atOnce, configs)
	if err != nil {
		return nil, err
	}
	runners := map[experiment.Engine]*runner{}
	for _, r := range w.runs {
		if runners[r.Config.Engine] != nil {
			continue
		}
		one, err := newRunner(cmd.Context(), r.Config.Engine, stderr)
		if err != nil {
			return nil, err
		}
		defer one.eng.Close()
		one.shared = shared
		runners[r.Config.Engine] = one
	}
	p := newGridProgress(stderr, w.states)
	outputs, errs := make([]*runOutput, len(w.runs)), make([]error, len(w.runs))
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i, r := range w.runs {
		g.Go(func() error {
			ctx := cmd.Context()
			if ctx.Err() != nil {
				return nil
			}
			o, err := runners[r.Config.Engine].run(ctx, r.Config, p.begin(i))
			err = errors.Join(err, shared.Done(r.Config))
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
		fmt.Fprintf(stderr, "stopped with %d of %d cells done; the same command goes on from there\n", finished, total)
		return done, err
	}
	if len(errs) > 0 {
		return done, fmt.Errorf("%d of %d runs failed; the same command tries them again\n%w", len(errs), len(w.runs), errors.Join(errs...))
	}
	return done, nil
}

// printGrid writes one line a method, partition and run.
func printGrid(to io.Writer, runs []*runOutput) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	for i, o := range runs {
		if i == 0 {
			fmt.Fprintln(w, "run\tpartition\tsettings\tmethod\tACC\tECE\tNLL")
		}
		for _, t := range o.Tables {
			for _, row := range t.Rows {
				if !row.Control() {
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%.4f\t%.4f\t%.4f\n", o.Directory, t.Partition, t.Protocol, row.Method, row.ACC.Mean, row.ECE.Mean, row.NLL.Mean)
				}
			}
		}
	}
	return w.Flush()
}

// readGrid reads a grid's file, bounded.
func readGrid(path string) ([]byte, error) {
	data, err := regularfile.ReadFile(path, experiment.MaxGridBytes)
	if err != nil {
		return nil, fmt.Errorf("grid: %w", err)
	}
	return data, nil
}
