package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/docs/internal/kept"
	"fmp/onnx/must"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/posterior"
)

// pairs are the kept runs of a family without calibration points and with them, by extractor.
type pairs struct {
	without, with []*keptRun
	seen          int // runs that were seen while the choice was made
}

// calibratedRuns are the kept runs of docs/results/calibrated.sh, by family.
func calibratedRuns(t *testing.T) map[string]*pairs {
	t.Helper()
	f := readFamilies(t).Calibrated
	out := map[string]*pairs{}
	for _, name := range f.Families {
		dirs := must.Get(filepath.Glob(filepath.Join("results", "calibrated", name, "*-0")))(t)
		p := &pairs{}
		for _, dir := range dirs {
			base := strings.TrimSuffix(filepath.Base(dir), "-0")
			a, b := readKept(t, "calibrated", name, base+"-0"),
				readKept(t, "calibrated", name, fmt.Sprintf("%s-%d", base, f.Points[1]))
			interior(t, a)
			interior(t, b)
			if a.config.Posterior.Calibrate != 0 || b.config.Posterior.Calibrate != f.Points[1] ||
				a.manifest.Models["open"] != b.manifest.Models["open"] {
				t.Errorf("%s and %s are not of one open predictor, without points and with %d", a.dir,
					b.dir, f.Points[1])
			}
			if slices.Contains(f.Seen, name+"/"+base) {
				p.seen++
			}
			p.without, p.with = append(p.without, a), append(p.with, b)
		}
		if len(dirs) > 0 {
			out[name] = p
		}
	}
	return out
}

// calibratedText compares FMP with and without calibration points, over extractors.
func calibratedText(t *testing.T) string {
	var b strings.Builder
	heading(&b, "tasks | clients | >extractors | >NLL | >with points | >less that without | "+
		"least rival in hindsight | >with points less it | >own limit, the class named | >with "+
		"points | >regression, the class named | >with points | >T | >penalty")
	all := calibratedRuns(t)
	var less tally
	var counts [2]held // without points and with them
	for _, name := range readFamilies(t).Calibrated.Families {
		p := all[name]
		if p == nil {
			continue
		}
		mark := ""
		if p.seen > 0 {
			mark = "\\*"
		}
		for _, partition := range bothPartitions {
			before := means(p.without, partition, "FMP", kept.NLL)
			after := means(p.with, partition, "FMP", kept.NLL)
			change := estimateOf(t, lessThose(after, before))
			if change.N > 1 {
				less.add(change)
			}
			fmt.Fprintf(&b, "| %s%s | %s | %d | %.4f | %.4f | %s |", name, mark, partition, change.N,
				estimateOf(t, before).Mean, estimateOf(t, after).Mean, signed(change))
			b.WriteString(rivalCells(t, name, p, partition))
			for _, of := range []kept.Figure{coverages[1], coverages[3]} {
				for i, runs := range [][]*keptRun{p.without, p.with} {
					coverageCells(t, &b, runs, partition, "FMP", []kept.Figure{of}, &counts[i])
				}
			}
			for _, of := range []string{posterior.DiagnosticTemperature, posterior.DiagnosticPenalty} {
				chosen := means(p.with, partition, "FMP", func(r *experiment.Record) *float64 {
					v := r.Diagnostics[of]
					return &v
				})
				fmt.Fprintf(&b, " %.2f |", estimateOf(t, chosen).Mean)
			}
			b.WriteString("\n")
		}
	}
	b.WriteString("\n\\* One of its extractors was seen while the choice was made.\n\n")
	heading(&b, "coverages of all rows | >below .85 | >.85 to .95 | >above")
	for i, n := range counts {
		fmt.Fprintf(&b, "| %s points | %d | %d | %d |\n", []string{"without", "with"}[i], n.below, n.in,
			n.above)
	}
	if less == (tally{}) {
		return b.String()
	}
	b.WriteString("\n")
	heading(&b, "NLL with points, rows of several extractors | >below that without | >tie | >above")
	fmt.Fprintf(&b, "| | %d | %d | %d |\n", less.below, less.tie, less.above)
	return b.String()
}

// rivalCells are those of the rival of least NLL in hindsight, which has no points, over the
// extractors behind which rivals were run, and of FMP with points less it.
func rivalCells(t *testing.T, name string, p *pairs, partition string) string {
	t.Helper()
	var theirs, ours []*keptRun
	for _, k := range p.with {
		base := filepath.Base(k.dir)
		of := filepath.Join("families", name, base[:strings.LastIndex(base, "-")])
		if _, err := os.Stat(filepath.Join("results", of)); err != nil {
			continue
		}
		r := readKept(t, of)
		if slices.Contains(r.config.Methods, "LDA") &&
			r.manifest.Models["extractor"] == k.manifest.Models["extractor"] {
			theirs, ours = append(theirs, r), append(ours, k)
		}
	}
	if len(ours) == 0 {
		return " | |"
	}
	_, _, hindsight := rivalsOf(theirs, partition)
	best := smallest(t, hindsight)
	less := lessThose(means(ours, partition, "FMP", kept.NLL), hindsight[best])
	return fmt.Sprintf(" %s %.4f | %s |", best, estimateOf(t, hindsight[best]).Mean,
		signed(estimateOf(t, less)))
}

// TestCalibrated holds the page's account of calibration points to the kept runs.
func TestCalibrated(t *testing.T) {
	readsRuns(t)
	write(t, "intervals.md", "calibrated", calibratedText(t))
}
