package main

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"fmp/onnx/dense"
	"fmp/pipeline/bench"
	"fmp/pipeline/experiment"
)

// peersReport is what fmp bench peers prints.
type peersReport struct {
	Go           string       `json:"go"`
	Instructions string       `json:"instructions"` // that products are done with
	Runs         int          `json:"runs"`
	Works        []peerResult `json:"works"`
}

type peerResult struct {
	Work    string         `json:"work"`
	Results []bench.Result `json:"results"`
}

func newBenchPeersCommand() *cobra.Command {
	var folder string
	var runs int
	var asJSON bool
	cfg := experiment.Default()
	cmd := &cobra.Command{
		Use:   "peers",
		Short: "Measure fits, predictions, networks and training beside other programs",
		Long: `Do the work of a task (fits, heads on shared points, predictions, networks on the pure engine, features, a step of training) and the same with
other programs, in turns on one thread, and print the processor time that it takes, medians, least and most, and how many times as long the others
take. A product of matrices says how fast the machine is.

scikit-learn, scipy, numpy and Python's onnxruntime are run by the script in the source tree's bench/peers, in a virtual environment that
make bench-peers makes; without them their rows are missing. ort is the ONNX Runtime, with a graph of the same.`,
		Example: `  fmp bench peers
  fmp bench peers --runs 15 --json`,
		Args: noArgs,
	}
	s := bindSettings(cmd, &cfg, nil, "engine.library")
	flags := cmd.Flags()
	flags.StringVar(&folder, "peers", "bench/peers", "`FOLDER` of the other programs' scripts and virtual environment")
	flags.IntVar(&runs, "runs", bench.LeastRuns, fmt.Sprintf("runs of each, %d to 1000", bench.LeastRuns))
	flags.BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := s.resolve(); err != nil {
			return err
		}
		if runs < bench.LeastRuns || runs > 1000 {
			return usageErrorf("--runs is %d; allowed are %d to 1000", runs, bench.LeastRuns)
		}
		b := &bench.Bench{Peers: bench.Peers(folder)}
		if !b.Peers.Ready() {
			fmt.Fprintf(cmd.ErrOrStderr(), "%s has no peer.py and venv: scikit-learn, scipy and numpy are left out (make bench-peers makes it)\n", folder)
		}
		eng, err := openEngine(cmd.Context(), cfg.Engine, 1, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		defer eng.Close()
		b.Engine = eng
		out := peersReport{Go: runtime.Version() + " " + runtime.GOARCH, Instructions: dense.Instructions(), Runs: runs}
		for _, w := range bench.Works() {
			r, err := b.Measure(cmd.Context(), w, runs)
			if err != nil {
				return err
			}
			out.Works = append(out.Works, peerResult{w.Name, r})
		}
		if len(b.Missing) > 0 {
			fmt.Fprintf(cmd.ErrOrStderr(), "left out, as the virtual environment of %s lacks them: %s\n", folder, strings.Join(b.Missing, ", "))
		}
		if asJSON {
			return printJSON(cmd.OutOrStdout(), out)
		}
		return out.print(cmd.OutOrStdout())
	}
	return cmd
}

func (p *peersReport) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "work\twith\tms\t\ttimes as long as fmp\t\n")
	for _, work := range p.Works {
		name := work.Work
		for _, r := range work.Results {
			fmt.Fprintf(w, "%s\t%s\t%.3g\t(%.3g to %.3g)\t%.2f\t(%.2f to %.2f)\n", name, r.Name, 1e3*r.Seconds.Median, 1e3*r.Seconds.Least, 1e3*r.Seconds.Most, r.Ratio.Median, r.Ratio.Least, r.Ratio.Most)
			name = ""
		}
	}
	fmt.Fprintf(w, "\nProcessor time: medians of %d runs in turns (least to most), one thread; %s; %s.\n", p.Runs, p.Go, p.Instructions)
	if err := w.Flush(); err != nil {
		return fmt.Errorf("printing the measurements: %w", err)
	}
	return nil
}
