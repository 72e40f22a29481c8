package docs

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"fmp/pipeline/lab/coverage"
)

// keptCoverage is the output of fmp bench sets --json, and of that with --false.
type keptCoverage struct {
	Dataset                  string
	Clients, Points, Repeats int
	Alpha, Level             float64
	FalseShare               float64 `json:"false_share"`
	Rows                     []coverage.Row
	False                    []coverage.FalseRow
}

// readCoverage reads a kept run of a data set and alpha.
func readCoverage(t *testing.T, file, data string, alpha, falseShare float64) (k keptCoverage) {
	t.Helper()
	readJSON(t, fmt.Sprintf("sets/%s%s-%g.json", file, data, alpha), &k)
	if k.Dataset != data || k.Alpha != alpha || k.Clients != 10 || k.Repeats != 20 ||
		k.Level != 0.9 || k.FalseShare != falseShare {
		t.Fatalf("%s%s, alpha %g, is of %+v", file, data, alpha, k)
	}
	return k
}

// TestCoverage: the table of prediction sets is that of the kept runs, and on images drawn as the
// points are, sets of the clients' mixture hold no less than stated, to within four standard
// errors.
func TestCoverage(t *testing.T) {
	var b strings.Builder
	for _, data := range []string{"mnist", "cifar10", "cifar100"} {
		for _, alpha := range []float64{0, 0.1} {
			k := readCoverage(t, "", data, alpha, 0)
			b.WriteString("\n")
			heading(&b, "%s, %s, %d images a client | >rounds | >held, drawn as the points | >held, "+
				"test file | >with equal classes | >least held class | >size | >regression: held | >size",
				data, ofAlpha(alpha), k.Points)
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
						t.Errorf("%s, alpha %g, %s %s: %s of %g hold %.3f ± %.3f", data, alpha,
							r.Sets, r.Score, "sets", k.Level, m.Alike, m.HeldError)
					}
				}
				fmt.Fprintf(&b, " %s | %.3f ± %.3f | %.3f | %.3f | %.2f | %.3f | %.2f |\n", alike,
					m.Held, 2*m.HeldError, m.Equal, slices.Min(m.Classes), m.Size, g.Held, g.Size)
			}
		}
	}
	write(t, "results/sets/README.md", "sets", b.String()+"\n")
}

// TestFalsePoints: the table of sets with false points is that of the kept runs. Where two of ten
// clients send the next class's names or points that are too easy, sets hold .88 or more and, but
// for the noise of ten points a client, .93 or less, and are at most 1.5 times as large as those of
// honest rounds that survive none.
func TestFalsePoints(t *testing.T) {
	var b strings.Builder
	rows := map[string]string{}
	var order []string
	for _, data := range []string{"cifar10", "cifar100", "mnist"} {
		for _, alpha := range []float64{0, 0.1, 0.5} {
			var honest float64
			for _, r := range readCoverage(t, "false-", data, alpha, 0.2).False {
				if r.Attack == "none" {
					honest = r.PlainSize
				}
				if r.Bad == 2 && (r.Attack == "wrong" || r.Attack == "easy") &&
					(r.Held < 0.88 || data != "mnist" && r.Held > 0.93 ||
						r.Size > 1.5*honest) {
					t.Errorf("%s, alpha %g, %d points, %s: %.3f held, size %.2f, of %.2f", data, alpha,
						r.Calibrate, r.Attack, r.Held, r.Size, honest)
				}
				if data != "cifar10" || r.Bad == 1 {
					continue
				}
				name := fmt.Sprintf("| %s, %d of 10", r.Attack, r.Bad)
				if r.Bad == 0 {
					name = "| honest clients"
				}
				if r.Calibrate == 10 && alpha == 0 {
					order = append(order, name)
				}
				rows[fmt.Sprint(name, r.Calibrate)] += fmt.Sprintf(" %.3f, %.2f |", r.Held, r.Size)
			}
		}
	}
	b.WriteString("\n")
	heading(&b, "held, mean size%s", joined([]int{10, 40}, func(points int) string {
		return joined([]float64{0, 0.1, 0.5}, func(alpha float64) string {
			return fmt.Sprintf(" | %s, %d points", ofAlpha(alpha), points)
		})
	}))
	for _, name := range order {
		fmt.Fprintf(&b, "%s |%s%s\n", name, rows[name+"10"], rows[name+"40"])
	}
	write(t, "sets.md", "false points", b.String()+"\n")
}
