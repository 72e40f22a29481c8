package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"fmp/onnx/suggest"
	"fmp/pipeline/lab/domains"
	"fmp/pipeline/lab/experiment"
)

// measuredDomains is the output of fmp bench domains.
type measuredDomains struct {
	Dataset    string        `json:"dataset"`
	Family     string        `json:"family"`
	Kinds      []string      `json:"kinds"`
	Severities []int         `json:"severities"`
	Clients    int           `json:"clients"` // of each domain
	Points     int           `json:"points"`
	Alpha      float64       `json:"alpha"` // 0: homogeneous
	Repeats    int           `json:"repeats"`
	Rows       []domains.Row `json:"rows"`
}

const benchDomainsLong = `Draw rounds of clients whose images come from domains of their own, and print
accuracy and NLL on images of the clients' domains and on those that no client has, each left out in
turn. --domains names them:

  corruptions  ten clients, each with a kind and severity of corruption of its own (noise, blur, contrast, brightness,
               pixels; two severities); a kind is left out in turn
  rotation     images turned by 0, 90, 180 and 270 degrees, two clients each
  digits       three sources of digits, three clients each: mnist, digits and digits8x8 (scikit-learn's;
               see docs/digits8x8); --dataset is the source that extractor and corpus have

FMP is measured in the scope that the uploads show and in closed scope (without predictors: of
uploads of moments): with all clients taken for alike, for a client to come, and for each client of
the round (fmp pool --for). Rivals are a softmax regression on all features, FedCGS, Fed3R, FedPFT
and the clients' own fits, each also with every client's features less their mean, and test features
less the mean of 50 unlabelled images of their domain; and all but the last with clients' and test
features moved towards the barycenter of the clients' Gaussians (SLOT-Align). Rivals have the
setting, strength and temperature that are best on the test images.`

func newBenchDomainsCommand() *cobra.Command {
	var alpha float64
	var closedForm bool
	family := domains.Families[0].Name
	cfg := experiment.Default()
	cmd := &cobra.Command{
		Use:   "domains",
		Short: "Measure clients whose images come from domains of their own: other cameras, light or sharpness",
		Long:  benchDomainsLong,
		Example: `  fmp bench domains --dataset cifar10
  fmp bench domains --dataset cifar10 --alpha 0.3 --points 40 --seeds 3 --json
  fmp bench domains --dataset mnist --domains digits --points 20`,
		Args: noArgs,
	}
	var names []string
	for _, f := range domains.Families {
		names = append(names, f.Name)
	}
	bindSettings(cmd, &cfg, runAliases, "engine.", "dataset.", "corpus.", "extractor.", "open.",
		"federation.points", "federation.calibration", "conjugate.", "seeds", "seed")
	f := cmd.Flags()
	f.Float64Var(&alpha, "alpha", 0, "Dirichlet parameter of the partition; 0 for homogeneous clients")
	f.StringVar(&family, "domains", family, "domains of clients: "+suggest.Or(names...))
	f.BoolVar(&closedForm, "closed-form", false, closedFormHelp)
	jsonFlag(cmd, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !(alpha >= 0 && alpha <= 1000) {
			return usageErrorf("bench domains: --alpha is %v; allowed are 0 to 1000", alpha)
		}
		at := slices.Index(names, family)
		if at < 0 {
			return usageErrorf("bench domains: --domains is %q; allowed are %s", family,
				suggest.Or(names...))
		}
		of := domains.Families[at]
		cfg.Methods, cfg.Scores.Domains, cfg.Scores.Images = []string{"FMP"}, of.Domains(),
			domains.Images
		return benched(cmd, cfg, func(p *experiment.Prepared, bar *progress) (err error) {
			if closedForm && p.Tools.Conjugate == nil {
				return errNoClosedForm("bench domains")
			}
			c := p.Config
			res := measuredDomains{Dataset: c.Dataset.Name, Family: family, Kinds: of.Kinds,
				Severities: of.Severities,
				Clients:    of.Clients, Points: c.Federation.Points, Alpha: alpha, Repeats: c.Seeds}
			if res.Rows, err = domains.Run(cmd.Context(), p,
				domains.Options{Family: of, Named: !closedForm, Points: res.Points, Rivals: domains.Rivals,
					Repeats: res.Repeats,
					Samples: c.Conjugate.Samples, Alpha: alpha, Seed: c.Seed,
					Threads: c.Engine.Threads, Progress: bar.report}); err != nil {
				return err
			}
			return tell(cmd, res, res.print)
		})
	}
	return cmd
}

func (r *measuredDomains) print(b *strings.Builder) {
	fmt.Fprintf(b,
		"%s, %s, %d images a client, alpha %g, %d repeats\n%-40s %17s %17s\n%-40s %8s %8s %8s %8s\n",
		r.Dataset, r.Family, r.Points, r.Alpha, r.Repeats, "", "known domain",
		"unknown kind", "", "ACC", "NLL", "ACC", "NLL")
	for _, row := range r.Rows {
		fmt.Fprintf(b, "%-40s %8.3f %8.3f", row.Name, row.Known.ACC, row.Known.NLL)
		if row.Unknown != nil {
			fmt.Fprintf(b, " %8.3f %8.3f", row.Unknown.ACC, row.Unknown.NLL)
		}
		b.WriteByte('\n')
	}
}
