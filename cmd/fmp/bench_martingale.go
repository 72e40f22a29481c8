package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/lab/martingale"
)

// measuredPaths is the output of fmp bench martingale.
type measuredPaths struct {
	Dataset string           `json:"dataset"`
	Clients int              `json:"clients"`
	Points  int              `json:"points"`
	Alpha   float64          `json:"alpha"` // 0: homogeneous
	Repeats int              `json:"repeats"`
	Paths   int              `json:"paths"`
	Rows    []martingale.Row `json:"rows"`
}

func newBenchMartingaleCommand() *cobra.Command {
	var res measuredPaths
	o := martingale.Options{Test: 500}
	cfg := experiment.Default()
	cmd := &cobra.Command{
		Use:   "martingale",
		Short: "Measure predictive resampling: the drift of predictions as draws are appended",
		Long: `Draw images from a method's own prediction, append them to what the round knows, make the head
again, and so on. A posterior of a martingale keeps its mean prediction: the drift is the change of
the mean probability, over paths and test images, of the class that the start takes for the most
probable. Moved is how far the mean of a single image goes from its start.

FMP-ISAB draws points by the paper's predictor, given all points before them (--l2 is the penalty of
its fits). FMP-one draws images of the discriminant of most weight, without a corpus and at a fixed
temperature. Spread is the standard deviation over paths, and of the method's own samples.`,
		Example: `  fmp bench martingale --dataset mnist
  fmp bench martingale --dataset cifar10 --alpha 0.1 --paths 100 --batches 20 --json`,
		Args: noArgs,
	}
	bindSettings(cmd, &cfg, runAliases, "engine.", "dataset.", "corpus.",
		"extractor.", "federation.clients", "federation.points", "predictor.", "embedding.",
		"seeds", "seed")
	f := cmd.Flags()
	f.Float64Var(&res.Alpha, "alpha", 0,
		"Dirichlet parameter of the partition; 0 for homogeneous clients")
	f.IntVar(&o.Paths, "paths", 40, "paths of a round, 2 to 1000")
	f.IntVar(&o.Batches, "batches", 10, "batches of a path, 1 to 100")
	f.IntVar(&o.Batch, "batch", 50, "draws of a batch, 1 to 1000")
	f.Float64Var(&o.L2, "l2", 1,
		"penalty of the fits to points, in units of the objective; above 0 to 1e6")
	jsonFlag(cmd, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !(res.Alpha >= 0 && res.Alpha <= 1000) || o.Paths < 2 || o.Paths > 1000 || o.Batches < 1 ||
			o.Batches > 100 || o.Batch < 1 ||
			o.Batch > 1000 || !(o.L2 > 0 && o.L2 <= 1e6) {
			return usageErrorf("bench martingale: --alpha is %v, --paths %d, --batches %d, --batch %d and "+
				"--l2 %v; allowed are 0 to 1000, 2 to 1000, 1 to 100, 1 to 1000, and above 0 to 1e6", res.Alpha,
				o.Paths, o.Batches, o.Batch, o.L2)
		}
		cfg.Methods = []string{"FMP-ISAB"}
		return benched(cmd, cfg, func(p *experiment.Prepared, bar *progress) (err error) {
			c := p.Config
			res.Dataset, res.Clients, res.Points, res.Repeats, res.Paths = c.Dataset.Name,
				c.Federation.Clients, c.Federation.Points, c.Seeds,
				o.Paths
			o.Clients, o.Images, o.Alpha, o.Repeats, o.Seed = res.Clients, res.Points, res.Alpha,
				res.Repeats, c.Seed
			o.Threads, o.Progress = c.Engine.Threads, bar.report
			if res.Rows, err = martingale.Run(cmd.Context(), p, o); err != nil {
				return err
			}
			return tell(cmd, res, res.print)
		})
	}
	return cmd
}

func (r *measuredPaths) print(b *strings.Builder) {
	fmt.Fprintf(b, "%s, %d clients of %d images, alpha %g, %d repeats, %d paths\n", r.Dataset,
		r.Clients, r.Points, r.Alpha, r.Repeats, r.Paths)
	for _, row := range r.Rows {
		fmt.Fprintf(b, "%-10s %6s %12s %19s %8s %8s\n", row.Method, "drawn", "probability", "drift",
			"moved", "spread")
		for _, s := range row.Steps {
			fmt.Fprintf(b, "%-10s %6.0f %12.4f %+9.4f +- %.4f %8.4f %8.4f\n", "",
				s.Drawn, s.Probability, s.Drift, s.DriftError, s.Moved, s.Spread)
		}
		fmt.Fprintf(b, "%-10s %59s %8.4f\n", "", "its own samples", row.Spread)
	}
}
