package docs

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fmp/onnx/must"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/metric"
)

// TestPretrained: the tables of uploads of moments behind a pretrained network are those of the
// kept runs, and every one of these stands in them.
func TestPretrained(t *testing.T) {
	dirs := must.Get(os.ReadDir(filepath.Join("results", "pretrained")))(t)
	var b strings.Builder
	heading(&b, "run | clients | >repeats | method | >ACC | >ECE | >NLL | >NLL in hindsight | "+
		">FMP's NLL less that | >upload | >processor")
	for _, d := range dirs {
		k := readKept(t, "pretrained", d.Name())
		seconds := processorSeconds(t, d.Name())
		for _, tab := range k.tables {
			own := rowOf(t, tab, "FMP").NLL.Mean
			for _, row := range tab.Rows {
				less := "" // of FMP itself what its temperature costs
				if tab.Protocol == "calibrated" {
					less = fmt.Sprintf("%+.4f", own-row.HindsightNLL.Mean)
				}
				took := ""
				if s, ok := seconds[row.Method]; ok && tab.Alpha == 0 {
					took = fmt.Sprintf("%.1f s", s)
				}
				fmt.Fprintf(&b,
					"| %s | %s | %d | %s | %.4f | %.4f | %.4f ± %.4f | %.4f | %s | %.0f KB | %s |\n", d.Name(),
					tab.Partition, tab.Repeats, row.Method, row.ACC.Mean, row.ECE.Mean,
					row.NLL.Mean, row.NLL.Half, row.HindsightNLL.Mean, less, row.UploadBytes/1000, took)
			}
		}
	}
	write(t, "results/all.md", "pretrained", b.String())
}

// processorSeconds are those of each method in the kept run of one thread and one repeat that a run
// has, with homogeneous clients.
func processorSeconds(t *testing.T, name string) map[string]float64 {
	t.Helper()
	dir := filepath.Join("results", "seconds", name)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	costs := must.Get(experiment.ReadCosts(dir))(t)
	out := map[string]float64{}
	for _, c := range costs {
		if !(c.Processor > 0) {
			t.Errorf("%s has no processor seconds of %s", dir, c.Method)
		}
		out[c.Method] = c.Processor
	}
	return out
}

// TestPretrainedAims: the table of aims behind a pretrained network is of the kept runs in which
// FMP knows kappa and rivals are.
func TestPretrainedAims(t *testing.T) {
	var b strings.Builder
	heading(&b, "run | clients | >repeats | NLL, aim | less the best rival's in hindsight | "+
		"accuracy less the best rival's | ECE | NLL less that at the best temperature")
	met, missed := 0, 0
	count := func(is bool, format string, values ...any) string {
		if is {
			met++
		} else {
			missed++
		}
		return verdict(is, format, values...)
	}
	// The aims of NLL were set for these rows alone.
	nll := map[string]float64{"cifar10-20 homogeneous": 0.675, "cifar10-20 dirichlet-0.1": 0.815,
		"cifar10-200 homogeneous": 0.465, "cifar10-200 dirichlet-0.1": 0.615}
	for _, name := range []string{"cifar10-10", "cifar10-20", "cifar10-20-alphas", "cifar10-200",
		"cifar10-1000", "cifar10-2900",
		"cifar10-200-clients-50", "cifar100-20", "cifar100-20-alphas"} {
		k := readKept(t, "pretrained", name)
		for _, tab := range k.tables {
			own := rowOf(t, tab, "FMP")
			var best string
			var less metric.Interval
			acc := math.Inf(-1)
			for _, row := range tab.Rows {
				if row.Method == "FMP" {
					continue
				}
				if d := k.lessHindsight(t, tab, row.Method); best == "" ||
					d.Mean > less.Mean {
					best, less = row.Method, d
				}
				acc = max(acc, row.ACC.Mean)
			}
			aim := fmt.Sprintf("%.3f", own.NLL.Mean)
			if most, ok := nll[name+" "+tab.Partition]; ok {
				aim = count(own.NLL.Mean <= most, "%.3f, %.3f", own.NLL.Mean, most)
			}
			tie := tab.Alpha == 0 && less.Mean-less.Half <= 0 && tab.Repeats == 10
			rival := count(less.Mean <= 0 || tie, "%s %+.4f ± %.4f", best, less.Mean, less.Half)
			if less.Mean > 0 && tie {
				rival = fmt.Sprintf("%s %+.4f ± %.4f, tie", best, less.Mean, less.Half)
			}
			ece, gap := fmt.Sprintf("%.3f", own.ECE.Mean), 0.01
			if k.config.Federation.Points >= 200 {
				ece = count(own.ECE.Mean <= 0.04, "%.3f", own.ECE.Mean)
			} else {
				gap = 0.015
			}
			fmt.Fprintf(&b, "| %s | %s | %d | %s | %s | %s | %s | %s |\n", name, tab.Partition,
				tab.Repeats, aim, rival,
				count(own.ACC.Mean >= acc-0.003, "%+.4f", own.ACC.Mean-acc), ece,
				count(own.NLL.Mean-own.HindsightNLL.Mean <= gap, "%.4f",
					own.NLL.Mean-own.HindsightNLL.Mean))
		}
	}
	fmt.Fprintf(&b, "\nOf %d figures that have an aim, %d meet it.\n", met+missed, met)
	write(t, "results/all.md", "pretrained-aims", b.String())
}
