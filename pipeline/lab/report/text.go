package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"fmp/pipeline/metric"
)

// sentence summarises a table in words; empty if FMP is not in it.
func (t *Table) sentence() string {
	row := func(method string) *Row {
		for i := range t.Rows {
			if t.Rows[i].Method == method {
				return &t.Rows[i]
			}
		}
		return nil
	}
	fmp := row("FMP")
	if fmp == nil {
		return ""
	}
	sent := ""
	if fmp.UploadBytes > 0 {
		sent = fmt.Sprintf("From %s a client, ", byteSize(fmp.UploadBytes))
	}
	beside := ""
	if all := row("ANN"); all != nil {
		points := 100 * (fmp.ACC.Mean - all.ACC.Mean)
		side := "above"
		if points < 0 {
			points, side = -points, "below"
		}
		beside = fmt.Sprintf(", %.1f points %s one fit to all data in one place", points, side)
	}
	calibrated := ""
	if c := fmp.Calibration; c != nil {
		calibrated = fmt.Sprintf(" (perfectly calibrated ones would be %.1f on that "+
			"number of images)", 100*c.Perfect)
	}
	return fmt.Sprintf("%sFMP is right on %.1f%% of images%s; its stated probabilities are %.1f "+
		"points off on average%s.", sent, 100*fmp.ACC.Mean, beside, 100*fmp.ECE.Mean, calibrated)
}

