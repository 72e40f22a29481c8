package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestPretrained: the tables of uploads of moments behind a pretrained network are those of the kept runs, and every one of these stands in
// them.
func TestPretrained(t *testing.T) {
	dirs, err := os.ReadDir(filepath.Join("results", "pretrained"))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("| run | clients | repeats | method | ACC | ECE | NLL | NLL in hindsight | FMP's NLL less that | upload |\n| --- | --- | " +
		"---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, d := range dirs {
		k := readKept(t, "pretrained", d.Name())
		for i := range k.tables {
			tab := &k.tables[i]
			own := rowOf(t, tab, "FMP").NLL.Mean
			for _, row := range tab.Rows {
				less := "" // of FMP itself what its temperature costs
				if tab.Protocol == "calibrated" {
					less = fmt.Sprintf("%+.4f", own-row.HindsightNLL.Mean)
				}
				fmt.Fprintf(&b, "| %s | %s | %d | %s | %.4f | %.4f | %.4f ± %.4f | %.4f | %s | %.0f KB |\n", d.Name(), tab.Partition, tab.Repeats,
					row.Method, row.ACC.Mean, row.ECE.Mean,
					row.NLL.Mean, row.NLL.Half, row.HindsightNLL.Mean, less, row.UploadBytes/1000)
			}
		}
	}
	write(t, "results/README.md", "pretrained", b.String())
}
