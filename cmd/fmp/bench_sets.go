package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"fmp/pipeline/lab/coverage"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/pool"
)

// measuredSets is the output of fmp bench sets.
type measuredSets struct {
	Dataset string         `json:"dataset"`
	Clients int            `json:"clients"`
	Points  int            `json:"points"`
	Alpha   float64        `json:"alpha"` // 0: homogeneous
	Repeats int            `json:"repeats"`
	Level   float64        `json:"level"`
	Rows    []coverage.Row `json:"rows,omitempty"`
	// False are the rows of clients that send false points, for sets that survive such a share of
	// them.
	False      []coverage.FalseRow `json:"false,omitempty"`
	FalseShare float64             `json:"false_share,omitempty"`
}

func newBenchSetsCommand() *cobra.Command {
	var res measuredSets
	var falsePoints bool
	cfg := experiment.Default()
	cmd := &cobra.Command{
		Use:   "sets",
		Short: "Measure prediction sets from calibration points of clients: coverage and size",
		Long: `Draw rounds of ten clients that hold some images back as calibration points, 10 or 40 each, and
print how often sets of the level hold the class: of images that are drawn as the points are, of
test images with the classes' shares of the clients and with equal shares, and of the class that is
held least. Sets are those of the clients' mixture, by class, and for equal shares (docs/sets.md),
under both scores and under the adaptive one as it is published, with a random number for each
image.

Beside FMP are the same sets of a softmax regression on all images of all clients, with the penalty
and the temperature whose sets are smallest on the test images.

With --false some clients send false calibration points beside true class means, 0 to 4 in 10. The
sets are those of fmp pool, which survive false points of two clients in ten, beside sets that
survive none; they are scored on new images of the honest clients.`,
		Example: `  fmp bench sets --dataset cifar10 --points 200
  fmp bench sets --dataset cifar10 --points 200 --alpha 0.1 --seeds 20 --json
  fmp bench sets --dataset cifar10 --points 200 --false`,
		Args: noArgs,
	}
	bindSettings(cmd, &cfg, runAliases, "engine.", "dataset.", "corpus.",
		"extractor.", "federation.clients", "federation.points",
		"conjugate.", "seeds", "seed")
	f := cmd.Flags()
	f.Float64Var(&res.Alpha, "alpha", 0, "Dirichlet parameter of the partition; 0 for homogeneous clients")
	f.Float64Var(&res.Level, "level", 0.9, "probability with which a set holds the class, 0.5 to 0.999")
	f.BoolVar(&falsePoints, "false", false, "measure rounds in which clients send false calibration points")
	jsonFlag(cmd, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !(res.Alpha >= 0 && res.Alpha <= 1000) || !(res.Level >= 0.5 && res.Level <= 0.999) {
			return usageErrorf(
				"bench sets: --alpha is %v and --level %v; allowed are 0 to 1000, and 0.5 to 0.999",
				res.Alpha, res.Level)
		}
		calibrate := []int{10, 40}
		if least := 2 * calibrate[1]; cfg.Federation.Points < least {
			return usageErrorf(
				"bench sets: --points is %d; want %d or more, of which %d are calibration points",
				cfg.Federation.Points, least, calibrate[1])
		}
		cfg.Methods = []string{"FMP"}
		return benched(cmd, cfg, func(p *experiment.Prepared, bar *progress) (err error) {
			c := p.Config
			res.Dataset, res.Clients, res.Points, res.Repeats = c.Dataset.Name, c.Federation.Clients,
				c.Federation.Points, c.Seeds
			o := coverage.Options{Clients: res.Clients, Points: res.Points, Calibrate: calibrate,
				Repeats: res.Repeats, Samples: c.Conjugate.Samples, Level: res.Level, Alpha: res.Alpha,
				Seed: c.Seed, Threads: c.Engine.Threads,
				Progress: bar.report}
			if falsePoints {
				res.FalseShare = pool.FalseShare
				res.False, err = coverage.RunFalse(cmd.Context(), p, o, res.FalseShare)
			} else {
				res.Rows, err = coverage.Run(cmd.Context(), p, o)
			}
			if err != nil {
				return err
			}
			return tell(cmd, res, res.print)
		})
	}
	return cmd
}

func (r *measuredSets) print(b *strings.Builder) {
	fmt.Fprintf(b, "%s, %d clients of %d images, alpha %g, %d repeats, sets of %g\n", r.Dataset,
		r.Clients, r.Points, r.Alpha, r.Repeats, r.Level)
	if r.False != nil {
		r.printFalse(b)
		return
	}
	fmt.Fprintf(b, "%-52s %8s %8s %8s %8s %8s %8s %12s\n", "", "repeats", "alike", "held", "equal",
		"least", "size", "regression's")
	for _, row := range r.Rows {
		name := fmt.Sprintf("%d points each, %s, %s", row.Calibrate, row.Sets, row.Score)
		m := row.FMP
		if m.Repeats == 0 {
			fmt.Fprintf(b, "%-52s %8d\n", name, 0)
			continue
		}
		fmt.Fprintf(b, "%-52s %8d %8.3f %8.3f %8.3f %8.3f %8.2f %12.2f\n", name, m.Repeats, m.Alike,
			m.Held, m.Equal, slices.Min(m.Classes), m.Size,
			row.Regression.Size)
	}
}

// printFalse writes the rows of false calibration points.
func (r *measuredSets) printFalse(b *strings.Builder) {
	for _, a := range coverage.FalseAttacks {
		fmt.Fprintf(b, "%-6s %s\n", a.Name, a.Does)
	}
	fmt.Fprintf(b, "%-30s %8s %8s %8s %10s %10s %12s %12s\n", "", "held", "error", "size", "left out",
		"of others", "plain: held", "size")
	for _, row := range r.False {
		fmt.Fprintf(b, "%-30s %8.3f %8.3f %8.2f %10.2f %10.3f %12.3f %12.2f\n",
			fmt.Sprintf("%d points each, %s of %d", row.Calibrate, row.Attack, row.Bad), row.Held,
			row.HeldError, row.Size, row.LeftOut, row.Honest, row.PlainHeld, row.PlainSize)
	}
}
