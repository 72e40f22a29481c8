package docs

import (
	"fmt"
	"strings"
	"testing"

	"fmp/docs/internal/kept"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/metric"
)

// oneTie is the difference in NLL that counts as a tie, as results/gates.yaml has it.
const oneTie = 0.002

// oneRow is a kept run of one posterior: name, gate, and the run of today's form on the same tasks.
type oneRow struct{ name, gate, scope, run string }

// oneRows are the rows of the gates.
var oneRows = []oneRow{
	{"closed-mnist", "closed", "closed", "mnist"}, {"closed-cifar10", "closed", "closed", "cifar10"},
	{"closed-cifar100", "closed", "closed", "cifar100"},
	{"cifar100-20", "open", "open", "cifar100-20"}, {"cifar100-10", "open", "open", "cifar100-10"},
	{"cifar100-5", "open", "open", "cifar100-5"},
	{"cifar10-10", "open", "open", "cifar10-10"}, {"cifar10-40", "open", "open", "cifar10-40"},
	{"digits", "open", "open", "digits"},
	{"points-5", "open", "open", "points-5"}, {"clients-100", "open", "open", "clients-100"},
	{"moments-cifar10-10", "moments", "pretrained", "cifar10-10"},
	{"moments-cifar10-20", "moments", "pretrained", "cifar10-20"},
	{"moments-cifar10-20", "moments", "pretrained", "cifar10-20-unknown"},
	{"moments-cifar10-200", "moments", "pretrained", "cifar10-200"},
	{"moments-cifar100-20", "moments", "pretrained", "cifar100-20"},
}

// oneFamilies are kept runs of one posterior on families that were fixed before it: name of the run,
// and that of today's form, which is the same where the extractor was trained anew.
var oneFamilies = []oneRow{
	{"families-digits-mnist-1", "families", "families/digits-mnist", "0-1"},
	{"families-digits-mnist-2", "families", "one", "families-digits-mnist-2"},
	{"families-digits-mnist-3", "families", "one", "families-digits-mnist-3"},
	{"families-digits-drawn-1", "families", "families/digits-drawn", "0-1"},
	{"families-digits-drawn-2", "families", "one", "families-digits-drawn-2"},
	{"families-digits-drawn-3", "families", "one", "families-digits-drawn-3"},
	{"families-digits-8x8-1", "families", "families/digits-8x8", "0-1"},
	{"families-digits-8x8-2", "families", "one", "families-digits-8x8-2"},
	{"families-digits-8x8-3", "families", "one", "families-digits-8x8-3"},
	{"families-pretrained-1", "families", "families/pretrained", "1-1"},
	{"families-pretrained-2", "families", "families/pretrained", "2-1"},
}

// oneNames are rounds of some of a corpus's classes: FMP is the open form, in the same run.
var oneNames = []oneRow{
	{"names-cifar10-2", "names", "one", "names-cifar10-2"}, {"names-cifar10-5", "names", "one", "names-cifar10-5"},
	{"names-cifar100-5", "names", "one", "names-cifar100-5"}, {"names-mnist-5", "names", "one", "names-mnist-5"},
	{"names-digits-5", "names", "one", "names-digits-5"},
}

// oneUnknown are rounds of moments in which nothing tells the temperature: FMP is the form of before,
// in the same run.
var oneUnknown = []string{"unknown-cifar100-5-60", "unknown-cifar10-5-60", "unknown-cifar10-10-20",
	"unknown-cifar100-20-60", "unknown-cifar10-10-200", "unknown-mnist-10-60", "unknown-digits-10-60"}

// oneCorpora are rounds of moments with a corpus and no calibration points, with the row of the same clients
// whose name ends in -without.
var oneCorpora = [][2]string{{"cifar10-like-20", "cifar10-like-20"}, {"cifar10-like-200", "cifar10-like-200"},
	{"cifar10-other-20", "cifar10-other-20"}, {"cifar10-other-200", "cifar10-other-200"},
	{"cifar10-unlike-20", "cifar10-unlike-20"}, {"cifar10-unlike-200", "cifar10-unlike-200"},
	{"cifar100-like-20", "cifar100-like-20"}, {"cifar100-other-20", "cifar100-other-20"}}

// oneFew are those of corpora of few images.
var oneFew = [][2]string{{"cifar10-few-20", "cifar10-few-20"}, {"cifar10-some-20", "cifar10-few-20"},
	{"cifar10-fewother-20", "cifar10-fewother-20"}, {"cifar10-someother-20", "cifar10-fewother-20"},
	{"cifar100-few-20", "cifar100-few-20"}, {"cifar100-fewother-20", "cifar100-fewother-20"}}

// TestOnePosterior: the tables of one posterior beside today's form are of the kept runs, paired
// repeat by repeat. With -update they are written (make docs).
func TestOnePosterior(t *testing.T) {
	readsRuns(t)
	write(t, "results/one.md", "one", oneText(t, oneRows))
	write(t, "results/one.md", "one-families", oneText(t, oneFamilies))
	write(t, "results/one.md", "one-names", oneText(t, oneNames))
	write(t, "results/one.md", "one-unknown", unknownText(t))
	write(t, "results/one.md", "one-corpora", corporaText(t, oneCorpora))
	write(t, "results/one.md", "one-few", corporaText(t, oneFew))
}

// side is a method of a run under a protocol, or ("") any.
type side struct {
	run              *keptRun
	protocol, method string
}

// compared is a method's mean of a figure, and its paired difference to that of another.
func compared(t *testing.T, partition string, own, other side,
	of kept.Figure) (mean float64, less metric.Interval) {
	t.Helper()
	a := own.run.repeats(partition, own.protocol, own.method, of)
	return paired(t, a, nil).Mean,
		paired(t, a, other.run.repeats(partition, other.protocol, other.method, of))
}

