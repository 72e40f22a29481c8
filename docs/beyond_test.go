package docs

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"fmp/docs/internal/kept"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/lab/report"
	"fmp/pipeline/metric"
)

// tally counts paired differences below zero, about it and above it.
type tally struct{ below, tie, above int }

func (n *tally) add(d metric.Interval) {
	switch {
	case d.Hi() < 0:
		n.below++
	case d.Lo() > 0:
		n.above++
	default:
		n.tie++
	}
}

// said tells the counts in words, of = " rows" of the first.
func (n tally) said(of string) string {
	return fmt.Sprintf("below in %d%s, tie in %d, above in %d", n.below, of, n.tie, n.above)
}

// against lists what was counted against each of others.
func against(b *strings.Builder, others []string, nll, joint []tally) {
	b.WriteString("\n")
	for j, other := range others {
		fmt.Fprintf(b, "- Against %s: NLL %s; joint NLL %s.\n", other, nll[j].said(" rows"),
			joint[j].said(""))
	}
}

// beyondText compares FMP with its own point estimate, the row FMP-mean, in every kept run that has
// both.
func beyondText(t *testing.T, runs map[string]*keptRun) string {
	var b strings.Builder
	var nll, joint tally
	heading(&b, "tasks | clients | >NLL of FMP-mean | >FMP less it | >joint NLL of FMP-mean | "+
		">FMP less it")
	for _, name := range slices.Sorted(maps.Keys(runs)) {
		k := runs[name]
		for _, tab := range k.tables {
			if tab.Protocol != "tuned" || !slices.Contains(k.config.Methods, "FMP-mean") {
				continue
			}
			mean := rowOf(t, tab, "FMP-mean")
			d := k.pair(t, tab, "FMP", "FMP-mean")
			nll.add(d.NLL)
			joint.add(d.JointNear)
			fmt.Fprintf(&b, "| %s | %s | %.4f | %s | %.4f | %s |\n", name, tab.Partition,
				mean.NLL.Mean, signed(d.NLL), mean.JointNear.Mean, signed(d.JointNear))
		}
	}
	fmt.Fprintf(&b, "\nNLL: FMP %s. Joint NLL: %s.\n", nll.said(" rows"), joint.said(""))
	return b.String()
}

// edgesText counts, for each method, the tuned settings at an end of their grid, where a value
// beyond might be better.
func edgesText(runs map[string]*keptRun) string {
	at, of := map[string]int{}, map[string]int{}
	for _, k := range runs {
		for _, c := range k.tuned.Choices {
			if len(c.Grid) > 0 {
				of[c.Method]++
				if len(c.AtEnd()) > 0 {
					at[c.Method]++
				}
			}
		}
	}
	if len(at) == 0 {
		return "No kept setting is at such an end.\n"
	}
	var b strings.Builder
	heading(&b, "method | >settings at an end of the grid | >of")
	for _, m := range slices.Sorted(maps.Keys(of)) {
		if at[m] > 0 {
			fmt.Fprintf(&b, "| %s | %d | %d |\n", m, at[m], of[m])
		}
	}
	return b.String()
}

// posteriorRuns are the runs that compare posteriors around one point estimate
// (results/posterior.sh).
var posteriorRuns = []string{"cifar100-20", "cifar10-10", "points-5", "cifar100-5"}

// posteriorText compares FMP-joint, whose samples have both uncertainties, with FMP, its point
// estimate and the Laplace approximation around that.
func posteriorText(t *testing.T) string {
	var b strings.Builder
	others := []string{"FMP", "FMP-mean", "FMP-Laplace"}
	nll, joint := make([]tally, len(others)), make([]tally, len(others))
	heading(&b, "tasks | clients | tuned on | >scale | >FMP-joint: NLL | >less FMP's | >less "+
		"FMP-mean's | >less FMP-Laplace's | >joint NLL | >less FMP's | >less FMP-mean's | "+
		">less FMP-Laplace's")
	for _, name := range posteriorRuns {
		k := readKept(t, "posterior", name)
		on := "the corpus's classes"
		if k.config.Tuning.Classes != "" {
			on = "classes " + k.config.Tuning.Classes
		}
		interior(t, k)
		for _, tab := range k.tables {
			own := rowOf(t, tab, "FMP-joint")
			fmt.Fprintf(&b, "| %s | %s | %s | %.3g | %.4f |", name, tab.Partition, on,
				own.Value, own.NLL.Mean)
			var more strings.Builder
			for j, other := range others {
				d := k.pair(t, tab, "FMP-joint", other)
				nll[j].add(d.NLL)
				joint[j].add(d.JointNear)
				fmt.Fprintf(&b, " %s |", signed(d.NLL))
				fmt.Fprintf(&more, " %s |", signed(d.JointNear))
			}
			fmt.Fprintf(&b, " %.4f |%s\n", own.JointNear.Mean, more.String())
		}
	}
	against(&b, others, nll, joint)
	return b.String()
}

