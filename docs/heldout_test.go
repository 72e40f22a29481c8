package docs

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/floats"

	"fmp/docs/internal/kept"
	"fmp/onnx/must"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/lab/report"
	"fmp/pipeline/metric"
)

// heldOut are the families of families.yaml, in its order, each with the kept runs of its splits
// and extractor seeds.
func heldOut(t *testing.T) (names []string, runs map[string][]*keptRun) {
	t.Helper()
	runs = map[string][]*keptRun{}
	for _, f := range readFamilies(t).Families {
		dirs := must.Get(filepath.Glob(filepath.Join("results", "families", f.Name, "*")))(t)
		for _, dir := range dirs {
			k := readKept(t, "families", f.Name, filepath.Base(dir))
			interior(t, k)
			if k.config.Seeds < 10 || k.config.Tuning.Classes == "" &&
				!strings.HasPrefix(f.Name, "digits") ||
				k.config.Federation.Points != f.Points {
				t.Errorf("%s has %d repeats of %d points, tuned on %q", k.dir, k.config.Seeds,
					k.config.Federation.Points, k.config.Tuning.Classes)
			}
			runs[f.Name] = append(runs[f.Name], k)
		}
		if len(dirs) > 0 {
			names = append(names, f.Name)
		}
	}
	return names, runs
}

// means are those of a figure over the repeats of each run that has it.
func means(runs []*keptRun, partition, method string, of kept.Figure) (out []float64) {
	for _, k := range runs {
		if all := k.repeats(partition, "", method, of); len(all) > 0 {
			out = append(out, mean(all))
		}
	}
	return out
}

// estimateOf returns the interval of figures over runs: each run, a class split with an extractor
// of its own, counts once, by its mean over repeats.
func estimateOf(t *testing.T, of []float64) metric.Interval {
	t.Helper()
	return must.Get(metric.Estimate(of, report.Level))(t)
}

// lessThose are figures of runs less others.
func lessThose(own, others []float64) []float64 {
	return floats.SubTo(make([]float64, len(own)), own, others)
}

// coverages are the figures of FMP's intervals: against its own limit and a regression, each at its
// top class and at the one that FMP names.
var coverages = []kept.Figure{
	func(r *experiment.Record) *float64 { return &r.Coverage.Top },
	func(r *experiment.Record) *float64 { return r.Coverage.Named },
	ofRegression,
	func(r *experiment.Record) *float64 { return r.Coverage.RegressionNamed },
}

// coverageCells writes a cell of each figure of a method over runs, and adds them to counts.
func coverageCells(t *testing.T, b *strings.Builder, runs []*keptRun, partition, method string,
	figures []kept.Figure, counts *held) {
	t.Helper()
	for _, of := range figures {
		v := estimateOf(t, means(runs, partition, method, of))
		fmt.Fprintf(b, " %s |", pm(v))
		counts.add(v.Mean)
	}
}

// coverageRows writes a line for each partition, which head formats, with the cells of figures of a
// method over runs.
func coverageRows(t *testing.T, b *strings.Builder, head, method string, runs []*keptRun,
	figures []kept.Figure) (counts held) {
	t.Helper()
	for _, partition := range bothPartitions {
		fmt.Fprintf(b, head, partition)
		coverageCells(t, b, runs, partition, method, figures, &counts)
		b.WriteString("\n")
	}
	return counts
}

// held counts shares of 90% intervals below, within and above .85 to .95.
type held struct{ below, in, above int }

func (n *held) add(share float64) {
	switch {
	case share < 0.85:
		n.below++
	case share <= 0.95:
		n.in++
	default:
		n.above++
	}
}

func pm(i metric.Interval) string {
	if i.N < 2 {
		return fmt.Sprintf("%.3f", i.Mean)
	}
	return fmt.Sprintf("%.3f ± %.3f", i.Mean, i.Half)
}

// coverageText is the coverage of FMP's intervals on the families that were fixed before they were
// scored.
func coverageText(t *testing.T) string {
	var b strings.Builder
	heading(&b, "tasks | clients | >extractors | >own limit: its top class | >the class named "+
		"| >regression: its top class | >the class named")
	names, runs := heldOut(t)
	var n held
	for _, name := range names {
		of := coverageRows(t, &b, fmt.Sprintf("| %s | %%s | %d |", name, len(runs[name])), "FMP",
			runs[name], coverages)
		n = held{n.below + of.below, n.in + of.in, n.above + of.above}
	}
	fmt.Fprintf(&b, "\nOf %d figures %d lie between .85 and .95, %d below and %d above.\n",
		n.below+n.in+n.above, n.in, n.below, n.above)
	return b.String()
}