// meanOf is the mean of a figure of FMP-one over the repeats, all of which must have it.
func meanOf(t *testing.T, k *keptRun, partition, protocol string, of kept.Figure) float64 {
	t.Helper()
	all := k.repeats(partition, protocol, "FMP-one", of)
	if len(all) != k.config.Seeds {
		t.Fatalf("%s, %s: %d repeats of %d have a figure", k.dir, partition, len(all), k.config.Seeds)
	}
	return mean(all)
}

// ofRegression is the share of 90% intervals that hold the probability of a regression on all rows.
func ofRegression(r *experiment.Record) *float64 {
	if r.Coverage == nil {
		return nil
	}
	return r.Coverage.Regression
}

// overBest is the NLL less that at the temperature that suits the test images best.
func overBest(r *experiment.Record) *float64 {
	if r.Hindsight == nil {
		return nil
	}
	less := r.NLL - *r.Hindsight
	return &less
}

// oneText is a table of one posterior beside today's form.
func oneText(t *testing.T, rows []oneRow) string {
	var b strings.Builder
	heading(&b, "gate | tasks | clients | >NLL | >over best | >FMP | >less it |  | >joint NLL "+
		"| >less FMP's | >hold")
	for _, row := range rows {
		one, now := readKept(t, "one", row.name), readKept(t, row.scope, row.run)
		title := row.run
		if row.scope == "one" || row.gate == "families" {
			title = strings.TrimPrefix(row.name, row.gate+"-")
		}
		ownBy, nowBy := "shared", "tuned"
		switch {
		case row.gate == "moments":
			ownBy, nowBy = "calibrated", "calibrated"
		case row.gate == "names": // nothing is tuned
			nowBy = "shared"
		case row.scope == "one": // both in one run
			ownBy = "tuned"
		}
		own, today := side{one, ownBy, "FMP-one"}, side{now, nowBy, "FMP"}
		for _, partition := range bothPartitions {
			nll, d := compared(t, partition, own, today, kept.NLL)
			joint, dj := compared(t, partition, own, today, kept.Joint)
			if d.N != 10 {
				t.Fatalf("%s, %s: %d repeats of both, want 10", row.name, partition, d.N)
			}
			hold := "-" // not measured for moments
			if row.gate != "moments" {
				hold = fmt.Sprintf("%.3f", meanOf(t, one, partition, ownBy, ofRegression))
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %.4f | %.4f | %.4f | %s | %s | %.4f | %s | %s |\n", row.gate,
				title, even(partition), nll, meanOf(t, one, partition, ownBy, overBest), nll-d.Mean,
				signed(d), besideToday(d), joint, signed(dj), hold)
		}
	}
	return b.String()
}

// unknownText is a table of one posterior beside the form of before where nothing tells the temperature.
func unknownText(t *testing.T) string {
	var b strings.Builder
	heading(&b, "tasks | clients | >NLL | >FMP | >less it |  | >joint NLL | >less FMP's | >ECE "+
		"| >FMP's | >perfect")
	ece := func(r *experiment.Record) *float64 { return &r.ECE }
	perfect := func(r *experiment.Record) *float64 {
		v := r.Curve.Calibration().Perfect
		return &v
	}
	for _, name := range oneUnknown {
		run := readKept(t, "one", name)
		own, today := side{run, "shared", "FMP-one"}, side{run, "shared", "FMP"}
		for _, partition := range bothPartitions {
			nll, d := compared(t, partition, own, today, kept.NLL)
			joint, dj := compared(t, partition, own, today, kept.Joint)
			said, less := compared(t, partition, own, today, ece)
			fmt.Fprintf(&b, "| %s | %s | %.4f | %.4f | %s | %s | %.4f | %s | %.4f | %.4f | %.4f |\n",
				strings.TrimPrefix(name, "unknown-"), even(partition), nll, nll-d.Mean, signed(d),
				besideToday(d), joint, signed(dj), said, said-less.Mean,
				meanOf(t, run, partition, "shared", perfect))
		}
	}
	return b.String()
}

// corporaText is a table of one posterior with a corpus beside that without.
func corporaText(t *testing.T, rows [][2]string) string {
	var b strings.Builder
	heading(&b, "tasks and corpus | clients | >NLL | >without | >less it |  | >joint NLL | "+
		">less that without")
	var all []float64
	for _, row := range rows {
		with := side{readKept(t, "one", "corpora-"+row[0]), "shared", "FMP-one"}
		without := side{readKept(t, "one", "corpora-"+row[1]+"-without"), "shared", "FMP-one"}
		for _, partition := range []string{"homogeneous", "dirichlet-0.3"} {
			nll, d := compared(t, partition, with, without, kept.NLL)
			joint, dj := compared(t, partition, with, without, kept.Joint)
			all = append(all, d.Mean)
			fmt.Fprintf(&b, "| %s | %s | %.4f | %.4f | %s | %s | %.4f | %s |\n", row[0], even(partition),
				nll, nll-d.Mean, signed(d), besideToday(d), joint, signed(dj))
		}
	}
	fmt.Fprintf(&b, "| all rows | | | | %+.4f | | | |\n", estimateOf(t, all).Mean)
	return b.String()
}

// besideToday is the word for a paired difference: below, a tie, or missed.
func besideToday(d metric.Interval) string {
	switch {
	case d.Hi() < 0:
		return "below"
	case d.Lo() <= 0, d.Mean <= oneTie:
		return "tie"
	}
	return "**missed**"
}

// even is a partition as these tables call it.
func even(partition string) string {
	if alpha, skewed := strings.CutPrefix(partition, "dirichlet-"); skewed {
		return "alpha = " + alpha
	}
	return "even"
}
