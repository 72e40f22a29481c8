package docs

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"fmp/pipeline/lab/domains"
)

// keptDomains is what fmp bench domains --json prints.
type keptDomains struct {
	Dataset    string
	Kinds      []string
	Severities []int
	Points     int
	Alpha      float64
	Repeats    int
	Rows       []domains.Row
}

// TestDomains: the table of clients as domains is that of the kept runs, which are those of families.yaml.
func TestDomains(t *testing.T) {
	f := readFamilies(t).Domains
	var b strings.Builder
	for _, data := range f.Data {
		for _, alpha := range f.Alphas {
			text, err := os.ReadFile(fmt.Sprintf("results/domains/%s-%g.json", data, alpha))
			if err != nil {
				t.Fatal(err)
			}
			var k keptDomains
			if err := json.Unmarshal(text, &k); err != nil {
				t.Fatal(err)
			}
			if k.Dataset != data || k.Alpha != alpha || k.Points != f.Points || k.Repeats != f.Repeats || !slices.Equal(k.Kinds, f.Kinds) ||
				!slices.Equal(k.Severities, f.Severities) {
				t.Errorf("%s, alpha %g, is of %s, alpha %g, %d images, %d repeats, %v, %v", data, alpha, k.Dataset, k.Alpha, k.Points, k.Repeats,
					k.Kinds, k.Severities)
			}
			clients := "homogeneous"
			if alpha > 0 {
				clients = fmt.Sprintf("α = %g", alpha)
			}
			fmt.Fprintf(&b, "\n| %s, %s, %d repeats | known domain: ACC | NLL | unknown kind: ACC | NLL |\n| --- | ---: | ---: | ---: | ---: |\n",
				data, clients, k.Repeats)
			for _, r := range k.Rows {
				fmt.Fprintf(&b, "| %s | %.3f | %.3f |", r.Name, r.Known.ACC, r.Known.NLL)
				if r.Unknown != nil {
					fmt.Fprintf(&b, " %.3f | %.3f |\n", r.Unknown.ACC, r.Unknown.NLL)
				} else {
					b.WriteString("  |  |\n")
				}
			}
		}
	}
	write(t, "results/README.md", "domains", b.String()+"\n")
}
