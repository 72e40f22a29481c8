package docs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"fmp/docs/internal/kept"
	"fmp/onnx/atomicfile"
	"fmp/onnx/must"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/lab/report"
	"fmp/pipeline/metric"
)

// The data sets of the paper, as they are called in tables, and the one-shot methods it compares.
var (
	letterSets   = []string{"mnist", "cifar10", "cifar100"}
	letterTitles = []string{"MNIST", "CIFAR-10", "CIFAR-100"}
	// of the settings figure2
	letterMethods = []string{"LANN", "LBNN", "LMP", "ANN", "BNN", "MP", "CANN", "CBNN", "CFMP", "FMP",
		"FMP-ISAB", "FedCGS", "PRIOR"}
	consensus = []string{"CANN", "CBNN", "CFMP"}
)

// keptRun is a run in docs/results.
type keptRun struct {
	dir         string
	config      experiment.Config
	manifest    *experiment.Manifest
	tuned       *experiment.Tuned
	records     []experiment.Record
	tables      []*report.Table
	differences map[string][]report.Difference // FMP less the others, FMP-ISAB less the others
}

func readKept(t *testing.T, parts ...string) *keptRun {
	t.Helper()
	k := keptRun{dir: filepath.Join("results", filepath.Join(parts...)),
		differences: map[string][]report.Difference{}}
	if _, err := os.Stat(k.dir); errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the run %s is not kept; the page of results says how it is made", k.dir)
	}
	k.config = must.Get(experiment.ReadConfig(k.dir))(t)
	k.manifest = must.Get(experiment.ReadManifest(k.dir))(t)
	k.tuned = must.Get(experiment.ReadTuned(k.dir))(t)
	k.records = must.Get(experiment.ReadResults(k.dir))(t)
	k.tables = tablesOf(t, k.records, k.manifest)
	return &k
}

// tablesOf are the tables of a run's records.
func tablesOf(t *testing.T, rs []experiment.Record, m *experiment.Manifest) (out []*report.Table) {
	t.Helper()
	for _, tab := range must.Get(report.Tables(rs, m))(t) {
		out = append(out, &tab)
	}
	return out
}

// repeats is a figure of each repeat of a method, under a protocol or ("") any.
func (k *keptRun) repeats(partition, protocol, method string, of kept.Figure) map[int]float64 {
	return kept.Select(k.records,
		experiment.Cell{Partition: partition, Protocol: protocol, Method: method}, of)
}

// paired is the interval of a less b, figures of repeats; of a alone where b is nil.
func paired(t *testing.T, a, b map[int]float64) metric.Interval {
	t.Helper()
	return must.Get(kept.Less(a, b))(t)
}

// mean is that of a figure of repeats, added up in their order.
func mean(of map[int]float64) float64 {
	sum := 0.0
	for _, repeat := range slices.Sorted(maps.Keys(of)) {
		sum += of[repeat]
	}
	return sum / float64(len(of))
}

// tunedTables are those of a run whose settings are each method's own.
func (k *keptRun) tunedTables() []*report.Table {
	return slices.DeleteFunc(slices.Clone(k.tables),
		func(tab *report.Table) bool { return tab.Protocol == "shared" })
}

// table is the one of a partition's alpha (0: homogeneous) and protocol.
func (k *keptRun) table(t *testing.T, alpha float64, protocol string) *report.Table {
	t.Helper()
	for _, tab := range k.tables {
		if tab.Alpha == alpha && tab.Protocol == protocol {
			return tab
		}
	}
	t.Fatalf("%s has no table of alpha %g, %s", k.dir, alpha, protocol)
	return nil
}

func rowOf(t *testing.T, tab *report.Table, method string) *report.Row {
	t.Helper()
	for i := range tab.Rows {
		if tab.Rows[i].Method == method {
			return &tab.Rows[i]
		}
	}
	t.Fatalf("%s, %s has no %s", tab.Partition, tab.Protocol, method)
	return nil
}

// pair is one method's figures less another's.
func (k *keptRun) pair(t *testing.T, tab *report.Table, own, other string) report.Difference {
	t.Helper()
	if _, ok := k.differences[own]; !ok {
		k.differences[own] = must.Get(report.CompareMethods(k.records, k.manifest, own, false))(t)
	}
	for _, d := range k.differences[own] {
		if d.Partition == tab.Partition && d.Protocol == tab.Protocol && d.Second == other {
			return d
		}
	}
	t.Fatalf("%s: %s and %s were not compared", k.dir, own, other)
	return report.Difference{}
}

