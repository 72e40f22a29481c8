package report

import (
	"fmt"
	"io"
	"strings"

	"fmp/pipeline/metric"
)

var headings = [columns]string{"ACC", "ECE", "NLL", "Brier"}

// title names a table in one line.
func (t *Table) title() string {
	p := "homogeneous clients"
	if t.Alpha > 0 {
		p = fmt.Sprintf("Dirichlet clients, alpha = %g", t.Alpha)
	}
	s := "shared settings"
	if t.tuned() {
		s = "settings tuned per method on the corpus"
	}
	repeats := "1 repeat"
	if t.Repeats != 1 {
		repeats = fmt.Sprintf("%d repeats", t.Repeats)
	}
	return fmt.Sprintf("%s, %s, %s, %s", t.Dataset, p, s, repeats)
}

// cell is a figure with the half-width of its interval, four decimals each, as a table shows it.
func cell(i metric.Interval, pm string) string {
	if i.N < 2 {
		return fmt.Sprintf("%.4f", i.Mean)
	}
	return fmt.Sprintf("%.4f%s%.4f", i.Mean, pm, i.Half)
}

// byteSize is a number of bytes for people.
func byteSize(b float64) string {
	switch {
	case b == 0:
		return "-"
	case b < 1024:
		return fmt.Sprintf("%.0f B", b)
	case b < 1024*1024:
		return fmt.Sprintf("%.1f KiB", b/1024)
	}
	return fmt.Sprintf("%.1f MiB", b/1024/1024)
}

// label is a method's name as tables print it.
func (r *Row) label() string {
	if r.Control() {
		return "prior only"
	}
	return r.Method
}

// tuned says whether a table's settings were tuned per method.
func (t *Table) tuned() bool { return t.Protocol == "tuned" }

// setting is the tuned setting of a method and its value.
func (r *Row) setting() string {
	if r.Param == "" {
		return ""
	}
	return fmt.Sprintf("%s %g", r.Param, r.Value)
}

// Text writes tables for a terminal; bold says whether it understands ANSI escapes.
func Text(w io.Writer, ts []Table, bold bool) error {
	var b strings.Builder
	mark := func(on bool, s string, width int) string {
		s = fmt.Sprintf("%*s", width, s)
		if on && bold {
			return "\x1b[1m" + s + "\x1b[0m"
		}
		return s
	}
	for _, t := range ts {
		hasPrinted := false
		for _, r := range t.Rows {
			hasPrinted = hasPrinted || r.Printed != nil
		}
		fmt.Fprintf(&b, "%s\n", t.title())
		fmt.Fprintf(&b, "  %-10s", "")
		for _, h := range headings {
			fmt.Fprintf(&b, "  %14s", h)
		}
		fmt.Fprintf(&b, "  %10s", "upload")
		if t.tuned() {
			fmt.Fprintf(&b, "  %15s", "setting")
		}
		if hasPrinted {
			fmt.Fprintf(&b, "  %15s", "printed ACC/ECE")
		}
		b.WriteByte('\n')
		group := ""
		for _, r := range t.Rows {
			if r.Group != group {
				group = r.Group
				fmt.Fprintf(&b, "%s\n", group)
			}
			fmt.Fprintf(&b, "  %-10s", r.label())
			for c := range columns {
				// The plus-minus sign is two bytes and one column wide; %*s counts runes.
				b.WriteString("  " + mark(r.best[c], cell(r.interval(c), "±"), 14))
			}
			fmt.Fprintf(&b, "  %10s", byteSize(r.UploadBytes))
			if t.tuned() {
				fmt.Fprintf(&b, "  %15s", r.setting())
			}
			if r.Printed != nil {
				fmt.Fprintf(&b, "  %15s", fmt.Sprintf("%.4f/%.4f", r.Printed.ACC, r.Printed.ECE))
			}
			if r.Control() && t.Chance > 0 {
				fmt.Fprintf(&b, "  (chance %.2f)", t.Chance)
			}
			b.WriteByte('\n')
		}
		b.WriteByte('\n')
	}
	if len(ts) > 0 && ts[0].Repeats > 1 {
		fmt.Fprintf(&b, "± is the half-width of the %g%% t-interval over repeats.", Level*100)
		if bold {
			b.WriteString(" Bold: best of its group.")
		}
		b.WriteByte('\n')
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("printing the table: %w", err)
	}
	return nil
}