// learnedText compares FMP, whose samples have the share of the fit's uncertainty that was learned
// on the corpus, with the rows of the same tasks that were tuned.
func learnedText(t *testing.T) string {
	var b strings.Builder
	others := []string{"FMP", "FMP-mean", "FMP-Laplace", "FMP-joint"}
	nll, joint := make([]tally, len(others)), make([]tally, len(others))
	heading(&b, "tasks | clients | >NLL | >less that without | >joint NLL | >less that without "+
		"| >less FMP-mean's | >less FMP-Laplace's | >less FMP-joint's")
	for _, name := range posteriorRuns {
		k, base := readKept(t, "posterior", "learned-"+name), readKept(t, "posterior", name)
		interior(t, k)
		for _, tab := range k.tables {
			fmt.Fprintf(&b, "| %s | %s | %.4f |", name, tab.Partition, rowOf(t, tab, "FMP").NLL.Mean)
			var more strings.Builder
			for j, other := range others {
				own, theirs := side{k, "tuned", "FMP"}, side{base, "tuned", other}
				_, d := compared(t, tab.Partition, own, theirs, kept.NLL)
				near, dj := compared(t, tab.Partition, own, theirs, kept.Joint)
				nll[j].add(d)
				joint[j].add(dj)
				if other == "FMP" {
					fmt.Fprintf(&b, " %s | %.4f |", signed(d), near)
				}
				fmt.Fprintf(&more, " %s |", signed(dj))
			}
			fmt.Fprintf(&b, "%s\n", more.String())
		}
	}
	others[0] = "FMP without"
	against(&b, others, nll, joint)
	return b.String()
}

// fairText compares FMP with rivals whose settings were tuned on classes that the extractor has not
// learned (results/fair.sh), beside the same rows of the run in open scope that was tuned on
// learned ones.
func fairText(t *testing.T) string {
	var b strings.Builder
	heading(&b, "tasks | clients | method | setting | >NLL | >tuned on learned classes | >FMP "+
		"less it: NLL | >joint NLL | >NLL in hindsight | >FMP as tuned less that")
	for _, name := range []string{"cifar10-10", "cifar100-5"} {
		k, learned := readKept(t, "fair", name), readKept(t, "open", name)
		interior(t, k)
		for _, tab := range k.tables {
			for _, r := range tab.Rows {
				setting := "-"
				if r.Param != "" {
					setting = fmt.Sprintf("%s %.3g", r.Param, r.Value)
				}
				fmt.Fprintf(&b, "| %s | %s | %s | %s | %.4f | %.4f |", name, tab.Partition, r.Method,
					setting, r.NLL.Mean, rowOf(t, learned.table(t, tab.Alpha, "tuned"),
						r.Method).NLL.Mean)
				if r.Method == "FMP" {
					fmt.Fprintf(&b, " | | %.4f | |\n", r.HindsightNLL.Mean)
					continue
				}
				d, best := k.pair(t, tab, "FMP", r.Method), k.lessHindsight(t, tab, r.Method)
				fmt.Fprintf(&b, " %s | %s | %.4f | %s |\n", signed(d.NLL), signed(d.JointNear),
					r.HindsightNLL.Mean, signed(best))
			}
		}
	}
	return b.String()
}

// lessHindsight is the paired interval of FMP's NLL, tuned or calibrated, less that of another
// method with the settings that are best on the scored images.
func (k *keptRun) lessHindsight(t *testing.T, tab *report.Table, method string) metric.Interval {
	t.Helper()
	best := k.repeats(tab.Partition, tab.Protocol, method,
		func(r *experiment.Record) *float64 { return r.Hindsight })
	if len(best) != tab.Repeats {
		t.Fatalf("%s: %s has an NLL in hindsight in %d repeats", k.dir, method, len(best))
	}
	return paired(t, k.repeats(tab.Partition, tab.Protocol, "FMP", kept.NLL), best)
}

// interior fails where a run has fewer than ten repeats, or a setting at an end of its grid.
func interior(t *testing.T, k *keptRun) {
	t.Helper()
	for _, note := range k.tuned.EdgeNotes() {
		t.Errorf("%s: %s", k.dir, note)
	}
	repeated(t, k)
}

// repeated fails where a run has fewer than ten repeats, or a table not all of them.
func repeated(t *testing.T, k *keptRun) {
	t.Helper()
	for _, tab := range k.tables {
		if tab.Repeats < 10 || tab.Repeats != k.config.Seeds {
			t.Errorf("%s, %s has %d repeats of %d", k.dir, tab.Partition, tab.Repeats, k.config.Seeds)
		}
	}
}

// TestBeyondThePointEstimate holds the page's account of what samples add, and of settings at the
// end of a grid, to the kept runs.
func TestBeyondThePointEstimate(t *testing.T) {
	readsRuns(t)
	runs := map[string]*keptRun{}
	for scope, names := range scopeRuns {
		for _, name := range names {
			runs[scope+", "+name] = readKept(t, scope, name)
		}
	}
	write(t, "results/all.md", "beyond", beyondText(t, runs))
	write(t, "results/all.md", "edges", edgesText(runs))
	write(t, "results/all.md", "posterior", posteriorText(t))
	write(t, "results/all.md", "learned", learnedText(t))
	write(t, "results/all.md", "fair", fairText(t))
}
