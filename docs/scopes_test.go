package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/pipeline/report"
)

// isRival says whether a row is a one-shot rival of FMP: its server has uploads, and the corpus that all of them may use.
func isRival(r *report.Row) bool {
	return r.Group == "one-shot federated" && !strings.HasPrefix(r.Method, "FMP")
}

// scopeText is a table for each partition of a run in which every method has its own settings and temperature: FMP's
// paired difference to each.
func scopeText(t *testing.T, title string, k *kept) string {
	var b strings.Builder
	for i := range k.tables {
		tab := &k.tables[i]
		if tab.Protocol != "tuned" {
			continue
		}
		fmt.Fprintf(&b, "**%s, %s**, %d repeats\n\n| method | ACC | ECE | raw NLL | NLL | joint NLL | upload | FMP less it: NLL | joint NLL |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n", title, tab.Partition, tab.Repeats)
		for _, r := range tab.Rows {
			size := "-"
			if r.UploadBytes > 0 {
				size = fmt.Sprintf("%.0f B", r.UploadBytes)
			}
			raw := "-"
			if r.RawNLL.N > 0 {
				raw = fmt.Sprintf("%.3f", r.RawNLL.Mean)
			}
			fmt.Fprintf(&b, "| %s | %.4f | %.4f | %s | %.4f ± %.4f | %.4f | %s |", r.Method, r.ACC.Mean, r.ECE.Mean, raw, r.NLL.Mean, r.NLL.Half, r.JointNear.Mean, size)
			if r.Method == "FMP" {
				b.WriteString(" | |\n")
				continue
			}
			d := k.less(t, tab, r.Method)
			fmt.Fprintf(&b, " %+.4f ± %.4f | %+.4f ± %.4f |\n", d.NLL.Mean, d.NLL.Half, d.JointNear.Mean, d.JointNear.Half)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// bestText is a line for each partition of each run: FMP beside the rival with the least mean NLL, and the one with the least
// joint NLL, each tuned, and what FMP's intervals hold.
func bestText(t *testing.T, titles []string, runs []*kept) string {
	var b strings.Builder
	b.WriteString("| tasks | clients | FMP: NLL | joint NLL | best rival in NLL | FMP less it | best in joint NLL | FMP less it | 90% of the top class's intervals |\n| --- | --- | ---: | ---: | --- | --- | --- | --- | ---: |\n")
	for i, k := range runs {
		for j := range k.tables {
			tab := &k.tables[j]
			if tab.Protocol != "tuned" {
				continue
			}
			own := rowOf(t, tab, "FMP")
			fmt.Fprintf(&b, "| %s | %s | %.4f | %.4f |", titles[i], tab.Partition, own.NLL.Mean, own.JointNear.Mean)
			for _, joint := range []bool{false, true} {
				figure := func(f *report.Figures) float64 {
					if joint {
						return f.JointNear.Mean
					}
					return f.NLL.Mean
				}
				var best *report.Row
				for r := range tab.Rows {
					if row := &tab.Rows[r]; isRival(row) && (best == nil || figure(&row.Figures) < figure(&best.Figures)) {
						best = row
					}
				}
				if best == nil {
					t.Fatalf("%s has no rival", k.dir)
				}
				d := k.less(t, tab, best.Method)
				x := d.NLL
				if joint {
					x = d.JointNear
				}
				word := "tie"
				switch {
				case x.Mean+x.Half < 0:
					word = "met"
				case x.Mean-x.Half > 0:
					word = "**missed**"
				}
				fmt.Fprintf(&b, " %s %.4f | %+.4f ± %.4f, %s |", best.Method, figure(&best.Figures), x.Mean, x.Half, word)
			}
			cover := "-"
			if c := own.CoverTop; c.N > 0 {
				cover = fmt.Sprintf("%.3f", c.Mean)
				if c.Mean < 0.85 || c.Mean > 0.95 {
					cover += ", **missed**"
				}
			}
			fmt.Fprintf(&b, " %s |\n", cover)
		}
	}
	return b.String()
}

// TestScopes: the tables of open and closed scope are those of the kept runs, each of ten repeats.
func TestScopes(t *testing.T) {
	for scope, names := range map[string][]string{
		"open":   {"cifar100-20", "cifar100-10", "cifar100-5", "cifar10-10", "cifar10-40", "digits", "points-5"},
		"closed": {"cifar10", "cifar100", "mnist"},
	} {
		entries, err := os.ReadDir(filepath.Join("results", scope))
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.IsDir() && !slices.Contains(names, e.Name()) {
				t.Errorf("the run results/%s/%s stands in no table", scope, e.Name())
			}
		}
		var runs []*kept
		var tables strings.Builder
		for _, n := range names {
			k := readKept(t, scope, n)
			for _, tab := range k.tables {
				if tab.Repeats < 10 || tab.Repeats != k.config.Seeds {
					t.Errorf("%s, %s has %d repeats of %d", k.dir, tab.Partition, tab.Repeats, k.config.Seeds)
				}
			}
			runs = append(runs, k)
			tables.WriteString(scopeText(t, n, k))
		}
		write(t, "results/README.md", scope+"-best", bestText(t, names, runs))
		write(t, "results/README.md", scope, tables.String())
	}
}