// endsText compares learned ends of intervals with those of one half width, on the runs that have
// both.
func endsText(t *testing.T) string {
	var b strings.Builder
	heading(&b, "tasks | clients | >repeats | >own limit: its top class | >was | >the class "+
		"named | >was | >regression: its top class | >was | >the class named | >was")
	var n held
	for _, f := range readFamilies(t).Families {
		dirs := must.Get(filepath.Glob(filepath.Join("results", "ends", f.Name, "*")))(t)
		for _, dir := range dirs {
			k := readKept(t, "ends", f.Name, filepath.Base(dir))
			var was []*keptRun
			if _, err := os.Stat(filepath.Join("results", "families", f.Name, filepath.Base(dir))); err == nil {
				was = append(was, readKept(t, "families", f.Name, filepath.Base(dir)))
			}
			for _, partition := range bothPartitions {
				fmt.Fprintf(&b, "| %s/%s | %s | %d |", f.Name, filepath.Base(dir),
					partition, k.config.Seeds)
				for _, of := range coverages {
					coverageCells(t, &b, []*keptRun{k}, partition, "FMP", []kept.Figure{of}, &n)
					if before := means(was, partition, "FMP", of); len(before) > 0 {
						fmt.Fprintf(&b, " %s", pm(estimateOf(t, before)))
					}
					b.WriteString(" |")
				}
				b.WriteString("\n")
			}
		}
	}
	fmt.Fprintf(&b, "\nOf %d figures %d lie between .85 and .95.\n", n.below+n.in+n.above, n.in)
	return b.String()
}

// missesText says how far limits lie from the intervals that miss them.
func missesText(t *testing.T) string {
	var b strings.Builder
	heading(&b, "tasks | clients | >own limit: held | >missed upwards | >held where it is "+
		"below .9 | >held within .01 | >regression: held | >within .01")
	for _, run := range []string{"digits-mnist/0-1", "digits-drawn/0-1", "digits-8x8/0-1",
		"pretrained/1-1", "pretrained/2-1"} {
		k := readKept(t, "misses", filepath.FromSlash(run))
		coverageRows(t, &b, "| "+run+" | %s |", "FMP", []*keptRun{k}, []kept.Figure{
			coverages[0],
			func(r *experiment.Record) *float64 { return r.Coverage.Above },
			func(r *experiment.Record) *float64 { return r.Coverage.Uncertain },
			func(r *experiment.Record) *float64 { return r.Coverage.Near },
			ofRegression,
			func(r *experiment.Record) *float64 { return r.Coverage.RegressionNear },
		})
	}
	return b.String()
}

// closedCoverageText is the coverage of the closed form's intervals.
func closedCoverageText(t *testing.T) string {
	var b strings.Builder
	heading(&b, "tasks | clients | >own limit: its top class | >the class named | >regression: "+
		"its top class | >the class named")
	for _, name := range letterSets {
		k := readKept(t, "intervals", name)
		coverageRows(t, &b, "| "+name+" | %s |", "FMP", []*keptRun{k}, coverages)
	}
	for _, name := range letterSets { // one posterior has no limit of its own
		k := readKept(t, "closed", name)
		coverageRows(t, &b, "| "+name+", FMP-one | %s | - | - |", "FMP-one", []*keptRun{k}, coverages[2:])
	}
	return b.String()
}

// momentsCoverageText is the coverage of intervals of rounds of moments, of a regression alone: FMP
// has no limit of its own there.
func momentsCoverageText(t *testing.T) string {
	var b strings.Builder
	var n held
	heading(&b, "tasks | kappa | clients | >regression: its top class | >the class named | >its top "+
		"class, within .01")
	for _, run := range []string{"cifar10-10-20", "cifar10-10-20-unknown", "cifar10-10-200",
		"cifar100-20-20", "mnist-10-60-unknown", "small-10-60-unknown"} {
		k := readKept(t, "intervals", "moments-"+run)
		of, unknown := strings.CutSuffix(run, "-unknown")
		kappa := "known"
		if unknown {
			kappa = "not known"
		}
		for _, partition := range bothPartitions {
			fmt.Fprintf(&b, "| %s | %s | %s |", of, kappa, partition)
			coverageCells(t, &b, []*keptRun{k}, partition, "FMP", coverages[2:], &n)
			coverageCells(t, &b, []*keptRun{k}, partition, "FMP", []kept.Figure{
				func(r *experiment.Record) *float64 { return r.Coverage.RegressionNear }}, &held{})
			b.WriteString("\n")
		}
	}
	fmt.Fprintf(&b, "\nOf %d figures %d lie between .85 and .95.\n", n.below+n.in+n.above, n.in)
	return b.String()
}

