package docs

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"fmp/pipeline/lab/martingale"
)

// TestMartingale: the table of predictive resampling is of the kept runs. With -update it is
// written (make docs).
func TestMartingale(t *testing.T) {
	var b strings.Builder
	heading(&b, "tasks | clients | method | >start | >end | >first batch | >last batch | "+
		">moved | >spread | >of samples")
	for _, name := range []string{"mnist", "mnist-0.1", "cifar10", "cifar10-0.1"} {
		var kept struct{ Rows []martingale.Row }
		readJSON(t, filepath.Join("martingale", name+".json"), &kept)
		data, alpha, skewed := strings.Cut(name, "-")
		clients := "even"
		if skewed {
			clients = "alpha = " + alpha
		}
		for _, r := range kept.Rows {
			first, second, last := r.Steps[0], r.Steps[1], r.Steps[len(r.Steps)-1]
			fmt.Fprintf(&b,
				"| %s | %s | %s | %.4f | %.4f | %+.4f ± %.4f | %+.4f ± %.4f | %.4f | %.4f | %.4f |\n",
				data, clients, r.Method, first.Probability, last.Probability, second.Drift, 1.96*second.DriftError, last.Drift,
				1.96*last.DriftError, last.Moved, last.Spread, r.Spread)
			if r.Method == martingale.One {
				for _, s := range r.Steps {
					if d := s.Probability - first.Probability; d > 0.003 || d < -0.003 {
						t.Errorf("%s: FMP-one is %.4f from its start after %v draws; the page says .003",
							name, d, s.Drawn)
					}
				}
			}
		}
	}
	write(t, "results/martingale.md", "martingale", b.String())
}
