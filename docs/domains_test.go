package docs

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"fmp/onnx/must"
	"fmp/pipeline/lab/domains"
)

// keptDomains is what fmp bench domains --json prints.
type keptDomains struct {
	Dataset    string
	Family     string
	Kinds      []string
	Severities []int
	Points     int
	Alpha      float64
	Repeats    int
	Rows       []domains.Row
}

// TestDomains: the table of clients as domains is that of the kept runs, which are those of
// families.yaml. Of the later families those that were run are in it.
func TestDomains(t *testing.T) {
	f := readFamilies(t).Domains
	var b strings.Builder
	var runs []domainRun
	for _, data := range f.Data {
		runs = append(runs, domainRun{Family: "corruptions", Data: data, Points: f.Points})
	}
	for i, run := range slices.Concat(runs, f.More.Runs) {
		at := slices.IndexFunc(domains.Families,
			func(d domains.Family) bool { return d.Name == run.Family })
		if at < 0 {
			t.Fatalf("families.yaml has the domains %q", run.Family)
		}
		family := domains.Families[at]
		for _, alpha := range f.Alphas {
			file, behind := run.Data, run.Data
			if run.Extractor != "" {
				file, behind = run.Data+"-"+run.Extractor, run.Data+" behind EfficientNet-Lite0"
			}
			text, err := os.ReadFile(fmt.Sprintf("results/domains/%s-%s-%g.json",
				run.Family, file, alpha))
			if errors.Is(err, fs.ErrNotExist) && i >= len(runs) {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			var k keptDomains
			must.Do(t, json.Unmarshal(text, &k))
			if k.Dataset != run.Data || k.Alpha != alpha || k.Points != run.Points ||
				k.Repeats != f.Repeats ||
				!slices.Equal(k.Kinds, family.Kinds) || !slices.Equal(k.Severities, family.Severities) {
				t.Errorf("%+v, alpha %g, is of %s, alpha %g, %d images, %d repeats, %v, %v", run, alpha,
					k.Dataset, k.Alpha, k.Points, k.Repeats, k.Kinds, k.Severities)
			}
			b.WriteString("\n")
			heading(&b, "%s, %s, %s, %d repeats | >known domain: ACC | >NLL | >unknown kind: ACC | >NLL",
				run.Family, behind, ofAlpha(alpha), k.Repeats)
			for _, r := range k.Rows {
				if r.Strength > 0 {
					r.Name += fmt.Sprintf(", strength %.2f", r.Strength)
				}
				fmt.Fprintf(&b, "| %s | %.3f | %.3f |", r.Name, r.Known.ACC, r.Known.NLL)
				if r.Unknown != nil {
					fmt.Fprintf(&b, " %.3f | %.3f |\n", r.Unknown.ACC, r.Unknown.NLL)
				} else {
					b.WriteString("  |  |\n")
				}
			}
		}
	}
	write(t, "results/domains/README.md", "domains", b.String()+"\n")
}
