package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/stat"

	"fmp/onnx/must"
)

// maxLost is the NLL by which a corpus may make a round of moments worse.
const maxLost = 0.005

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
			partition := tab.Partition
			var a, z, less []float64
			taken := 0
			for _, r := range with.records {
				for _, o := range without.records {
					if r.Partition == partition && o.Partition == partition && o.Repeat == r.Repeat {
						a, z, less = append(a, o.NLL), append(z, r.NLL), append(less, r.NLL-o.NLL)
						if r.Diagnostics["corpus"] > 0 {
							taken++
						}
						if _, has := o.Diagnostics["corpus"]; has {
							t.Errorf("%s-without has a corpus", name)
						}
					}
				}
			}
			if len(less) != tab.Repeats {
				t.Fatalf("%s: %d pairs of %d repeats", name, len(less), tab.Repeats)
			}
			mean, most := stat.Mean(less, nil), slices.Max(less)
			fmt.Fprintf(&b, "| %s | %s | %d | %d | %.4f | %.4f | %s | %s |\n", name,
				partition, len(less), taken, stat.Mean(a, nil), stat.Mean(z, nil),
				verdict(mean <= maxLost, "%+.4f", mean), verdict(most <= maxLost, "%+.4f", most))
		}
	}
	write(t, "results/all.md", "corpus", b.String())
}
