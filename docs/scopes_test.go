package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/onnx/must"
	"fmp/pipeline/lab/report"
	"fmp/pipeline/lab/rival"
	"fmp/pipeline/lab/score"
	"fmp/pipeline/metric"
)

// isRival reports whether a row is a one-shot rival of FMP: its server has uploads, and the corpus
// that all of them may use.
func isRival(r *report.Row) bool {
	return r.Group == "one-shot federated" && !strings.HasPrefix(r.Method, "FMP")
}

// scopeText is a table for each partition of a run in which every method has its own settings and
// temperature: the paired difference of the method own to each.
func scopeText(t *testing.T, title, own string, k *keptRun) string {
	var b strings.Builder
	for _, tab := range k.tunedTables() {
		fmt.Fprintf(&b, "**%s, %s**, %d repeats\n\n", title, tab.Partition, tab.Repeats)
		heading(&b, "method | >ACC | >ECE | >raw NLL | >NLL | >joint NLL | >upload | "+
			">%s less it: NLL | >joint NLL", own)
		for _, r := range tab.Rows {
			size := "-"
			if r.UploadBytes > 0 {
				size = fmt.Sprintf("%.0f B", r.UploadBytes)
			}
			raw := "-"
			if r.RawNLL.N > 0 {
				raw = fmt.Sprintf("%.3f", r.RawNLL.Mean)
			}
			fmt.Fprintf(&b, "| %s | %.4f | %.4f | %s | %.4f ± %.4f | %.4f | %s |", r.Method, r.ACC.Mean,
				r.ECE.Mean, raw, r.NLL.Mean, r.NLL.Half, r.JointNear.Mean, size)
			if r.Method == own {
				b.WriteString(" | |\n")
				continue
			}
			d := k.pair(t, tab, own, r.Method)
			fmt.Fprintf(&b, " %s | %s |\n", signed(d.NLL), signed(d.JointNear))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// figureOf is a figure of a row or of a difference.
type figureOf = func(report.Figures) metric.Interval

// likelihoods are NLL and joint NLL.
var likelihoods = []figureOf{func(f report.Figures) metric.Interval { return f.NLL },
	func(f report.Figures) metric.Interval { return f.JointNear }}

// bestRival is the rival with the least mean of a figure of a table.
func bestRival(t *testing.T, tab *report.Table, of figureOf) (best *report.Row) {
	for r := range tab.Rows {
		row := &tab.Rows[r]
		if isRival(row) && (best == nil || of(row.Figures).Mean < of(best.Figures).Mean) {
			best = row
		}
	}
	if best == nil {
		t.Fatal("a table without a rival")
	}
	return best
}

// measuredText is the table of the page of results: FMP, or one posterior where the corpus has the
// classes, and its best rival in NLL with homogeneous and with skewed clients, a line a run.
func measuredText(t *testing.T) string {
	var b strings.Builder
	b.WriteString("| classes | accuracy, even \\| skewed | NLL | difference to the best rival's NLL " +
		"|\n| --- | --- | --- | --- |\n")
	for _, m := range []struct{ scope, run, title string }{
		{"open", "cifar100-20", "20 of CIFAR-100, **classes that the corpus lacks**"},
		{"open", "cifar10-40", "CIFAR-10 behind a CIFAR-100 model, **classes that the corpus lacks**"},
		{"pretrained", "cifar10-20", "CIFAR-10 behind EfficientNet-Lite0, **no corpus**"},
		{"closed", "cifar10", "CIFAR-10, known to the server (FMP-one)"},
		{"closed", "mnist", "MNIST, known to the server (FMP-one)"},
	} {
		k, method := readKept(t, m.scope, m.run), "FMP"
		if m.scope == "closed" {
			method = "FMP-one"
		}
		var acc, nll, less []string
		for _, tab := range k.tunedTables() {
			own := rowOf(t, tab, method)
			best := bestRival(t, tab, likelihoods[0])
			d := k.pair(t, tab, method, best.Method).NLL
			acc = append(acc, fmt.Sprintf("%.3f", own.ACC.Mean))
			nll = append(nll, fmt.Sprintf("%.3f", own.NLL.Mean))
			less = append(less, fmt.Sprintf("%+.4f ± %.4f (%s)", d.Mean, d.Half, best.Method))
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", m.title, strings.Join(acc, " \\| "),
			strings.Join(nll, " \\| "), strings.Join(less, " \\| "))
	}
	return b.String()
}

// answerText is README's table: FMP and its best rival in NLL behind a published network, for even
// and for skewed clients.
func answerText(t *testing.T) string {
	var b strings.Builder
	heading(&b, "ten classes of photographs (CIFAR-10), ten clients | >accuracy | >NLL (less "+
		"is better) | >best other method, NLL | >FMP less it")
	k := readKept(t, "pretrained", "cifar10-20")
	for _, tab := range k.tunedTables() {
		clients := "every client has all classes"
		if tab.Partition != "homogeneous" {
			clients = "every client has few classes"
		}
		own := rowOf(t, tab, "FMP")
		best := bestRival(t, tab, likelihoods[0])
		d := k.pair(t, tab, "FMP", best.Method).NLL
		fmt.Fprintf(&b, "| %s | %.3f | %.3f | %.3f (%s) | %+.3f ± %.3f |\n", clients, own.ACC.Mean,
			own.NLL.Mean, best.NLL.Mean, best.Method, d.Mean, d.Half)
	}
	return b.String()
}

// bestText is a line for each partition of each run: the method method beside the rival with the
// least mean NLL, and the one with the least joint NLL, each tuned, and what its intervals hold.
func bestText(t *testing.T, method string, titles []string, runs []*keptRun) string {
	var b strings.Builder
	heading(&b, "tasks | clients | >%[1]s: NLL | >joint NLL | best rival in NLL | %[1]s less "+
		"it | best in joint NLL | %[1]s less it | >90%% intervals hold: top class | >where p < "+
		"0.9", method)
	for i, k := range runs {
		for _, tab := range k.tunedTables() {
			own := rowOf(t, tab, method)
			fmt.Fprintf(&b, "| %s | %s | %.4f | %.4f |", titles[i], tab.Partition, own.NLL.Mean,
				own.JointNear.Mean)
			for _, of := range likelihoods {
				best := bestRival(t, tab, of)
				x := of(k.pair(t, tab, method, best.Method).Figures)
				word := "tie"
				switch {
				case x.Mean+x.Half < 0:
					word = "met"
				case x.Mean-x.Half > 0:
					word = "**missed**"
				}
				fmt.Fprintf(&b, " %s %.4f | %+.4f ± %.4f, %s |", best.Method, of(best.Figures).Mean,
					x.Mean, x.Half, word)
			}
			for _, c := range []metric.Interval{own.CoverTop, own.CoverUncertain} {
				cover := "-"
				if c.N > 0 {
					cover = fmt.Sprintf("%.3f", c.Mean)
					if c.Mean < 0.85 || c.Mean > 0.95 {
						cover += ", **missed**"
					}
				}
				fmt.Fprintf(&b, " %s |", cover)
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

// closedReference are the NLL of the executable reference of the conjugate predictor on the same
// features, homogeneous clients and alpha 0.1, with its own scalars.
var closedReference = map[string][2]float64{"cifar10": {0.469, 0.513}, "cifar100": {0.782, 0.881},
	"mnist": {0.0248, 0.0249}}

// closedAimsText holds the runs in closed scope against what was aimed at.
func closedAimsText(t *testing.T, names []string, runs []*keptRun) string {
	var b strings.Builder
	heading(&b, "tasks | clients | NLL below every rival's (MNIST: not above by more than the "+
		"interval) | joint NLL likewise | raw NLL at most 0.003 above the reference's | 90%% "+
		"of the intervals of the regression's top class, 0.85 to 0.95 | CFMP's weights")
	for i, k := range runs {
		for j, alpha := range []float64{0, 0.1} {
			tab := k.table(t, alpha, "tuned")
			fmt.Fprintf(&b, "| %s | %s |", names[i], tab.Partition)
			for _, of := range likelihoods {
				var worst metric.Interval
				name := ""
				for r := range tab.Rows {
					if !isRival(&tab.Rows[r]) {
						continue
					}
					x := of(k.pair(t, tab, "FMP-one", tab.Rows[r].Method).Figures)
					// On MNIST the aim is not to be above any by more than the interval.
					if name == "" || names[i] != "mnist" && x.Hi() > worst.Hi() ||
						names[i] == "mnist" && x.Lo() > worst.Lo() {
						worst, name = x, tab.Rows[r].Method
					}
				}
				met := worst.Hi() < 0
				if names[i] == "mnist" {
					met = worst.Lo() <= 0
				}
				fmt.Fprintf(&b, " %s |",
					verdict(met, "%+.4f ± %.4f to %s", worst.Mean, worst.Half, name))
			}
			reference := closedReference[names[i]][j]
			raw := rowOf(t, k.table(t, alpha, "shared"), "FMP-one").NLL.Mean
			fmt.Fprintf(&b, " %s |", verdict(raw <= reference+0.003, "%.4f (%.4f)", raw, reference))
			hold := meanOf(t, k, tab.Partition, "tuned", ofRegression)
			fmt.Fprintf(&b, " %s |", verdict(hold >= 0.85 && hold <= 0.95, "%.3f", hold))
			weighting := 1.0
			for _, c := range k.tuned.Choices {
				if c.Method == "CFMP" && c.Partition == tab.Partition {
					weighting = c.More[rival.ParamWeighting]
				}
			}
			word := "by precision"
			if weighting == 0 {
				word = "equal weights"
			}
			fmt.Fprintf(&b, " %s chosen on the corpus |\n", word)
		}
	}
	return b.String()
}

// shiftsText is what the run with other and spoiled images says.
func shiftsText(t *testing.T, k *keptRun) string {
	var b strings.Builder
	others := k.config.Scores.Other
	for _, partition := range bothPartitions {
		fmt.Fprintf(&b, "**%s, %s**\n\n", k.config.Dataset.Name, partition)
		heading(&b, "method | >%s | >by disagreement: %[1]s | >spoiled, severity 1: NLL | >2 | >3 | "+
			">4 | >5", strings.Join(others, " | >"))
		for _, m := range k.config.Methods {
			// mean is a cell of a figure of the shifts of a name, or of a severity of any.
			mean := func(name string, severity int, of func(*score.Shifted) float64) (float64, bool) {
				var all []float64
				for _, r := range k.records {
					for i := range r.Shifted {
						s := &r.Shifted[i]
						if r.Method == m && r.Partition == partition && s.Severity == severity &&
							(severity > 0 || s.Name == name) && of(s) > 0 {
							all = append(all, of(s))
						}
					}
				}
				if len(all) == 0 {
					return 0, false
				}
				return estimateOf(t, all).Mean, true
			}
			fmt.Fprintf(&b, "| %s |", m)
			aims := map[string]float64{"cifar100": 0.84, "mnist": 0.77}
			for _, o := range others {
				v, _ := mean(o, 0, func(s *score.Shifted) float64 { return s.Entropy })
				if aim, ok := aims[o]; ok && m == "FMP" {
					fmt.Fprintf(&b, " %s |", verdict(v >= aim, "%.3f (aim %.2f)", v, aim))
				} else {
					fmt.Fprintf(&b, " %.3f |", v)
				}
			}
			for _, o := range others {
				if v, ok := mean(o, 0, func(s *score.Shifted) float64 { return s.Disagreement }); ok {
					fmt.Fprintf(&b, " %.3f |", v)
				} else {
					b.WriteString(" - |")
				}
			}
			for severity := 1; severity <= 5; severity++ {
				v, _ := mean("", severity, func(s *score.Shifted) float64 { return s.NLL })
				fmt.Fprintf(&b, " %.3f |", v)
			}
			b.WriteString("\n")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// TestMeasured: README's table is that of the kept runs.
func TestMeasured(t *testing.T) { write(t, "../README.md", "measured", answerText(t)) }

// scopeRuns are the kept runs of each scope, in the order of their tables.
var scopeRuns = map[string][]string{
	"open": {"cifar100-20", "cifar100-10", "cifar100-5", "cifar100-5-hmc", "cifar10-10",
		"cifar10-10-hmc", "cifar10-40", "digits", "points-5", "clients-100"},
	"closed": {"cifar10", "cifar100", "mnist"},
}

// TestScopes: the tables of open and closed scope are those of the kept runs, each of ten repeats.
func TestScopes(t *testing.T) {
	for scope, names := range scopeRuns {
		entries := must.Get(os.ReadDir(filepath.Join("results", scope)))(t)
		for _, e := range entries {
			if e.IsDir() && !slices.Contains(names, e.Name()) {
				t.Errorf("the run results/%s/%s stands in no table", scope, e.Name())
			}
		}
		var runs []*keptRun
		var tables strings.Builder
		own := "FMP"
		if scope == "closed" {
			own = "FMP-one"
		}
		for _, n := range names {
			k := readKept(t, scope, n)
			repeated(t, k)
			runs = append(runs, k)
			tables.WriteString(scopeText(t, n, own, k))
		}
		write(t, "results/all.md", scope+"-best", bestText(t, own, names, runs))
		if scope == "closed" {
			write(t, "results/all.md", "closed-aims", closedAimsText(t, names, runs))
			write(t, "results/all.md", "shifts", shiftsText(t, readKept(t, "shifts", "cifar10")))
		}
		write(t, "results/"+scope+"/README.md", scope, tables.String())
	}
}
