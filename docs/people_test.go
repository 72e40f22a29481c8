package docs

import (
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"fmp/onnx/must"
)

// rowsForPeople are the rows of longer tables that the page of results keeps, by part; of other
// parts it has all.
var rowsForPeople = map[string][]string{
	"beyond": {"| tasks |", "| --- |", "| open, cifar10-10 |", "| open, cifar100-20 |",
		"| open, points-5 |"},
	"letter": {"| CIFAR-10,", "| --- |", "| printed |", "| names drawn", "| fixed names, 35",
		"| fixed names, 50"},
}

// forPeople shortens a part of another page: the rows that are kept, links that lead there, pairs
// of figures without spaces.
func forPeople(part, text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if keep := rowsForPeople[part]; keep == nil ||
			slices.ContainsFunc(keep, func(of string) bool { return strings.HasPrefix(line, of) }) {
			b.WriteString(line)
		}
	}
	return strings.NewReplacer("](#", "](all.md#", " / ", "/").Replace(b.String())
}

// TestResultsForPeople: the page of results has README's table and parts of the pages of all tables
// and of the letter's numbers.
func TestResultsForPeople(t *testing.T) {
	const path = "results/README.md"
	all := must.Get(os.ReadFile("results/all.md"))(t)
	write(t, path, "measured", measuredText(t))
	for _, part := range []string{"summary", "beyond", "results-table"} {
		text, _, _ := between(t, string(all), part)
		write(t, path, part, forPeople(part, text))
	}
	write(t, path, "letter", forPeople("letter", letterText(t)))
}

// letterRow is the mean figures of a method in kept lines of the search over what the letter leaves
// unsaid.
type letterRow struct{ acc, ece, nll, bytes, n float64 }

// letterRows reads kept lines of fmp results export: mean figures by the values of the given
// columns, and method.
func letterRows(t *testing.T, file string, by ...string) map[string]letterRow {
	t.Helper()
	f := must.Get(os.Open(filepath.Join("results", "letter", file)))(t)
	defer f.Close()
	lines := must.Get(csv.NewReader(f).ReadAll())(t)
	column := func(line []string, name string) string {
		i := slices.Index(lines[0], name)
		if i < 0 {
			t.Fatalf("%s has no column %s", file, name)
		}
		return line[i]
	}
	out := map[string]letterRow{}
	for _, line := range lines[1:] {
		var key []string
		for _, name := range append(by, "method") {
			key = append(key, column(line, name))
		}
		r := out[strings.Join(key, " ")]
		for name, to := range map[string]*float64{"acc": &r.acc, "ece": &r.ece, "nll": &r.nll,
			"upload_bytes": &r.bytes} {
			v := must.Get(strconv.ParseFloat(column(line, name), 64))(t)
			*to += v
		}
		r.n++
		out[strings.Join(key, " ")] = r
	}
	for k, r := range out {
		out[k] = letterRow{r.acc / r.n, r.ece / r.n, r.nll / r.n, r.bytes / r.n, r.n}
	}
	return out
}

// letterText is the printed figures of CIFAR-10 beside those behind predictors with names drawn
// anew, and with fixed ones.
func letterText(t *testing.T) string {
	methods := []string{"LANN", "LMP", "ANN", "MP", "CANN", "CFMP", "FMP-ISAB", "PRIOR"}
	var b strings.Builder
	heading(&b, "CIFAR-10, ACC / ECE | >%s",
		strings.Replace(strings.Join(methods, " | >"), "PRIOR", "prior only", 1))
	b.WriteString("| printed | .574 / .085 | .690 / .105 | .786 / .073 | .806 / .034 | .741 / .213 | " +
		".774 / .142 | .789 / .057 | |\n")
	row := func(name string, of map[string]letterRow, key string) {
		fmt.Fprintf(&b, "| %s |", name)
		for _, m := range methods {
			if r, ok := of[key+" "+m]; ok {
				fmt.Fprintf(&b, " %.3f / %.3f |", r.acc, r.ece)
			} else {
				b.WriteString(" |")
			}
		}
		b.WriteString("\n")
	}
	row("names drawn anew in each task",
		letterRows(t, "search.csv", "federation.points", "erm.l2", "predictor.fresh"), "10 3 100")
	partly := letterRows(t, "partly.csv", "predictor.model")
	for _, steps := range []string{"25", "35", "50", "100"} {
		row("fixed names, "+steps+" steps", partly, "letter/fixed-"+steps+".onnx")
	}
	row("fixed names, 300 steps", partly, "letter/fixed.onnx")
	return strings.ReplaceAll(b.String(), " 0.", " .")
}