// wrapped breaks a text between words into lines of at most width bytes. Breaks of s itself are not
// kept. A word that is longer than a line stands alone on one.
func wrapped(s string, width int) string {
	var b strings.Builder
	at := 0
	for i, w := range strings.Fields(s) {
		switch {
		case i == 0:
		case at+1+len(w) > width:
			b.WriteByte('\n')
			at = 0
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(w)
		at += len(w)
	}
	return b.String()
}

// title returns a table's title, one line.
func (t *Table) title() string {
	p := "homogeneous clients"
	if t.Alpha > 0 {
		p = fmt.Sprintf("Dirichlet clients, alpha = %g", t.Alpha)
	}
	s := "shared settings"
	if t.Protocol == "calibrated" {
		s = "settings and temperature of rivals chosen by the calibration points"
	} else if t.tuned() {
		s = "settings tuned per method on the corpus"
		if slices.ContainsFunc(t.Rows, func(r Row) bool { return r.cooled() }) {
			s = "settings and temperature tuned per method on the corpus"
		}
	}
	repeats := "1 repeat"
	if t.Repeats != 1 {
		repeats = fmt.Sprintf("%d repeats", t.Repeats)
	}
	if t.Varied != "" {
		s += ", " + t.Varied
	}
	return fmt.Sprintf("%s, %s, %s, %s", t.Dataset, p, s, repeats)
}

// narrow returns the columns that fit on a terminal of 80 columns; all of them if wide. Those from
// joint NLL of random points on are left out, and the Brier score where there is joint NLL. shown
// is never changed: the result is a copy, or shown itself if wide.
func narrow(shown []int, wide bool) []int {
	if wide {
		return shown
	}
	joint := slices.Contains(shown, columnJointNear)
	return slices.DeleteFunc(slices.Clone(shown), func(c int) bool {
		return c > columnJointNear || c == columnBrier && joint
	})
}

// spread formats a half-width in five characters: four decimals without the 0 before the point,
// three from 1 on.
func spread(half float64) string {
	if half >= 1 {
		return fmt.Sprintf("%.3f", half)
	}
	return strings.TrimPrefix(fmt.Sprintf("%.4f", half), "0")
}

// cell formats a figure with the half-width of its interval, four decimals each, for a table.
func cell(i metric.Interval, pm string) string {
	if !varies(&i) {
		return mean(i)
	}
	return fmt.Sprintf("%.4f%s%.4f", i.Mean, pm, i.Half)
}

// varies reports whether a figure differs between repeats. One that no client's images enter, such
// as that of the corpus alone, is the same in all of them: its interval would say nothing. The
// bound 1e-9 is far below the last printed digit, and above the rounding of equal figures.
func varies(i *metric.Interval) bool { return i.N > 1 && i.Half > 1e-9 }

// mean formats a figure without its interval.
func mean(i metric.Interval) string {
	if i.N == 0 {
		return "-"
	}
	return fmt.Sprintf("%.4f", i.Mean)
}

// byteSize formats a number of bytes for readers. A KiB is 1024 bytes, and a MiB 1024 KiB.
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

// label returns a method's name as printed in tables.
func (r *Row) label() string {
	switch {
	case r.Control():
		return "prior only"
	case r.Untrained:
		return r.Method + " (untrained)"
	}
	return r.Method
}

// untrainedNote explains the mark in labels.
const untrainedNote = "(untrained): a model that the method reads was not trained for these " +
	"images; fmp train makes one."

// notes explains the marks of tables, each once: spread, bold figures where they are shown, models
// that were not trained, and methods from outside. One repeat has no spread.
func notes(ts []Table, bold bool) []string {
	var out []string
	add := func(is bool, note string) {
		if is && !slices.Contains(out, note) {
			out = append(out, note)
		}
	}
	for _, t := range ts {
		add(t.Repeats > 1, spreadNote(t.Same))
	}
	// Without an interval no other method is bold: the longer note holds for such tables too.
	alone := !slices.ContainsFunc(ts, func(t Table) bool { return !t.Same && t.Repeats > 1 })
	add(bold && len(ts) > 0, bestNote(alone))
	for _, t := range ts {
		for _, r := range t.Rows {
			add(r.Untrained, untrainedNote)
		}
	}
	for _, t := range ts {
		for _, r := range t.Rows {
			add(r.Origin != "", fmt.Sprintf("%s is a method from outside, by its predictions: %s.",
				r.Method, r.Origin))
		}
	}
	return out
}

// spreadNote explains the spread of figures.
func spreadNote(same bool) string {
	if same {
		return "The clients hold all images that there are for them, so that repeats share them: " +
			"figures have no interval over images."
	}
	return fmt.Sprintf("± is the half-width of the %g%% t-interval over repeats.", Level*100)
}

// bestNote explains bold figures.
func bestNote(same bool) string {
	if same {
		return "Bold: the best of its group."
	}
	return "Bold: the best of its group, and those whose paired difference from it has an " +
		"interval that holds zero."
}

// tuned reports whether a table's settings were tuned per method.
func (t *Table) tuned() bool { return t.Protocol != "shared" }

// setting formats a method's tuned settings, as ranges where they differ between repeats.
func setting(all []Setting) string {
	var out []string
	for _, s := range all {
		form := "%g"
		if s.Name == "T" {
			form = "%.3g"
		}
		// Ends that are printed alike are one value to a reader.
		least, most := fmt.Sprintf(form, s.Least), fmt.Sprintf(form, s.Most)
		if least != most {
			least += " to " + most
		}
		out = append(out, s.Name+" "+least)
	}
	return strings.Join(out, ", ")
}

// Text writes tables for a terminal: in 80 columns or, if wide, with every figure, the tuned
// settings and the paper's figures. bold enables ANSI escapes.
func Text(w io.Writer, ts []Table, wide, bold bool) error {
	var b strings.Builder
	for i := range ts {
		t := &ts[i]
		// Columns that a reader chose are shown, however wide the table gets.
		all := wide || t.chosen != nil
		l := &layout{Table: t, shown: narrow(t.columns(), all), bold: bold,
			behind: t.extras(all, wide && t.showsPrinted())}
		l.labels, l.gap = t.labels(l.shown, wide)
		l.write(&b)
		b.WriteByte('\n')
		if wide {
			for _, g := range t.sideTables() {
				g.text(&b)
			}
		}
	}
	for _, s := range notes(ts, bold) {
		b.WriteString(wrapped(s, terminal) + "\n")
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("printing the table: %w", err)
	}
	return nil
}

// layout is the columns of a table on a terminal.
type layout struct {
	*Table
	shown  []int   // columns of figures
	behind []extra // columns behind these
	labels int     // width of the column of methods
	gap    string
	bold   bool
}

// write writes the table under its title, group by group.
func (l *layout) write(b *strings.Builder) {
	if say := l.sentence(); say != "" {
		fmt.Fprintf(b, "%s\n\n", wrapped(say, terminal))
	}
	fmt.Fprintf(b, "%s\n", l.title())
	fmt.Fprintf(b, "  %-*s", l.labels, "")
	for _, c := range l.shown {
		fmt.Fprintf(b, "%s%*s", l.gap, width(c), headings[c])
	}
	for _, e := range l.behind {
		fmt.Fprintf(b, "%s%*s", l.gap, e.width, e.name)
	}
	b.WriteByte('\n')
	group := ""
	for i := range l.Rows {
		r := &l.Rows[i]
		if r.Group != group {
			group = r.Group
			b.WriteString(group)
			if r.Control() && l.Chance > 0 {
				fmt.Fprintf(b, " (chance %.2f)", l.Chance)
			}
			b.WriteByte('\n')
		}
		l.row(b, r)
	}
}

// row writes a method's line. FMP's begins with >. A name that is too long for its column stands on
// a line of its own, above the figures. Figures from 10 on have three decimals, others four.
func (l *layout) row(b *strings.Builder, r *Row) {
	lead := " "
	if r.Subject() {
		lead = ">"
	}
	label := r.label()
	if len(label) > l.labels { // on its own line
		fmt.Fprintf(b, "%s %s\n", lead, label)
		lead, label = " ", ""
	}
	b.WriteString(lead + " " + l.mark(r.Subject(), fmt.Sprintf("%-*s", l.labels, label), 0))
	for _, c := range l.shown {
		i := r.interval(c)
		s := mean(*i)
		if i.N > 0 && i.Mean >= 10 {
			s = fmt.Sprintf("%.3f", i.Mean)
		}
		if varies(i) {
			s += "±" + spread(i.Half)
		}
		// The plus-minus sign is two bytes and one column wide; %*s counts runes.
		b.WriteString(l.gap + l.mark(r.best[c], s, width(c)))
	}
	for _, e := range l.behind {
		fmt.Fprintf(b, "%s%*s", l.gap, e.width, e.cell(r))
	}
	b.WriteByte('\n')
}

// mark pads a text to a width and, where on, makes it bold.
func (l *layout) mark(on bool, s string, width int) string {
	// Padding comes first, since escapes take bytes and no columns.
	s = fmt.Sprintf("%*s", width, s)
	if on && l.bold {
		return "\x1b[1m" + s + "\x1b[0m"
	}
	return s
}

// terminal is the number of columns into which a table fits, uploadWidth the width of the column of
// upload sizes.
const (
	terminal    = 80
	uploadWidth = 10
)

// width returns the width of a column of figures: at least that of 0.0000±.0000, 12 columns.
func width(column int) int { return max(12, len(headings[column])) }

// labels returns the width of the column of methods and the gap between columns, which is smaller
// where labels are long. If they are still too long for a terminal, the longest are printed on
// their own lines.
func (t *Table) labels(shown []int, wide bool) (int, string) {
	longest := 10
	for _, r := range t.Rows {
		longest = max(longest, len(r.label()))
	}
	// Two columns lead a row: the mark of FMP, and a space.
	figures := 2 + uploadWidth
	for _, c := range shown {
		figures += width(c)
	}
	gaps := len(shown) + 1
	if wide || figures+2*gaps+longest <= terminal {
		return longest, "  "
	}
	return max(10, min(longest, terminal-figures-gaps)), " "
}
