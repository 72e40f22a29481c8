package report

import (
	"fmt"
	"io"
	"strings"

	"fmp/onnx/printable"
)

// Markdown writes tables in GitHub's Markdown. The best method of each group, and those not
// separable from it, are bold.
func Markdown(w io.Writer, ts []Table) error {
	var b strings.Builder
	for i, t := range ts {
		if i > 0 {
			b.WriteByte('\n')
		}
		t.Dataset = printable.Markdown(t.Dataset)
		fmt.Fprintf(&b, "### %s\n\n", t.title())
		b.WriteString("| group | method |")
		shown := t.columns()
		for _, c := range shown {
			fmt.Fprintf(&b, " %s |", headings[c])
		}
		more := 0
		if t.showsUpload() {
			b.WriteString(" upload |")
			more++
		}
		if t.showsSetting() {
			b.WriteString(" setting |")
			more++
		}
		if t.chosen == nil {
			b.WriteString(" printed ACC / ECE |")
			more++
		}
		b.WriteString("\n| --- | --- |")
		b.WriteString(strings.Repeat(" ---: |", len(shown)+more) + "\n")
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
			p := ""
			if r.Printed != nil {
				p = fmt.Sprintf("%.4f / %.4f", r.Printed.ACC, r.Printed.ECE)
			} else if r.Control() && t.Chance > 0 {
				p = fmt.Sprintf("chance %.2f", t.Chance)
			}
			if t.showsUpload() {
				fmt.Fprintf(&b, " %s |", byteSize(r.UploadBytes))
			}
			if t.showsSetting() {
				fmt.Fprintf(&b, " %s |", r.setting())
			}
			if t.chosen == nil {
				fmt.Fprintf(&b, " %s |", p)
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
	for _, s := range origins(ts) {
		fmt.Fprintf(&b, "\n%s\n", s)
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("writing Markdown: %w", err)
	}
	return nil
}