// TestLetterPage: the tables of the page on the letter's numbers are those of the kept search.
func TestLetterPage(t *testing.T) {
	const path = "results/letter.md"
	write(t, path, "letter", letterText(t))
	write(t, path, "covariance", covarianceText(t))
	write(t, path, "gap", gapText(t))
	write(t, path, "sizes", sizesText(t))
	rows := letterRows(t, "search.csv", "federation.points", "erm.l2", "predictor.fresh")
	most := 0.0
	for key, r := range rows {
		if of, ok := strings.CutSuffix(key, " LMP"); ok {
			most = max(most, r.acc-rows[of+" LANN"].acc)
		}
	}
	page := must.Get(os.ReadFile(path))(t)
	said := fmt.Sprintf("brings more than %s,", strings.TrimPrefix(fmt.Sprintf("%.3f", most), "0"))
	if !strings.Contains(string(page), said) {
		t.Errorf("%s does not say that nothing %s", path, said)
	}
}

// covarianceText is the consensus by the form of its covariances.
func covarianceText(t *testing.T) string {
	rows := letterRows(t, "covariance.csv", "posterior.consensus", "federation.points", "erm.l2")
	var b strings.Builder
	heading(&b, "CFMP, ACC / ECE | >λ = .3 | >1 | >3 | >10")
	b.WriteString("| printed, λ unknown | .774 / .142 | | | |\n")
	for _, c := range []string{"diagonal", "full"} {
		for _, points := range []string{"10", "20"} {
			fmt.Fprintf(&b, "| %s, %s points |", c, points)
			for _, l2 := range []string{"0.3", "1", "3", "10"} {
				r, ok := rows[strings.Join([]string{c, points, l2, "CFMP"}, " ")]
				if !ok {
					t.Fatalf("covariance.csv lacks %s, %s points, l2 %s", c, points, l2)
				}
				fmt.Fprintf(&b, " %.3f / %.3f |", r.acc, r.ece)
			}
			b.WriteString("\n")
		}
	}
	return strings.ReplaceAll(b.String(), " 0.", " .")
}

// gapText is the embedding's objective by steps of training, s and n.
func gapText(t *testing.T) string {
	var b strings.Builder
	heading(&b, "s, n | >step 50 | >100 | >150 | >200")
	for _, r := range [][2]string{{"s-10", "s = 10, n = 40"}, {"s-20", "s = 20, n = 40"},
		{"s-40", "s = 40, n = 40"}, {"s-80", "s = 80, n = 40"}, {"n-10", "s = 10, n = 10"},
		{"n-20", "s = 10, n = 20"},
		{"n-80", "s = 10, n = 80"}} {
		at := gaps(t, "letter", r[0]+".jsonl")
		fmt.Fprintf(&b, "| %s |", r[1])
		for _, step := range []int{50, 100, 150, 200} {
			if at[step] == 0 {
				t.Fatalf("%s.jsonl has no validation at step %d", r[0], step)
			}
			fmt.Fprintf(&b, " %.3f |", at[step])
		}
		b.WriteString("\n")
	}
	return strings.ReplaceAll(b.String(), " 0.", " .")
}

// sizesText is the paper's method by the number of points in an upload.
func sizesText(t *testing.T) string {
	rows := letterRows(t, "sizes.csv", "embedding.model", "partition")
	var b strings.Builder
	heading(&b, "row | >bytes | >ACC / ECE / NLL, even | >skewed")
	line := func(name, key, method string) {
		even, skewed := rows[key+" homogeneous "+method], rows[key+" dirichlet-0.1 "+method]
		if even.n == 0 || skewed.n == 0 {
			t.Fatalf("sizes.csv lacks %s, %s", key, method)
		}
		fmt.Fprintf(&b, "| %s | %.0f |", name, even.bytes)
		for _, r := range []letterRow{even, skewed} {
			fmt.Fprintf(&b, " %.3f / %.3f / %.3f |", r.acc, r.ece, r.nll)
		}
		b.WriteString("\n")
	}
	for _, s := range []string{"10", "20", "40", "80"} {
		line("FMP-ISAB, s = "+s, "letter/s-"+s+".onnx", "FMP-ISAB")
	}
	line("FMP", "letter/s-10.onnx", "FMP")
	line("MP, all points", "letter/s-10.onnx", "MP")
	return strings.ReplaceAll(b.String(), " 0.", " .")
}