// heldOutText compares FMP with the other posteriors around its point estimate on these families,
// over splits, and with the best rival of the runs that have rivals.
func heldOutText(t *testing.T) string {
	var b strings.Builder
	names, runs := heldOut(t)
	others := []string{"FMP-mean", "FMP-Laplace", "FMP-joint"}
	heading(&b, "tasks | clients | >extractors | >NLL | >joint NLL | >joint NLL less "+
		"FMP-mean's | >less FMP-Laplace's | >less FMP-joint's")
	joint := make([]tally, len(others))
	for _, name := range names {
		for _, partition := range bothPartitions {
			fmt.Fprintf(&b, "| %s | %s | %d | %.4f | %.4f |", name, partition, len(runs[name]),
				estimateOf(t, means(runs[name], partition, "FMP", kept.NLL)).Mean,
				estimateOf(t, means(runs[name], partition, "FMP", kept.Joint)).Mean)
			for j, other := range others {
				theirs := slices.DeleteFunc(slices.Clone(runs[name]),
					func(k *keptRun) bool { return !slices.Contains(k.config.Methods, other) })
				if len(theirs) == 0 { // the family leaves it out
					b.WriteString(" |")
					continue
				}
				d := estimateOf(t, lessThose(means(theirs, partition, "FMP", kept.Joint),
					means(theirs, partition, other, kept.Joint)))
				if d.N > 1 { // one extractor: no spread over splits
					joint[j].add(d)
				}
				fmt.Fprintf(&b, " %s |", signed(d))
			}
			b.WriteString("\n")
		}
	}
	b.WriteString("\n")
	for j, other := range others {
		fmt.Fprintf(&b, "- Joint NLL against %s, of the rows of several extractors: below in %d, tie "+
			"in %d, above in %d.\n", other, joint[j].below, joint[j].tie, joint[j].above)
	}
	b.WriteString("\n")
	heading(&b, "tasks | clients | >extractors | >FMP: NLL | least tuned NLL of a rival | >FMP "+
		"less it | least in hindsight | >FMP as tuned less it")
	for _, name := range names {
		withRivals := slices.DeleteFunc(slices.Clone(runs[name]),
			func(k *keptRun) bool { return !slices.Contains(k.config.Methods, "LDA") })
		for _, partition := range bothPartitions {
			if len(withRivals) > 0 {
				rivalsText(t, &b, name, partition, withRivals)
			}
		}
	}
	return b.String()
}

// rivalsOf returns the mean NLL of FMP over the repeats of each run, and those of its rivals, tuned
// and in hindsight.
func rivalsOf(runs []*keptRun,
	partition string) (own []float64, tuned, hindsight map[string][]float64) {
	tuned, hindsight = map[string][]float64{}, map[string][]float64{}
	for _, k := range runs {
		for _, tab := range k.tables {
			if tab.Partition != partition {
				continue
			}
			for _, r := range tab.Rows {
				switch {
				case r.Method == "FMP":
					own = append(own, r.NLL.Mean)
				case !strings.HasPrefix(r.Method, "FMP") && r.Method != "PRIOR":
					tuned[r.Method], hindsight[r.Method] = append(tuned[r.Method], r.NLL.Mean),
						append(hindsight[r.Method], r.HindsightNLL.Mean)
				}
			}
		}
	}
	return own, tuned, hindsight
}

// smallest returns the method of least mean.
func smallest(t *testing.T, rivals map[string][]float64) string {
	t.Helper()
	return slices.MinFunc(slices.Sorted(maps.Keys(rivals)), func(a, c string) int {
		return cmp.Compare(estimateOf(t, rivals[a]).Mean, estimateOf(t, rivals[c]).Mean)
	})
}

// rivalsText writes the row of a family and partition: FMP beside the rival of least mean NLL over
// extractors, tuned and in hindsight.
func rivalsText(t *testing.T, b *strings.Builder, name, partition string, runs []*keptRun) {
	t.Helper()
	own, tuned, hindsight := rivalsOf(runs, partition)
	fmt.Fprintf(b, "| %s | %s | %d | %.4f |", name, partition, len(own), estimateOf(t, own).Mean)
	for _, rivals := range []map[string][]float64{tuned, hindsight} {
		best := smallest(t, rivals)
		fmt.Fprintf(b, " %s %.4f | %s |", best, estimateOf(t, rivals[best]).Mean,
			signed(estimateOf(t, lessThose(own, rivals[best]))))
	}
	b.WriteString("\n")
}

// signed formats a difference over extractors, with its interval where there are several.
func signed(d metric.Interval) string {
	if d.N < 2 {
		return fmt.Sprintf("%+.4f", d.Mean)
	}
	return fmt.Sprintf("%+.4f ± %.4f", d.Mean, d.Half)
}

// TestHeldOutFamilies holds the pages' account of the families that were fixed beforehand to the
// kept runs.
func TestHeldOutFamilies(t *testing.T) {
	readsRuns(t)
	must.Get(os.Stat(filepath.Join("results", "families")))(t)
	write(t, "intervals.md", "coverage", coverageText(t))
	write(t, "intervals.md", "ends", endsText(t))
	write(t, "intervals.md", "misses", missesText(t))
	write(t, "intervals.md", "closed", closedCoverageText(t))
	write(t, "intervals.md", "moments", momentsCoverageText(t))
	write(t, "results/all.md", "families", heldOutText(t))
}
