package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"fmp/onnx/sorting"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/metric"
)

// Shifted holds one method's figures on images other than the test images: those of another kind
// (Severity 0), or test images corrupted at a severity, averaged over the kinds of corruption.
// Intervals without repeats (N of 0) stand for figures that the records lack.
type Shifted struct {
	Method   string `json:"method"`
	Name     string `json:"name,omitempty"` // the other images
	Severity int    `json:"severity,omitempty"`
	// ACC, ECE and NLL are on corrupted images; Entropy and Disagreement are areas under the ROC
	// curve of telling other images from test images.
	ACC          metric.Interval `json:"acc,omitzero"`
	ECE          metric.Interval `json:"ece,omitzero"`
	NLL          metric.Interval `json:"nll,omitzero"`
	Entropy      metric.Interval `json:"auroc_entropy,omitzero"`
	Disagreement metric.Interval `json:"auroc_disagreement,omitzero"`
}

// shifted summarises the records of one table, for methods in the given order. Within a repeat,
// figures of one severity are means over the kinds of corruption; intervals are over repeats. A
// disagreement of 0 means that it was not measured. The order is by method, and within one as the
// first record has its shifts.
func shifted(rs []experiment.Record, methods []string, m *experiment.Manifest) ([]Shifted, error) {
	type key struct {
		method, name string
		severity     int
	}
	// They are in the order of the fields of Shifted: ACC, ECE, NLL, Entropy, Disagreement.
	type figures [5][]float64 // one figure per repeat
	var order []key
	values := map[key]*figures{}
	for _, r := range rs {
		type sum struct{ acc, ece, nll, n float64 }
		// Sums over the kinds of corruption, of this repeat alone.
		bySeverity := map[int]*sum{}
		take := func(k key) *figures {
			if values[k] == nil {
				values[k] = &figures{}
				order = append(order, k)
			}
			return values[k]
		}
		for _, s := range r.Shifted {
			if s.Severity > 0 {
				if bySeverity[s.Severity] == nil {
					bySeverity[s.Severity] = &sum{}
				}
				b := bySeverity[s.Severity]
				b.acc, b.ece, b.nll, b.n = b.acc+s.ACC, b.ece+s.ECE, b.nll+s.NLL, b.n+1
				continue
			}
			v := take(key{r.Method, s.Name, 0})
			v[3] = append(v[3], s.Entropy)
			if s.Disagreement > 0 {
				v[4] = append(v[4], s.Disagreement)
			}
		}
		for severity := 1; severity <= len(bySeverity); severity++ {
			if b := bySeverity[severity]; b != nil {
				v := take(key{r.Method, "", severity})
				v[0], v[1], v[2] = append(v[0], b.acc/b.n), append(v[1], b.ece/b.n),
					append(v[2], b.nll/b.n)
			}
		}
	}
	sorting.Stably(order, func(a, b key) int {
		return slices.Index(methods, a.method) - slices.Index(methods, b.method)
	})
	var out []Shifted
	for _, k := range order {
		s := Shifted{Method: k.method, Name: k.name, Severity: k.severity}
		for i, to := range []*metric.Interval{&s.ACC, &s.ECE, &s.NLL, &s.Entropy, &s.Disagreement} {
			if len(values[k][i]) == 0 {
				continue
			}
			var err error
			if *to, err = estimate(values[k][i], m); err != nil {
				return nil, fmt.Errorf("%s, %s: %w", k.method, k.name, err)
			}
		}
		out = append(out, s)
	}
	return out, nil
}

// sideTable is a small table accompanying the main one.
type sideTable struct {
	Title    string
	Headings []string // headings of the cells; the first column has none
	Rows     []sideRow
}

// sideRow is a method's row, with a cell for each heading.
type sideRow struct {
	Label string
	Cells []string
}

// sideTables returns the tables of other and of corrupted images; none where the run had none.
// Cells stand in the order of the headings, which is that of the first method's figures.
func (t *Table) sideTables() []sideTable {
	other := sideTable{Title: "Other images: area under the ROC curve by entropy / by " +
		"disagreement of the samples"}
	spoiled := sideTable{Title: "Spoiled images, mean over the corruptions, by severity: " +
		"ACC / ECE / NLL"}
	for _, s := range t.Shifted {
		g, heading, cell := &other, s.Name, mean(s.Entropy)+" / "+mean(s.Disagreement)
		if s.Severity > 0 {
			g, heading, cell = &spoiled, fmt.Sprint(s.Severity),
				fmt.Sprintf("%.3f / %.3f / %.3f", s.ACC.Mean, s.ECE.Mean, s.NLL.Mean)
		}
		// Figures of one method follow each other, so that another name begins a row.
		if len(g.Rows) == 0 || g.Rows[len(g.Rows)-1].Label != s.Method {
			g.Rows = append(g.Rows, sideRow{Label: s.Method})
		}
		if !slices.Contains(g.Headings, heading) {
			g.Headings = append(g.Headings, heading)
		}
		r := &g.Rows[len(g.Rows)-1]
		r.Cells = append(r.Cells, cell)
	}
	return slices.DeleteFunc([]sideTable{other, spoiled},
		func(g sideTable) bool { return len(g.Rows) == 0 })
}

// markdown writes the table in GitHub's Markdown, its title as a paragraph.
func (g *sideTable) markdown(w io.Writer) {
	fmt.Fprintf(w, "\n%s:\n\n| method | %s |\n| --- |%s\n", g.Title,
		strings.Join(g.Headings, " | "), strings.Repeat(" ---: |", len(g.Headings)))
	for _, r := range g.Rows {
		fmt.Fprintf(w, "| %s | %s |\n", r.Label, strings.Join(r.Cells, " | "))
	}
}

// text writes the table for a terminal. Columns are as wide as the widest cell.
func (g *sideTable) text(w io.Writer) {
	width := 0
	for _, r := range g.Rows {
		for _, c := range r.Cells {
			width = max(width, len(c))
		}
	}
	fmt.Fprintf(w, "%s\n  %-10s", g.Title, "")
	for _, h := range g.Headings {
		fmt.Fprintf(w, "  %*s", width, h)
	}
	fmt.Fprintln(w)
	for _, r := range g.Rows {
		fmt.Fprintf(w, "  %-10s", r.Label)
		for _, c := range r.Cells {
			fmt.Fprintf(w, "  %*s", width, c)
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintln(w)
}
