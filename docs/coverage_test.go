package docs

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"fmp/pipeline/lab/coverage"
)

// keptCoverage is the output of fmp bench sets --json.
type keptCoverage struct {
	Dataset                  string
	Clients, Points, Repeats int
	Alpha, Level             float64
	Rows                     []coverage.Row
}

// TestCoverage: the table of prediction sets is that of the kept runs, and on images drawn as the points are, sets of the clients' mixture
// hold no less than stated, to within four standard errors.
func TestCoverage(t *testing.T) {
	var b strings.Builder
	for _, data := range []string{"mnist", "cifar10", "cifar100"} {
		for _, alpha := range []float64{0, 0.1} {
			text, err := os.ReadFile(fmt.Sprintf("results/sets/%s-%g.json", data, alpha))
			if err != nil {
				t.Fatal(err)
			}
			var k keptCoverage
			if err := json.Unmarshal(text, &k); err != nil {
				t.Fatal(err)
			}
			if k.Dataset != data || k.Alpha != alpha || k.Clients != 10 || k.Repeats != 20 || k.Level != 0.9 {
				t.Errorf("%s, alpha %g, is of %s, alpha %g, %d clients, %d repeats, level %g", data, alpha, k.Dataset, k.Alpha, k.Clients,
					k.Repeats, k.Level)
			}
			clients := "homogeneous"
			if alpha > 0 {
				clients = fmt.Sprintf("α = %g", alpha)
			}
			fmt.Fprintf(&b, "\n| %s, %s, %d images a client | rounds | held, drawn as the points | held, test file | with equal classes | "+
				"least held class | size | regression: held | size |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n", data,
				clients, k.Points)
			for _, r := range k.Rows {
				m, g := r.FMP, r.Regression
				fmt.Fprintf(&b, "| %d points, %s, %s | %d |", r.Calibrate, r.Sets, r.Score, m.Repeats)
				if m.Repeats == 0 {
					b.WriteString("  |  |  |  |  |  |  |\n")
					continue
				}
				alike := ""
				if m.AlikeRepeats > k.Repeats/2 {
					alike = fmt.Sprintf("%.3f", m.Alike)
					if m.Alike < k.Level-4*m.HeldError {
						t.Errorf("%s, alpha %g, %s %s: %s of %g hold %.3f ± %.3f", data, alpha, r.Sets, r.Score, "sets", k.Level, m.Alike, m.HeldError)
					}
				}
				least := m.Classes[0]
				for _, v := range m.Classes {
					least = min(least, v)
				}
				fmt.Fprintf(&b, " %s | %.3f ± %.3f | %.3f | %.3f | %.2f | %.3f | %.2f |\n", alike, m.Held, 2*m.HeldError, m.Equal, least, m.Size,
					g.Held, g.Size)
			}
		}
	}
	write(t, "results/README.md", "sets", b.String()+"\n")
}
