package docs

import (
	"fmt"
	"strings"
	"testing"

	"gonum.org/v1/gonum/stat"

	"fmp/onnx/must"
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
		for _, alpha := range []float64{0, 0.1} {
			own := figures(t, one.records, "FMP-one", ownBy, alpha)
			tuned := figures(t, now.records, "FMP", nowBy, alpha)
			if len(own[0]) != 10 || len(tuned[0]) != 10 {
				t.Fatalf("%s, alpha %g: %d and %d repeats, want 10", row.name, alpha,
					len(own[0]), len(tuned[0]))
			}
			d, mean := lessOf(t, own, tuned), [2]float64{stat.Mean(own[0], nil), stat.Mean(own[1], nil)}
			hold := "-" // not measured for moments
			if row.gate != "moments" {
				hold = fmt.Sprintf("%.3f", held(t, one.records, "FMP-one", alpha))
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %.4f | %.4f | %.4f | %s | %s | %.4f | %s | %s |\n", row.gate,
				title, partition(alpha), mean[0], overBest(t, one.records, ownBy, alpha), mean[0]-d[0].Mean,
				signed(d[0]), besideToday(d[0]), mean[1], signed(d[1]), hold)
		}
	}
	return b.String()
}

// unknownText is a table of one posterior beside the form of before where nothing tells the temperature.
func unknownText(t *testing.T) string {
	var b strings.Builder
	heading(&b, "tasks | clients | >NLL | >FMP | >less it |  | >joint NLL | >less FMP's | >ECE "+
		"| >FMP's | >perfect")
	for _, name := range oneUnknown {
		run := readKept(t, "one", name)
		for _, alpha := range []float64{0, 0.1} {
			own, now := figures(t, run.records, "FMP-one", "shared", alpha), figures(t, run.records, "FMP", "shared", alpha)
			d := lessOf(t, own, now)
			nll, joint := stat.Mean(own[0], nil), stat.Mean(own[1], nil)
			ece := map[string]float64{}
			for i := range run.records {
				if r := &run.records[i]; r.Alpha == alpha {
					ece[r.Method] += r.ECE / float64(len(own[0]))
					if r.Method == "FMP-one" {
						ece["perfect"] += r.Curve.Calibration().Perfect / float64(len(own[0]))
					}
				}
			}
			fmt.Fprintf(&b, "| %s | %s | %.4f | %.4f | %s | %s | %.4f | %s | %.4f | %.4f | %.4f |\n",
				strings.TrimPrefix(name, "unknown-"), partition(alpha), nll, nll-d[0].Mean, signed(d[0]),
				besideToday(d[0]), joint, signed(d[1]), ece["FMP-one"], ece["FMP"], ece["perfect"])
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
	for _, of := range rows {
		row := of[0]
		with, without := readKept(t, "one", "corpora-"+row), readKept(t, "one", "corpora-"+of[1]+"-without")
		for _, alpha := range []float64{0, 0.3} {
			own := figures(t, with.records, "FMP-one", "shared", alpha)
			now := figures(t, without.records, "FMP-one", "shared", alpha)
			d := lessOf(t, own, now)
			all = append(all, d[0].Mean)
			nll := stat.Mean(own[0], nil)
			fmt.Fprintf(&b, "| %s | %s | %.4f | %.4f | %s | %s | %.4f | %s |\n", row, partition(alpha), nll,
				nll-d[0].Mean, signed(d[0]), besideToday(d[0]), stat.Mean(own[1], nil), signed(d[1]))
		}
	}
	fmt.Fprintf(&b, "| all rows | | | | %+.4f | | | |\n", stat.Mean(all, nil))
	return b.String()
}

// lessOf are paired differences in NLL and joint NLL.
func lessOf(t *testing.T, own, other [2][]float64) (d [2]metric.Interval) {
	t.Helper()
	for i := range d {
		d[i] = must.Get(metric.Paired(own[i], other[i], 0.95))(t)
	}
	return d
}

// besideToday is the word for a paired difference: below, a tie, or missed.
func besideToday(d metric.Interval) string {
	switch {
	case d.Mean+d.Half < 0:
		return "below"
	case d.Mean-d.Half <= 0, d.Mean <= oneTie:
		return "tie"
	}
	return "**missed**"
}

// held returns the mean share of a method's 90% intervals that hold the probability of a regression
// on all rows.
func held(t *testing.T, records []experiment.Record, method string, alpha float64) (mean float64) {
	t.Helper()
	n := 0.0
	for i := range records {
		r := &records[i]
		if r.Method != method || r.Alpha != alpha {
			continue
		}
		if r.Coverage == nil || r.Coverage.Regression == nil {
			t.Fatalf("%s, alpha %g, repeat %d has no coverage", method, alpha, r.Repeat)
		}
		n++
		mean += *r.Coverage.Regression
	}
	return mean / n
}

// overBest returns the mean NLL of FMP-one less that at the temperature that suits the test images
// best.
func overBest(t *testing.T, records []experiment.Record, protocol string,
	alpha float64) (mean float64) {
	t.Helper()
	n := 0.0
	for i := range records {
		r := &records[i]
		if r.Method != "FMP-one" || r.Protocol != protocol || r.Alpha != alpha {
			continue
		}
		if r.Hindsight == nil {
			t.Fatalf("alpha %g, repeat %d has no NLL at the best temperature", alpha, r.Repeat)
		}
		n++
		mean += r.NLL - *r.Hindsight
	}
	return mean / n
}

func partition(alpha float64) string {
	if alpha == 0 {
		return "even"
	}
	return fmt.Sprintf("alpha = %g", alpha)
}

// figures returns the NLL and joint NLL of a method, by repeat.
func figures(t *testing.T, records []experiment.Record, method, protocol string,
	alpha float64) (out [2][]float64) {
	t.Helper()
	for i := range records {
		r := &records[i]
		if r.Method == method && r.Protocol == protocol && r.Alpha == alpha {
			if r.Repeat != len(out[0]) {
				t.Fatalf("%s: repeat %d comes as number %d", method, r.Repeat, len(out[0]))
			}
			out[0] = append(out[0], r.NLL)
			out[1] = append(out[1], r.Uncertainty.Joint.Near)
		}
	}
	return out
}
