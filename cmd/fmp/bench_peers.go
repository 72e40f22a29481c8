package main

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"fmp/onnx/dense"
	"fmp/pipeline/lab/bench"
	"fmp/pipeline/lab/experiment"
)

// peersReport is the output of fmp bench peers.
type peersReport struct {
	Go           string       `json:"go"`
	Instructions string       `json:"instructions"` // that products are done with
	Runs         int          `json:"runs"`
	Before       int          `json:"before"` // runs before each that is measured
	Works        []peerResult `json:"works"`
}

type peerResult struct {
	Work    string         `json:"work"`
	Results []bench.Result `json:"results"`
}

func newBenchPeersCommand() *cobra.Command {
	var folder, only string
	var runs, before int
	cfg := experiment.Default()
	cmd := &cobra.Command{
		Use:   "peers",
		Short: "Measure fits, predictions, networks and training beside other programs",
		Long: `Do the work of a task (fits, heads on shared points, predictions, networks on the pure engine in
float32 and in bytes, features, steps of training, Table I) and the same with other programs, in
turns on one thread, and print the processor time that it takes, medians, least and most, and how
many times as long the others take. With --before a program runs several times in its turn, and the
last is measured: its code and numbers are in the caches, as in a service. A product of matrices says
how fast the machine is. The last rows are scaling limits, without a baseline. All takes ten minutes.

scikit-learn, scipy, numpy, tract, OpenVINO and Python's onnxruntime are run by the script in the
source tree's bench/peers, in a virtual environment that make bench-peers makes; PyTorch where
somebody has installed it there. What is not at hand is said to be. ort is the ONNX Runtime in this
process, with a graph of the same; networks have it where there is no such environment. Table I is of
CIFAR-10's images, where fmp data has them.`,
		Example: `  fmp bench peers
  fmp bench peers --only ResNet
  fmp bench peers --runs 15 --json`,
		Args: noArgs,
	}
	bindSettings(cmd, &cfg, nil, "engine.library", "dataset.dir")
	flags := cmd.Flags()
	flags.StringVar(&folder, "peers", "bench/peers",
		"`FOLDER` of the other programs' scripts and virtual environment")
	flags.StringVar(&only, "only", "", "measure the rows with this `TEXT` in their names alone")
	flags.IntVar(&runs, "runs", bench.MinRuns, fmt.Sprintf("runs of each, %d to 1000", bench.MinRuns))
	flags.IntVar(&before, "before", 0, fmt.Sprintf("runs of a program, one after the other, before each that is "+
		"measured, 0 to %d", bench.MaxBefore))
	jsonFlag(cmd, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := bench.CheckRuns(runs, before); err != nil {
			return usageError(fmt.Errorf("--runs and --before: %w", err))
		}
		works := slices.DeleteFunc(bench.Works(),
			func(w bench.Work) bool { return !strings.Contains(w.Name, only) })
		if len(works) == 0 {
			return usageErrorf("--only %q: no row has it in its name; fmp bench peers without it "+
				"prints them all", only)
		}
		b := &bench.Bench{Peers: bench.Peers(folder), Data: cfg.Dataset.Dir}
		if !b.Peers.Ready() {
			fmt.Fprintf(cmd.ErrOrStderr(),
				"%s has no peer.py and venv: other programs but the ONNX Runtime are left out (make "+
					"bench-peers makes it)\n", folder)
		}
		eng, err := openEngine(cmd.Context(), cfg.Engine, 1, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		defer eng.Close()
		b.Engine = eng
		out := peersReport{Go: runtime.Version() + " " + runtime.GOARCH,
			Instructions: dense.Instructions(), Runs: runs, Before: before}
		wide := 0
		for _, w := range works {
			wide = max(wide, len(w.Name))
		}
		for i, w := range works {
			r, err := b.Measure(cmd.Context(), w, runs, before)
			out.Works = append(out.Works, peerResult{w.Name, r})
			if err == nil && !wantsJSON(cmd) {
				err = out.Works[i].print(cmd.OutOrStdout(), wide, i == 0)
			}
			if err != nil {
				return err
			}
		}
		return say(cmd, out,
			"\nProcessor time: medians of %d runs in turns (least to most), one thread; %s; %s.\n",
			out.Runs, out.Go, out.Instructions)
	}
	return cmd
}

// print writes the lines of a row, its name in a column that is wide enough for all.
func (p *peerResult) print(out io.Writer, wide int, heading bool) error {
	var b strings.Builder
	line := func(work, with, ms, times string) {
		fmt.Fprintf(&b, "%-*s  %-36s %-28s %s\n", wide, work, with, ms, times)
	}
	if heading {
		line("work", "with", "ms", "times as long as fmp")
	}
	name := p.Work
	for _, r := range p.Results {
		ms, times := "not at hand", ""
		if !r.Missing {
			ms = fmt.Sprintf("%.4g (%.4g to %.4g)", 1e3*r.Seconds.Median, 1e3*r.Seconds.Least,
				1e3*r.Seconds.Most)
			times = fmt.Sprintf("%.2f (%.2f to %.2f)", r.Ratio.Median, r.Ratio.Least, r.Ratio.Most)
		}
		line(name, r.Name, ms, times)
		name = ""
	}
	if _, err := io.WriteString(out, b.String()); err != nil {
		return fmt.Errorf("printing the measurements: %w", err)
	}
	return nil
}
