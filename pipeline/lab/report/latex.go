package report

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// latexEscape escapes the characters that LaTeX reads as commands, and those that its default fonts
// print as others.
var latexEscape = strings.NewReplacer(`\`, `\textbackslash{}`, `&`, `\&`, `%`, `\%`, `$`, `\$`, `#`,
	`\#`, `_`, `\_`, `{`, `\{`, `}`, `\}`, `~`, `\textasciitilde{}`, `^`, `\textasciicircum{}`,
	`<`, `\textless{}`, `>`, `\textgreater{}`, `|`, `\textbar{}`, `"`, `\textquotedbl{}`,
	"±", `$\pm$`)

// Figures of a table that fit one column of a journal, and the width of a page, beside the names of
// methods.
const (
	columnFits = 3
	pageFits   = 6
)

// LaTeX writes tables for the booktabs package; one that is too wide for a column takes both. The
// best method of each group, and those not separable from it, are bold. The control's row has no
// mark. A figure that is missing is an en dash.
func LaTeX(w io.Writer, ts []Table) error {
	var b strings.Builder
	b.WriteString("% needs \\usepackage{booktabs}")
	if slices.ContainsFunc(ts, func(t Table) bool { return len(t.columns()) > pageFits }) {
		b.WriteString("; wider than a page: fmp results export --columns chooses")
	}
	b.WriteString("\n")
	for _, t := range ts {
		shown, float := t.columns(), "table"
		if len(shown) > columnFits {
			float = "table*"
		}
		fmt.Fprintf(&b, "\\begin{%s}\n\\centering\n\\caption{%s}\n", float,
			latexEscape.Replace(t.title()))
		extras := t.extras(true, false)
		// Columns of the table: the method's, the figures, and those behind them.
		width := len(shown) + 1 + len(extras)
		b.WriteString("\\begin{tabular}{l" + strings.Repeat("r", width-1) + "}\n\\toprule\nMethod")
		for _, c := range shown {
			b.WriteString(" & " + latexEscape.Replace(headings[c]))
		}
		for _, e := range extras {
			b.WriteString(" & " + strings.ToUpper(e.name[:1]) + e.name[1:])
		}
		b.WriteString(" \\\\\n")
		group := ""
		for _, r := range t.Rows {
			if r.Group != group {
				group = r.Group
				fmt.Fprintf(&b, "\\midrule\n\\multicolumn{%d}{l}{\\emph{%s}} \\\\\n", width,
					latexEscape.Replace(group))
			}
			label := latexEscape.Replace(r.label())
			if r.Subject() {
				label = "\\textbf{" + label + "}"
			}
			b.WriteString(label)
			for _, c := range shown {
				i := r.interval(c)
				// In LaTeX's text - is a hyphen; the en dash stands for a missing figure, and for a
				// minus sign.
				s := strings.ReplaceAll(mean(*i), "-", "--")
				if r.best[c] {
					s = "\\textbf{" + s + "}"
				}
				if varies(i) {
					s += fmt.Sprintf(" {\\scriptsize$\\pm$%.4f}", i.Half)
				}
				b.WriteString(" & " + s)
			}
			for _, e := range extras {
				s := e.cell(&r)
				// byteSize writes an unknown size so.
				if s == "-" {
					s = "--"
				}
				b.WriteString(" & " + latexEscape.Replace(s))
			}
			b.WriteString(" \\\\\n")
		}
		b.WriteString("\\bottomrule\n\\end{tabular}\n")
		for _, s := range notes([]Table{t}, true) {
			b.WriteString("\n{\\footnotesize " + latexEscape.Replace(s) + "}\n")
		}
		fmt.Fprintf(&b, "\\end{%s}\n", float)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing LaTeX: %w", err)
	}
	return nil
}