// largest is the largest difference of a figure, times sign, of a method to others in some tables, and
// which it is.
func (k *keptRun) largest(t *testing.T, tabs []*report.Table, own string, others []string, sign float64,
	of figureOf) (most float64, which string) {
	t.Helper()
	most = math.Inf(-1)
	for _, tab := range tabs {
		for _, m := range others {
			if d := of(k.pair(t, tab, own, m).Figures); sign*d.Mean > most {
				most, which = sign*d.Mean, fmt.Sprintf("%+.4f ± %.4f to %s", d.Mean, d.Half, m)
				if tab.Alpha > 0 {
					which += fmt.Sprintf(" at α = %g", tab.Alpha)
				}
			}
		}
	}
	return most, which
}

// heading begins a Markdown table: names of columns, those of numbers with > before them.
func heading(b *strings.Builder, columns string, values ...any) {
	names := strings.Split(fmt.Sprintf(columns, values...), " | ")
	rule := "|"
	for i, name := range names {
		var number bool
		if names[i], number = strings.CutPrefix(name, ">"); number {
			rule += " ---: |"
		} else {
			rule += " --- |"
		}
	}
	line := "| " + strings.Join(names, " | ") + " |"
	fmt.Fprintf(b, "%s\n%s\n", strings.ReplaceAll(line, "|  |", "| |"), rule)
}

// joined is a text of each value, one behind the other.
func joined[T any](of []T, text func(T) string) string {
	var b strings.Builder
	for _, v := range of {
		b.WriteString(text(v))
	}
	return b.String()
}

// readJSON reads a kept file of JSON.
func readJSON(t *testing.T, path string, to any) {
	t.Helper()
	must.Do(t, json.Unmarshal(must.Get(os.ReadFile(filepath.Join("results", path)))(t), to))
}

// ofAlpha names a partition of clients by its alpha, 0 for homogeneous ones.
func ofAlpha(alpha float64) string {
	if alpha == 0 {
		return "homogeneous"
	}
	return fmt.Sprintf("α = %g", alpha)
}

// verdict is a cell of the table of aims.
func verdict(met bool, format string, values ...any) string {
	word := "met"
	if !met {
		word = "**missed**"
	}
	return fmt.Sprintf(format, values...) + ", " + word
}

// TestResultsPage: the tables of results are those of the kept runs, each of which was of ten
// repeats at least, and Table I and Figure 2 have figures in common that are equal. With -update
// the tables are written (make docs).
func TestResultsPage(t *testing.T) {
	closed, figure2 := map[string]*keptRun{}, map[string]*keptRun{}
	for _, d := range letterSets {
		closed[d], figure2[d] = readKept(t, "closed", d), readKept(t, "figure2", d)
		sameFigures(t, closed[d], figure2[d])
		for _, k := range []*keptRun{closed[d], figure2[d]} {
			repeated(t, k)
			if k.config.Dataset.Name != d || k.config.Tasks.Labels != "permuted" {
				t.Errorf("%s is of %s, labels %s", k.dir, k.config.Dataset.Name, k.config.Tasks.Labels)
			}
		}
	}
	write(t, "results/closed/table1.md", "table1", table1Text(t, closed))
	write(t, "results/closed/table1.md", "differences", differencesText(t, closed))
	write(t, "results/figure2/README.md", "figure2", figure2Text(t, figure2))
	write(t, "results/all.md", "aims", aimsText(t, "FMP", closed, figure2))
	write(t, "results/all.md", "aims-isab", aimsText(t, "FMP-ISAB", closed, figure2))
	write(t, "results/ablation/README.md", "ablation", ablationText(t))
	write(t, "results/all.md", "conjugate", conjugateText(t))
	write(t, "results/all.md", "results-table", frontText(t, closed))
}

