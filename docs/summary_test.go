package docs

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"fmp/onnx/must"
)

// cellsOf are the rows of the Markdown tables in a text, heads and rules left out.
func cellsOf(text string) [][]string {
	var out [][]string
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if !strings.HasPrefix(l, "| ") || strings.HasPrefix(l, "| ---") || i+1 < len(lines) &&
			strings.HasPrefix(lines[i+1], "| ---") {
			continue
		}
		cells := strings.Split(strings.Trim(l, "| "), " | ")
		for c := range cells {
			cells[c] = strings.TrimSpace(cells[c])
		}
		out = append(out, cells)
	}
	return out
}

// summaryText counts what tables of the page of results say of aims.
func summaryText(t *testing.T, page string) string {
	var b strings.Builder
	heading(&b, "aim | table | >met | >tie | missed")
	for _, a := range []struct {
		aim, where, part string
		columns          []int // nil: all after the first
		plain            bool  // a cell without a word is met
	}{
		{"open scope: NLL below every tuned rival's (ties allowed)",
			"[open scope](#open-scope-classes-that-nobody-has-seen)", "open-best", []int{5}, false},
		{"likewise joint NLL", "", "open-best", []int{7}, false},
		{"90% intervals of the top class's probability hold 0.85 to 0.95", "", "open-best",
			[]int{8}, true},
		{"closed scope: NLL below every tuned rival's (MNIST: not above by more than the interval)",
			"[closed scope](#aims-in-closed-scope)", "closed-aims", []int{2}, false},
		{"likewise joint NLL", "", "closed-aims", []int{3}, false},
		{"NLL at most 0.003 above the reference's", "", "closed-aims", []int{4}, false},
		{"90% intervals hold 0.85 to 0.95 of the probabilities of a regression", "", "closed-aims",
			[]int{5}, false},
		{"images of no class of the task told by entropy: AUROC 0.84 (CIFAR-100), 0.77 (MNIST)",
			"[other images](#other-images-and-spoiled-ones)", "shifts", nil, false},
		{"the paper's aims, FMP", "[the paper's](#aims-and-what-was-reached)", "aims", nil, false},
		{"the paper's aims, its own predictor (FMP-ISAB)", "", "aims-isab", nil, false},
	} {
		text, _, _ := between(t, page, a.part)
		met, tie := 0, 0
		var missed []string
		for _, row := range cellsOf(text) {
			for c := 1; c < len(row); c++ {
				if len(a.columns) > 0 && !slices.Contains(a.columns, c) {
					continue
				}
				switch {
				case strings.HasSuffix(row[c], "**missed**"):
					missed = append(missed, row[0]+", "+row[1])
				case strings.HasSuffix(row[c], ", tie"):
					tie++
				case strings.HasSuffix(row[c], ", met"), a.plain:
					met++
				}
			}
		}
		if met+tie+len(missed) == 0 {
			t.Errorf("the part %s of the page of results says of no aim whether it was met", a.part)
		}
		names := fmt.Sprint(len(missed))
		if len(a.columns) > 0 && len(missed) > 0 {
			names += ": " + strings.Join(missed, "; ")
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %s |\n", a.aim, a.where, met, tie, names)
	}
	return b.String()
}

// TestSummary: the counts of aims met and missed are those of the tables of the page.
func TestSummary(t *testing.T) {
	page := must.Get(os.ReadFile("results/all.md"))(t)
	write(t, "results/all.md", "summary", summaryText(t, string(page)))
}
