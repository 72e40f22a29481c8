package docs

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/pipeline/lab/audit"
	"fmp/pipeline/lab/report"
)

// privateRuns are the kept private rounds, by their settings.
func privateRuns(t *testing.T) []*keptRun {
	t.Helper()
	var out []*keptRun
	for _, set := range letterSets {
		for _, clients := range []int{10, 100} {
			for _, unit := range []string{"example", "client"} {
				for _, epsilon := range []int{1, 4} {
					k := readKept(t, "privacy", "runs",
						fmt.Sprintf("name=%s,clients=%d,epsilon=%d,unit=%s", set,
							clients, epsilon, unit))
					if c := k.config; c.Dataset.Name != set || c.Federation.Clients != clients ||
						c.Privacy.Unit != unit ||
						c.Privacy.Epsilon != float64(epsilon) || c.Seeds < 10 {
						t.Errorf("%s has other settings than its name", k.dir)
					}
					out = append(out, k)
				}
			}
		}
	}
	for _, name := range []string{"two-servers-1", "local-1", "local-4"} {
		out = append(out, readKept(t, "privacy", name))
	}
	return out
}

// bare is a table's alpha, - of homogeneous clients.
func bare(tab *report.Table) string {
	alpha, skewed := strings.CutPrefix(tab.Partition, "dirichlet-")
	if !skewed {
		return "-"
	}
	return alpha
}

// privateCells are those of a table of private rounds: FMP without noise, with it, and the plug-in.
func privateCells(none, dp, plugin *report.Row) string {
	return fmt.Sprintf("%.3f / %.3f | %.3f ± %.3f | %.3f | %.3f ± %.3f | %.3f | %.3f / %.2f",
		none.ACC.Mean, none.NLL.Mean, dp.ACC.Mean, dp.ACC.Half, dp.ECE.Mean, dp.NLL.Mean, dp.NLL.Half,
		dp.JointNear.Mean, plugin.ACC.Mean, plugin.NLL.Mean)
}

// TestPrivacyPage: the table of the page on privacy is of the kept runs. With -update it is written
// (make docs).
func TestPrivacyPage(t *testing.T) {
	readsRuns(t)
	var b strings.Builder
	heading(&b, "data, clients x images | noise | >ε | unit | >α | FMP without noise: ACC / "+
		"NLL | >FMP-DP: ACC | >ECE | >NLL | >joint NLL | plug-in: ACC / NLL | >FMP-DP less it: "+
		"NLL | FedPFT-DP: ACC / NLL")
	worse, total, near := 0, 0, 0
	for _, k := range privateRuns(t) {
		repeated(t, k)
		for _, tab := range k.tables {
			row := func(method string) *report.Row { return rowOf(t, tab, method) }
			none, dp, plugin, rival := row("FMP"), row("FMP-DP"), row("FMP-DP-plugin"), row("FedPFT-DP")
			less := k.pair(t, tab, "FMP-DP", "FMP-DP-plugin")
			c := k.config
			fmt.Fprintf(&b, "| %s, %d x %d | %s | %g | %s | %s | %s | %+.3f ± %.3f | %.3f / %.2f |\n",
				c.Dataset.Name, c.Federation.Clients, c.Federation.Points, c.Privacy.Noise,
				c.Privacy.Epsilon, c.Privacy.Unit, bare(tab), privateCells(none, dp, plugin),
				less.NLL.Mean, less.NLL.Half, rival.ACC.Mean, rival.NLL.Mean)
			total++
			if less.NLL.Lo() > 0 {
				worse++
			}
			if none.ACC.Mean-dp.ACC.Mean <= 0.01 {
				near++
			}
		}
	}
	fmt.Fprintf(&b, "\nOf the %d rows, the posterior that knows the noise has a higher NLL than the "+
		"plug-in, by more than the paired interval, in %d; its accuracy is within .01 of no "+
		"noise in %d.\n", total, worse, near)
	write(t, "privacy.md", "private-rounds", b.String())
}

// TestPrivacyOpenTable: the table of rounds on classes that the corpus lacks is of the kept runs.
func TestPrivacyOpenTable(t *testing.T) {
	readsRuns(t)
	var b strings.Builder
	heading(&b, ">ε | α | >k | FMP without noise: ACC / NLL | >FMP-DP: ACC | >ECE | >NLL | "+
		">joint NLL | plug-in: ACC / NLL | >sums of a client")
	for _, epsilon := range []int{1, 4} {
		for part := range 2 {
			for _, k := range []int{5, 12, 19, 39} {
				kept := readKept(t, "privacy", "open", fmt.Sprintf("k=%d,epsilon=%d", k, epsilon))
				c := kept.config
				if c.Privacy.Epsilon != float64(epsilon) ||
					c.Privacy.Model != fmt.Sprintf("docs/results/privacy/open/private-%d.onnx", k) ||
					c.Corpus.Classes != "0-39" || c.Dataset.Classes != "40-59" || c.Seeds < 10 {
					t.Errorf("%s has other settings than its name", kept.dir)
				}
				tab := kept.tables[part]
				none, dp, plugin := rowOf(t, tab, "FMP"), rowOf(t, tab, "FMP-DP"),
					rowOf(t, tab, "FMP-DP-plugin")
				fmt.Fprintf(&b, "| %d | %s | %d | %s | %.1f KB |\n", epsilon, bare(tab), k,
					privateCells(none, dp, plugin), dp.UploadBytes/1000)
			}
		}
	}
	write(t, "privacy.md", "private-open", b.String())
}