// sameFigures fails where two runs of the same seed score a method otherwise on the tasks that both
// have: what else is in a run does not show in a figure.
func sameFigures(t *testing.T, a, b *keptRun) {
	t.Helper()
	scores := map[experiment.Cell]metric.Scores{}
	for _, r := range a.records {
		scores[r.Cell] = r.Scores
	}
	both := 0
	for _, r := range b.records {
		s, ok := scores[r.Cell]
		if !ok {
			continue
		}
		both++
		if s.ACC != r.ACC || s.ECE != r.ECE || s.NLL != r.NLL || s.Brier != r.Brier {
			t.Errorf("%s, %s and %s differ: NLL %v and %v", r.Cell, a.dir, b.dir, s.NLL, r.NLL)
		}
	}
	if want := len(b.config.Protocols()) * a.config.Seeds * len(b.config.Methods); both != want {
		t.Errorf("%s and %s have %d cells in common, want %d", a.dir, b.dir, both, want)
	}
}

// write puts text between the marks of a page, or fails where it is not what stands there already.
func write(t *testing.T, path, name, text string) {
	t.Helper()
	page := must.Get(os.ReadFile(path))(t)
	has, from, to := between(t, string(page), name)
	if has == text {
		return
	}
	if !*update {
		t.Errorf("the part %s of %s is not what it is made from; run make docs\ngot:\n%s\nwant:\n%s",
			name, path, has, text)
		return
	}
	must.Do(t, atomicfile.WriteBytes(path, []byte(string(page[:from])+text+string(page[to:]))))
}

// table1Text is the paper's methods on homogeneous clients, of runs that have others as well.
func table1Text(t *testing.T, runs map[string]*keptRun) string {
	var b bytes.Buffer
	for _, d := range letterSets {
		own := slices.DeleteFunc(slices.Clone(runs[d].records), func(r experiment.Record) bool {
			return r.Alpha != 0 || !slices.Contains(letterMethods, r.Method)
		})
		tables := must.Get(report.Tables(own, runs[d].manifest))(t)
		must.Do(t, report.Markdown(&b, tables))
		b.WriteString("\n")
	}
	return marks.ReplaceAllString(b.String(), "")
}

