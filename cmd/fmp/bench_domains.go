package main

import (
	"fmt"
	"io"
	"maps"
	"strings"

	"github.com/spf13/cobra"

	"fmp/pipeline/lab/domains"
	"fmp/pipeline/lab/experiment"
)

// measuredDomains is the output of fmp bench domains.
type measuredDomains struct {
	Dataset    string        `json:"dataset"`
	Kinds      []string      `json:"kinds"`
	Severities []int         `json:"severities"`
	Points     int           `json:"points"`
	Alpha      float64       `json:"alpha"` // 0: homogeneous
	Repeats    int           `json:"repeats"`
	Rows       []domains.Row `json:"rows"`
}

func newBenchDomainsCommand() *cobra.Command {
	var alpha float64
	var asJSON bool
	cfg := experiment.Default()
	cmd := &cobra.Command{
		Use:   "domains",
		Short: "Measure clients whose images come from domains of their own: other cameras, light or sharpness",
		Long: `Draw rounds of ten clients, each with images of a kind and severity of corruption of its own (noise, blur, contrast, brightness,
pixels; two severities), and print accuracy and NLL on images of the clients' domains and on those of a kind that no client has, each
kind left out in turn.

FMP is measured in the scope that the uploads show and in closed scope (without predictors: of uploads of moments): with all clients
taken for alike, for a client to come, and for each client of the round (fmp pool --for). Rivals are
a softmax regression on all features, FedCGS, Fed3R, FedPFT and the clients' own fits, each also with every client's features less their
mean, and test features less the mean of 50 unlabelled images of their domain. Rivals have the setting and temperature that are best on
the test images.`,
		Example: `  fmp bench domains --dataset cifar10
  fmp bench domains --dataset cifar10 --alpha 0.3 --points 40 --seeds 3 --json`,
		Args: noArgs,
	}
	aliases := maps.Clone(runAliases)
	s := bindSettings(cmd, &cfg, aliases, "engine.", "dataset.", "corpus.", "extractor.", "open.", "federation.points", "conjugate.", "seeds",
		"seed")
	f := cmd.Flags()
	f.Float64Var(&alpha, "alpha", 0, "Dirichlet parameter of the partition; 0 for homogeneous clients")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := s.resolve(); err != nil {
			return err
		}
		if !(alpha >= 0 && alpha <= 1000) {
			return usageErrorf("bench domains: --alpha is %v; allowed are 0 to 1000", alpha)
		}
		cfg.Methods, cfg.Scores.Corruptions, cfg.Scores.Images = []string{"FMP"}, true, domains.Images
		eng, err := openEngine(cmd.Context(), cfg.Engine, 1, cmd.ErrOrStderr())
		if err != nil {
			return err
		}
		defer eng.Close()
		bar := newProgress(cmd.ErrOrStderr())
		defer bar.close()
		p, err := experiment.Prepare(cmd.Context(), cfg, eng, nil, nil)
		if err != nil {
			return usageError(err)
		}
		defer p.Close()
		c := p.Config
		res := measuredDomains{Dataset: c.Dataset.Name, Kinds: domains.Kinds, Severities: domains.Severities, Points: c.Federation.Points,
			Alpha: alpha, Repeats: c.Seeds}
		if res.Rows, err = domains.Run(cmd.Context(), p, domains.Options{Points: res.Points, Rivals: domains.Rivals, Repeats: res.Repeats,
			Samples: c.Conjugate.Samples, Alpha: alpha, Seed: c.Seed,
			Threads: c.Engine.Threads, Progress: bar.report}); err != nil {
			return err
		}
		if asJSON {
			return printJSON(cmd.OutOrStdout(), res)
		}
		return res.print(cmd.OutOrStdout())
	}
	return cmd
}

func (r *measuredDomains) print(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d images a client, alpha %g, %d repeats\n%-40s %17s %17s\n%-40s %8s %8s %8s %8s\n", r.Dataset, r.Points, r.Alpha,
		r.Repeats, "", "known domain", "unknown kind", "", "ACC", "NLL", "ACC", "NLL")
	for _, row := range r.Rows {
		fmt.Fprintf(&b, "%-40s %8.3f %8.3f", row.Name, row.Known.ACC, row.Known.NLL)
		if row.Unknown != nil {
			fmt.Fprintf(&b, " %8.3f %8.3f", row.Unknown.ACC, row.Unknown.NLL)
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}
