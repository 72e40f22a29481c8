package docs

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fmp/docs/internal/kept"
	"fmp/onnx/must"
	"fmp/pipeline/lab/experiment"
)

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
