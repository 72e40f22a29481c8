package docs

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"fmp/docs/internal/kept"
	"fmp/onnx/must"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/lab/martingale"
	"fmp/pipeline/lab/report"
)

// TestMerging: the table of the cost of merging is the kept one.
func TestMerging(t *testing.T) {
	data := must.Get(os.ReadFile("results/merging.csv"))(t)
	rows := must.Get(csv.NewReader(strings.NewReader(string(data))).ReadAll())(t)
	var b strings.Builder
	heading(&b, ">clients | >processor seconds | >wall seconds | >part, MB | >pooling, wall "+
		"seconds | >memory, MiB")
	for _, row := range rows[1:] {
		n := must.Get(strconv.Atoi(row[0]))(t)
		row[0] = thousands(int64(n))
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
	}
	write(t, "merging.md", "merging", b.String())
}

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

// leaderboardRuns are the kept runs of the leaderboard, with what is said of each.
var leaderboardRuns = [][3]string{
	{"pretrained", "cifar10-20", "CIFAR-10, ten clients of 20 images"},
	{"pretrained", "cifar100-20", "20 classes of CIFAR-100, ten clients of 20 images"},
	{"pretrained", "cifar10-2900", "CIFAR-10, ten clients that hold all images at hand"},
	{"pretrained", "cifar100-190-published",
		"20 classes of CIFAR-100, 50 clients that hold all images at hand: the clients and α of FedPFT " +
			"in Flower's baselines"},
	{"published", "cifar10-fedcgs", "CIFAR-10, 30 clients that hold all images at hand: the clients " +
		"and an α of FedCGS's own script"},
	{"published", "cifar10-fedcgs-0.05", "The same at that script's α of .05"},
	{"published", "cifar10-fedcgs-0.5", "The same at that script's α of .5"},
	{"published", "cifar100-fedcgs", "60 classes of CIFAR-100, 30 clients that hold all images at " +
		"hand: the clients and an α of FedCGS's own script"},
}

// marks matches notes on spread and bold figures, which a page of many tables has once itself.
var marks = regexp.MustCompile(`\n(± is|The clients hold all|Bold:).*\n`)

// TestLeaderboard: the rows are those of the kept runs, methods from outside among them. With
// -update they are written (make docs).
func TestLeaderboard(t *testing.T) {
	var b strings.Builder
	for _, of := range leaderboardRuns {
		k := readKept(t, of[0], of[1])
		all := must.Get(report.Tables(k.records, k.manifest))(t)
		few := must.Get(report.Choose(all, []string{"ACC", "ECE", "NLL", "joint NLL", "upload"}, nil))(t)
		var tables bytes.Buffer
		must.Do(t, report.Markdown(&tables, few))
		fmt.Fprintf(&b, "### %s\n\nRun `docs/results/pretrained.sh %s`.\n\n%s\n", of[2], of[1],
			strings.ReplaceAll(marks.ReplaceAllString(tables.String(), ""), "### ", "#### "))
	}
	write(t, "results/leaderboard.md", "leaderboard", b.String())
}

// maxLost is the NLL by which a corpus may make a round of moments worse.
const maxLost = 0.005

// corpusUsed is the number by which a round took the corpus in; nil without one.
func corpusUsed(r *experiment.Record) *float64 {
	v, ok := r.Diagnostics["corpus"]
	if !ok {
		return nil
	}
	return &v
}

// TestCorpus: the table of a corpus beside moments is of the kept runs, each with the same clients'
// images without a corpus.
func TestCorpus(t *testing.T) {
	dirs := must.Get(os.ReadDir(filepath.Join("results", "corpus")))(t)
	var b strings.Builder
	heading(&b, "run | clients | >repeats | >takes part in | >NLL without | >NLL with | with "+
		"less without, mean | largest")
	for _, d := range dirs {
		name := d.Name()
		if strings.HasSuffix(name, "-without") {
			continue
		}
		with, without := readKept(t, "corpus", name), readKept(t, "corpus", name+"-without")
		if with.manifest.Data["images"] != without.manifest.Data["images"] {
			t.Errorf("%s and the run without a corpus have other images", name)
		}
		for _, tab := range with.tables {
			nll := with.repeats(tab.Partition, "", "FMP", kept.NLL)
			was := without.repeats(tab.Partition, "", "FMP", kept.NLL)
			less, most := paired(t, nll, was), math.Inf(-1)
			for repeat, v := range nll {
				most = max(most, v-was[repeat])
			}
			if less.N != tab.Repeats {
				t.Fatalf("%s: %d pairs of %d repeats", name, less.N, tab.Repeats)
			}
			taken := 0
			for _, used := range with.repeats(tab.Partition, "", "FMP", corpusUsed) {
				if used > 0 {
					taken++
				}
			}
			if len(without.repeats(tab.Partition, "", "FMP", corpusUsed)) > 0 {
				t.Errorf("%s-without has a corpus", name)
			}
			fmt.Fprintf(&b, "| %s | %s | %d | %d | %.4f | %.4f | %s | %s |\n", name, tab.Partition,
				less.N, taken, paired(t, was, nil).Mean, paired(t, nll, nil).Mean,
				verdict(less.Mean <= maxLost, "%+.4f", less.Mean),
				verdict(most <= maxLost, "%+.4f", most))
		}
	}
	write(t, "results/all.md", "corpus", b.String())
}