// TestAuditTable: the table of what parts of an upload give away is of the kept audits.
func TestAuditTable(t *testing.T) {
	files, err := filepath.Glob("results/audit/*.json")
	if err != nil || len(files) < 3 {
		t.Fatalf("kept audits %v, %v", files, err)
	}
	// by images a client
	slices.SortStableFunc(files, func(a, b string) int { return cmp.Compare(len(a), len(b)) })
	var b strings.Builder
	heading(&b, "upload, images a client | clients | >coordinates | >images behind a mean | "+
		"AUC: class means, with scatter, with points | read off whole, with points | bytes, "+
		"with scatter, of a point")
	for _, kind := range []string{"class-means", "moments"} {
		for _, file := range files {
			if !strings.HasPrefix(filepath.Base(file), kind) {
				continue
			}
			var audits []struct {
				Partition string
				Parts     []audit.Parts
			}
			readJSON(t, strings.TrimPrefix(file, "results/"), &audits)
			for _, a := range audits {
				each := 2 // class means, and with points
				if kind == "moments" {
					each = 3
				}
				for p := range slices.Chunk(a.Parts, each) {
					means, points := p[0], p[len(p)-1]
					auc := fmt.Sprintf("%.3f, -, %.3f", means.AUC, points.AUC)
					bytes := fmt.Sprintf("%.0f, -, %.0f", means.Bytes, points.PointBytes)
					if each == 3 {
						auc, bytes = fmt.Sprintf("%.3f, %.3f, %.3f", means.AUC, p[1].AUC, points.AUC),
							fmt.Sprintf("%.0f, %.0f, %.0f", means.Bytes, p[1].Bytes, points.PointBytes)
					}
					fmt.Fprintf(&b, "| %s, %d | %s | %d | %.1f | %s | %.2f, %.2f | %s |\n",
						strings.ReplaceAll(kind, "-", " "), means.Points, a.Partition,
						means.Coordinates, means.Behind, auc, means.Whole, points.Whole, bytes)
				}
			}
		}
	}
	write(t, "privacy.md", "audit-parts", b.String())
}

// TestAuditExtractors: the table of the bits that extractors get out is of the kept audit, in which
// an unknown extractor sends nothing and a packing one a whole image.
func TestAuditExtractors(t *testing.T) {
	var audits []struct{ Extractors []audit.Leak }
	readJSON(t, "audit/extractor.json", &audits)
	var b strings.Builder
	heading(&b, "extractor | upload | >images of a class | >bits of an image, on average | >of "+
		"the image that most is known of")
	for _, l := range audits[0].Extractors {
		packs := strings.HasPrefix(l.Extractor, "packing")
		if (l.Refused != "") != (l.Extractor == "unknown") || !packs && l.Best > 10 || packs &&
			l.Best > 0 && l.Best < 0.9*float64(l.Most) {
			t.Errorf("%+v", l)
		}
		if l.Refused != "" {
			fmt.Fprintf(&b, "| %s | %s | %d | refused | |\n", l.Extractor, l.Upload, l.PerClass)
			continue
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %.0f | %.0f |\n", l.Extractor, l.Upload,
			l.PerClass, l.Bits, l.Best)
	}
	fmt.Fprintf(&b, "\nAn image has %d bits.\n", audits[0].Extractors[0].Most)
	write(t, "privacy.md", "audit-extractors", b.String())
}

// TestAuditTime: the table of the attack by time is of the kept audit, in 200 runs of which replies
// at a fixed time give an AUC of .6 at most, whatever the image or the graph.
func TestAuditTime(t *testing.T) {
	var audits []struct {
		Time    []audit.Timed
		ReplyMS float64 `json:"reply_ms"`
	}
	readJSON(t, "audit/time.json", &audits)
	var b strings.Builder
	heading(&b, "what differs | >when it is made: AUC | ms with, without | >after %g ms: AUC | "+
		"ms with, without", audits[0].ReplyMS)
	measured := 0
	for _, a := range audits[0].Time {
		if a.Refused != "" {
			fmt.Fprintf(&b, "| %s | refused | | | |\n", a.Name)
			continue
		}
		measured++
		if a.Runs < 200 || a.Fixed.AUC > 0.6 {
			t.Errorf("%s: an AUC of %.3f in %d runs", a.Name, a.Fixed.AUC, a.Runs)
		}
		fmt.Fprintf(&b, "| %s | %.3f | %.1f, %.1f | %.3f | %.2f, %.2f |\n", a.Name, a.AtOnce.AUC,
			a.AtOnce.With, a.AtOnce.Without, a.Fixed.AUC, a.Fixed.With, a.Fixed.Without)
	}
	if measured < 7 {
		t.Errorf("%d attacks by time", measured)
	}
	write(t, "privacy.md", "audit-time", b.String())
}