// differencesText is FMP less each other method.
func differencesText(t *testing.T, runs map[string]*keptRun) string {
	var b strings.Builder
	for _, protocol := range []string{"shared", "tuned"} {
		fmt.Fprintf(&b, "FMP less the other, %s settings:\n\n", protocol)
		heading(&b, "other%s", joined(letterTitles, func(title string) string {
			return " | >" + title + " ACC | >ECE | >NLL"
		}))
		for _, m := range []string{"MP", "CANN", "CBNN", "CFMP", "FMP-ISAB", "FedCGS"} {
			fmt.Fprintf(&b, "| %s |%s\n", m, joined(letterSets, func(d string) string {
				x := runs[d].pair(t, runs[d].table(t, 0, protocol), "FMP", m)
				return fmt.Sprintf(" %s | %s | %+.3f ± %.3f |", signed(x.ACC), signed(x.ECE),
					x.NLL.Mean, x.NLL.Half)
			}))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func alphas(k *keptRun) []float64 { return k.config.Federation.Alpha }

func figure2Text(t *testing.T, runs map[string]*keptRun) string {
	var b strings.Builder
	for i, d := range letterSets {
		for _, protocol := range runs[d].config.Protocols() {
			fmt.Fprintf(&b, "%s, %s settings, ACC / ECE:\n\n", letterTitles[i], protocol)
			heading(&b, "method%s", joined(alphas(runs[d]),
				func(a float64) string { return fmt.Sprintf(" | >α = %g", a) }))
			for _, m := range runs[d].config.Methods {
				fmt.Fprintf(&b, "| %s |%s\n", m, joined(alphas(runs[d]), func(a float64) string {
					r := rowOf(t, runs[d].table(t, a, protocol), m)
					return fmt.Sprintf(" %.4f ± %.4f / %.4f ± %.4f |", r.ACC.Mean, r.ACC.Half,
						r.ECE.Mean, r.ECE.Half)
				}))
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

// subject is the method that the aims are about.
var subject = regexp.MustCompile(`\bFMP\b`)

// aimsText holds the figures of a method against what the project set out to reach for FMP.
func aimsText(t *testing.T, own string, closed, figure2 map[string]*keptRun) string {
	var b strings.Builder
	heading(&b, "aim | settings | %s", strings.Join(letterTitles, " | "))
	line := func(aim, protocol string, runs map[string]*keptRun, cell func(k *keptRun) string) {
		fmt.Fprintf(&b, "| %s | %s |%s\n", aim, protocol,
			joined(letterSets, func(d string) string { return " " + cell(runs[d]) + " |" }))
	}
	each := func(aim string, runs map[string]*keptRun, alpha func(k *keptRun) []float64,
		cell func(k *keptRun, tabs []*report.Table) string) {
		for _, p := range []string{"shared", "tuned"} {
			line(subject.ReplaceAllString(aim, own), p, runs, func(k *keptRun) string {
				if !slices.Contains(k.config.Protocols(), p) {
					return "not run"
				}
				var tabs []*report.Table
				for _, a := range alpha(k) {
					tabs = append(tabs, k.table(t, a, p))
				}
				return cell(k, tabs)
			})
		}
	}
	even := func(*keptRun) []float64 { return []float64{0} }
	skewed := func(*keptRun) []float64 { return []float64{0.1} }

	each("FMP's ACC at least the printed", closed, even,
		func(k *keptRun, tabs []*report.Table) string {
			r, printed := rowOf(t, tabs[0], own), rowOf(t, tabs[0], "FMP").Printed
			return verdict(r.ACC.Mean >= printed.ACC, "%.4f (printed %.4f)", r.ACC.Mean, printed.ACC)
		})
	each("FMP's ECE at most the printed", closed, even, func(k *keptRun, tabs []*report.Table) string {
		r, printed := rowOf(t, tabs[0], own), rowOf(t, tabs[0], "FMP").Printed
		return verdict(r.ECE.Mean <= printed.ECE, "%.4f (printed %.4f)", r.ECE.Mean, printed.ECE)
	})
	if own == "FMP" {
		line("LANN's ACC within 0.03 of the printed, which fixes the points per client",
			"shared", closed,
			func(k *keptRun) string {
				r := rowOf(t, k.table(t, 0, "shared"), "LANN")
				return verdict(math.Abs(r.ACC.Mean-r.Printed.ACC) <= 0.03, "%.4f (printed %.4f)",
					r.ACC.Mean, r.Printed.ACC)
			})
	}
	each("ACC of MP less FMP at most 0.010", closed, even,
		func(k *keptRun, tabs []*report.Table) string {
			d := k.pair(t, tabs[0], own, "MP")
			return verdict(-d.ACC.Mean <= 0.010, "%+.4f ± %.4f", -d.ACC.Mean, d.ACC.Half)
		})
	each("FMP's ECE at most half of CANN's, CBNN's, CFMP's", closed, even,
		func(k *keptRun, tabs []*report.Table) string {
			ece, worst, name := rowOf(t, tabs[0], own).ECE.Mean, 0.0, ""
			for _, m := range consensus {
				if q := ece / rowOf(t, tabs[0], m).ECE.Mean; q > worst {
					worst, name = q, m
				}
			}
			return verdict(worst <= 0.5, "%.2f of %s's", worst, name)
		})
	each("FMP's NLL below FedCGS's, ACC at most 0.01 below", closed, even,
		func(k *keptRun, tabs []*report.Table) string {
			d := k.pair(t, tabs[0], own, "FedCGS")
			return verdict(d.NLL.Mean < 0 && d.ACC.Mean >= -0.01, "NLL %+.3f, ACC %+.4f",
				d.NLL.Mean, d.ACC.Mean)
		})
	oneShot := append([]string{"FedCGS"}, consensus...)
	ece := func(f report.Figures) metric.Interval { return f.ECE }
	acc := func(f report.Figures) metric.Interval { return f.ACC }
	best := func(others []string, sign float64, of figureOf) func(*keptRun, []*report.Table) string {
		return func(k *keptRun, tabs []*report.Table) string {
			worst, name := k.largest(t, tabs, own, others, sign, of)
			return verdict(worst <= 0, "%s", name)
		}
	}
	each("FMP's ECE the lowest of the one-shot methods, or the difference's interval holds 0", closed,
		even,
		func(k *keptRun, tabs []*report.Table) string {
			met := true
			for _, m := range oneShot {
				met = met && k.pair(t, tabs[0], own, m).ECE.Lo() <= 0
			}
			_, name := k.largest(t, tabs, own, oneShot, 1, ece)
			return verdict(met, "%s", name)
		})
	each("FMP's NLL the best of the one-shot methods", closed, even, best(oneShot, 1, likelihoods[0]))
	accuracy := func(other string, least float64) func(*keptRun, []*report.Table) string {
		return func(k *keptRun, tabs []*report.Table) string {
			d := k.pair(t, tabs[0], own, other).ACC
			return verdict(d.Mean >= least, "%+.4f ± %.4f", d.Mean, d.Half)
		}
	}
	each("Dirichlet 0.1: FMP's ACC above CANN's by 0.10", closed, skewed, accuracy("CANN", 0.10))
	each("Dirichlet 0.1: FMP's ACC at most 0.01 below MP's", closed, skewed, accuracy("MP", -0.01))
	each("Dirichlet, every α: FMP's ACC the best of the paper's one-shot methods", figure2, alphas,
		best(consensus, -1, acc))
	each("Dirichlet, every α: FMP's ECE the lowest of them", figure2, alphas, best(consensus, 1, ece))
	if own == "FMP" {
		line("prior only within 0.05 of chance, throughout", "both", closed, func(k *keptRun) string {
			far := 0.0
			for _, tab := range slices.Concat(k.tables, figure2[k.config.Dataset.Name].tables) {
				far = max(far, math.Abs(rowOf(t, tab, "PRIOR").ACC.Mean-tab.Chance))
			}
			return verdict(far <= 0.05, "%.4f off at most", far)
		})
		return b.String()
	}
	line("relative gap of MP's and FMP-ISAB's parameters at most 0.35 on CIFAR-10, validation tasks",
		"-", closed, func(k *keptRun) string {
			all := gaps(t, "training", k.config.Dataset.Name+"-embedding.jsonl")
			gap := all[slices.Max(slices.Collect(maps.Keys(all)))]
			if k.config.Dataset.Name != "cifar10" {
				return fmt.Sprintf("%.3f", gap)
			}
			return verdict(gap <= 0.35, "%.3f", gap)
		})
	return b.String()
}

// gaps are the relative gaps of a training's log, in its validations by their step.
func gaps(t *testing.T, path ...string) map[int]float64 {
	t.Helper()
	data := must.Get(os.ReadFile(filepath.Join("results", filepath.Join(path...))))(t)
	out := map[int]float64{}
	for line := range bytes.Lines(data) {
		var l struct {
			Kind string
			Step int
			Gap  float64
		}
		must.Do(t, json.Unmarshal(line, &l))
		if l.Kind == "validation" {
			out[l.Step] = l.Gap
		}
	}
	if len(out) == 0 {
		t.Fatalf("%s has no validation", path)
	}
	return out
}

// ablations are the kept runs of the paper's predictor in results/ablation, what each is, and the
// run that it is compared with.
var ablations = []struct{ dir, what, base string }{
	{"default", "the shipped models: a latent of 16 columns and the joint score, masses, permuted " +
		"names, identity path, s = 10, n' = 100, S = 20", ""},
	{"samples-1", "S = 1", "default"},
	{"samples-80", "S = 80", "default"},
	{"fresh-25", "n' = 25", "default"},
	{"fresh-400", "n' = 400", "default"},
	{"weights-constant", "uploaded points of weight n/s each", "default"},
	{"untrained-embedding", "class means for uploads (the embedding as it is initialised)", "default"},
	{"untrained", "and the predictor as it is initialised", "default"},
	{"both", "300 steps of the predictor, uploads of class means: latent and joint score", ""},
	{"latent", "those, the latent alone", "both"},
	{"joint", "those, the joint score alone", "both"},
	{"neither", "those, neither: the paper's form", "both"},
	{"published", "those, with the published blocks (no identity path)", "both"},
	{"labels-fixed", "those, with fixed names of classes", "both"},
}

// bothPartitions are those of the ablations.
var bothPartitions = []string{"homogeneous", "dirichlet-0.1"}

// ablationCells are NLL and joint NLL of a method on both partitions, with paired differences to
// that of base where there is one.
func ablationCells(t *testing.T, own *keptRun, method string, figures [2]kept.Figure,
	base *keptRun, baseMethod string) string {
	t.Helper()
	var b strings.Builder
	for _, partition := range bothPartitions {
		for i, of := range measuredFigures {
			v := own.repeats(partition, "shared", method, figures[i])
			if len(v) < 10 {
				t.Errorf("%s: %s, %s has %d repeats", own.dir, method, partition, len(v))
			}
			fmt.Fprintf(&b, " %.4f |", paired(t, v, nil).Mean)
			if base != nil {
				b.WriteString(" " + signed(paired(t, v, base.repeats(partition, "shared", baseMethod, of))))
			}
			b.WriteString(" |")
		}
	}
	return b.String()
}

// measuredFigures are those that an ablation changes.
var measuredFigures = [2]kept.Figure{kept.NLL, kept.Joint}

const ablationColumns = " | >NLL | >less %s | >joint NLL | >less %[1]s | >α = 0.1: NLL | >less %[1]s | >joint NLL | >less %[1]s"

// ablationText is one line an ablation of the paper's predictor.
func ablationText(t *testing.T) string {
	var b strings.Builder
	heading(&b, " | what | base"+ablationColumns+" | >prior only ACC", "base")
	acc := func(r *experiment.Record) *float64 { return &r.ACC }
	for _, a := range ablations {
		k := readKept(t, "ablation", a.dir)
		var base *keptRun
		name := ""
		if a.base != "" {
			base, name = readKept(t, "ablation", a.base), "`"+a.base+"`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |%s %.3f |\n", a.dir, a.what, name,
			ablationCells(t, k, "FMP-ISAB", measuredFigures, base, "FMP-ISAB"),
			paired(t, k.repeats("homogeneous", "shared", "PRIOR", acc), nil).Mean)
	}
	return b.String()
}

// conjugateText is what the parts of the conjugate predictor are worth, a table a data set: raw
// figures of the kept runs in closed scope, and of those of the ablation.
func conjugateText(t *testing.T) string {
	var b strings.Builder
	for i, d := range letterSets {
		closed := readKept(t, "closed", d)
		fmt.Fprintf(&b, "**%s**\n\n", letterTitles[i])
		heading(&b, ablationColumns, "FMP")
		line := func(what string, k *keptRun, method string, figures [2]kept.Figure, base *keptRun) {
			fmt.Fprintf(&b, "| %s |%s\n", what, ablationCells(t, k, method, figures, base, "FMP"))
		}
		line("FMP, S = 100", closed, "FMP", measuredFigures, nil)
		for _, s := range []int{20, 5, 1} {
			line(fmt.Sprintf("S = %d", s), closed, "FMP",
				[2]kept.Figure{kept.First(s, false), kept.First(s, true)}, closed)
		}
		line("no latent, the same scalars", readKept(t, "ablation", "latent-none-"+d), "FMP",
			measuredFigures, closed)
		line("no latent, scalars of its own (FMP-mean)", closed, "FMP-mean", measuredFigures, closed)
		line("coordinates and metric not learned, scalars learned",
			readKept(t, "ablation", "metric-fixed-"+d), "FMP", measuredFigures, closed)
		line("drawn by attention (FMP-ISAB)", closed, "FMP-ISAB", measuredFigures, closed)
		b.WriteString("\n")
	}
	return b.String()
}

// frontText is Table I beside the paper's.
func frontText(t *testing.T, runs map[string]*keptRun) string {
	var b strings.Builder
	heading(&b, "method%s", joined(letterTitles,
		func(title string) string { return " | >" + title + " ACC / ECE | >printed" }))
	for _, m := range letterMethods {
		name := m
		if m == "PRIOR" {
			name = "prior only"
		}
		fmt.Fprintf(&b, "| %s |%s\n", name, joined(letterSets, func(d string) string {
			r := rowOf(t, runs[d].table(t, 0, "shared"), m)
			printed := ""
			if r.Printed != nil {
				printed = fmt.Sprintf("%.4f / %.4f", r.Printed.ACC, r.Printed.ECE)
			}
			cell := fmt.Sprintf("%.4f / %.4f", r.ACC.Mean, r.ECE.Mean)
			if m == "FMP" {
				cell = "**" + cell + "**"
			}
			return " " + cell + " | " + printed + " |"
		}))
	}
	return b.String()
}

// TestHindsight: with the settings that are best on the scored images no method does worse than
// with those it was given.
func TestHindsight(t *testing.T) {
	rows := 0
	must.Do(t, filepath.WalkDir("results", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Base(path) != "results.jsonl" {
			return err
		}
		records, err := experiment.ReadResults(filepath.Dir(path))
		if err != nil {
			return err
		}
		for _, r := range records {
			if r.Hindsight == nil {
				continue
			}
			if rows++; *r.Hindsight > r.NLL {
				t.Errorf("%s: %+v: NLL %v, in hindsight %v", path, r.Cell, r.NLL, *r.Hindsight)
			}
		}
		return nil
	}))
	if rows < 1000 {
		t.Errorf("%d rows have an NLL in hindsight; want those of all families", rows)
	}
}
