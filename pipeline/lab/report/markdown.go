package report

import (
	"fmt"
	"io"
	"strings"

	"fmp/onnx/printable"
)

// Markdown writes tables in GitHub's Markdown. The best method of each group, and those not
// separable from it, are bold. Where the reader chose columns, side tables and printed figures are
// left out. The tables stay as they are. Everything is written at once, at the end.
func Markdown(w io.Writer, ts []Table) error {
	var b strings.Builder
	for i, t := range ts {
		if i > 0 {
			b.WriteByte('\n')
		}
		// t is a copy: the caller's table keeps the name, which may be that of a folder.
		t.Dataset = printable.Markdown(t.Dataset)
		fmt.Fprintf(&b, "### %s\n\n", t.title())
		b.WriteString("| group | method |")
		shown := t.columns()
		for _, c := range shown {
			fmt.Fprintf(&b, " %s |", headings[c])
		}
		extras := t.extras(true, false)
		if t.chosen == nil {
			// The paper has no figure of the control: its cell states the accuracy of guessing.
			extras = append(extras, extra{printedName, 0, func(r *Row) string {
				if r.Printed == nil && r.Control() && t.Chance > 0 {
					return fmt.Sprintf("chance %.2f", t.Chance)
				}
				return r.printed()
			}})
		}
		for _, e := range extras {
			fmt.Fprintf(&b, " %s |", e.name)
		}
		b.WriteString("\n| --- | --- |")
		b.WriteString(strings.Repeat(" ---: |", len(shown)+len(extras)) + "\n")
		// A group is named in its first row alone.
		group := ""
		for _, r := range t.Rows {
			g := ""
			if r.Group != group {
				group, g = r.Group, r.Group
			}
			label := r.label()
			if r.Subject() {
				label = "**" + label + "**"
			}
			fmt.Fprintf(&b, "| %s | %s |", g, label)
			for _, c := range shown {
				s := cell(*r.interval(c), " ± ")
				if r.best[c] {
					s = "**" + s + "**"
				}
				fmt.Fprintf(&b, " %s |", s)
			}
			for _, e := range extras {
				fmt.Fprintf(&b, " %s |", e.cell(&r))
			}
			b.WriteByte('\n')
		}
		if t.chosen != nil {
			continue
		}
		for _, g := range t.sideTables() {
			g.markdown(&b)
		}
	}
	for _, s := range notes(ts, true) {
		fmt.Fprintf(&b, "\n%s\n", s)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing Markdown: %w", err)
	}
	return nil
}
