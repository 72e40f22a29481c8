package report

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"fmp/onnx/sorting"
	"fmp/onnx/suggest"
)

// Names of the columns beside the figures.
const (
	uploadName  = "upload"
	settingName = "setting"
)

// ColumnNames returns the names of all columns of tables, without the commas of headings: lists of
// names have these between them. It is the order of all columns in a table.
func ColumnNames() []string {
	var out []string
	for _, h := range headings {
		out = append(out, plain(h))
	}
	return append(out, uploadName, settingName)
}

// plain is a heading as a list of names can hold it.
func plain(heading string) string { return strings.ReplaceAll(heading, ",", "") }

// Choose returns tables with the given columns and rows alone, each by name, ignoring case, in the
// order given, rows within their groups; empty lists keep all. A name that no table has is an
// error. The tables given stay as they are; rows are shared. Tables that are left without a row are
// left out.
func Choose(ts []Table, columnNames, rowNames []string) ([]Table, error) {
	var only []int
	var upload, setting bool
	for _, name := range columnNames {
		switch i := slices.IndexFunc(headings[:],
			func(h string) bool { return strings.EqualFold(plain(h), plain(name)) }); {
		case i >= 0:
			only = append(only, i)
		case strings.EqualFold(name, uploadName):
			upload = true
		case strings.EqualFold(name, settingName):
			setting = true
		default:
			return nil, fmt.Errorf("no column %q; there are %s%s", name,
				strings.Join(ColumnNames(), ", "), suggest.DidYouMean(name, ColumnNames()))
		}
	}
	if setting && !slices.ContainsFunc(ts, func(t Table) bool { return t.tuned() }) {
		return nil, fmt.Errorf("column %s: the tables are of shared settings, which have none; "+
			"leave it out", settingName)
	}
	// The copies share rows with ts; below, chosen and Rows are replaced in the copies alone.
	out := slices.Clone(ts)
	found := map[string]bool{}
	for i := range out {
		t := &out[i]
		if len(columnNames) > 0 {
			t.chosen = &chosen{only, upload, setting}
		}
		if len(rowNames) == 0 {
			continue
		}
		var rows []Row
		for _, name := range rowNames {
			for _, r := range t.Rows {
				// A name counts as found where one table has it: others may lack the method.
				if strings.EqualFold(r.Method, name) {
					found[name], rows = true, append(rows, r)
				}
			}
		}
		rank := func(r Row) int {
			return slices.IndexFunc(t.Rows, func(o Row) bool { return o.Group == r.Group })
		}
		sorting.Stably(rows, func(a, b Row) int { return rank(a) - rank(b) })
		t.Rows = rows
	}
	out = slices.DeleteFunc(out,
		func(t Table) bool { return len(t.Rows) == 0 && len(rowNames) > 0 })
	for _, name := range rowNames {
		if !found[name] {
			var have []string
			for _, t := range ts {
				for _, r := range t.Rows {
					have = append(have, r.Method)
				}
			}
			return nil, fmt.Errorf("no row %q in the tables%s", name,
				suggest.DidYouMean(name, have))
		}
	}
	return out, nil
}

// chosen are the columns that a reader asked for. figures are indices into headings, in the
// reader's order.
type chosen struct {
	figures         []int
	upload, setting bool
}

// extra is a column behind the figures.
type extra struct {
	name  string
	width int // on a terminal: that of the longest cell at least
	cell  func(r *Row) string
}

// extras are the columns behind the figures: that of uploads, that of tuned settings, where
// settings asks for it, and that of the paper's figures, where printed does. Widths are counted in
// runes, which a terminal lays out one to a cell for these texts.
func (t *Table) extras(settings, printed bool) (out []extra) {
	if t.chosen == nil || t.chosen.upload {
		out = append(out, extra{uploadName, uploadWidth,
			func(r *Row) string { return byteSize(r.UploadBytes) }})
	}
	if settings && t.tuned() && (t.chosen == nil || t.chosen.setting) {
		out = append(out, extra{settingName, len(settingName),
			func(r *Row) string { return setting(r.Settings) }})
	}
	if printed {
		out = append(out, extra{printedName, len(printedName), (*Row).printed})
	}
	for i := range out {
		for j := range t.Rows {
			out[i].width = max(out[i].width, utf8.RuneCountInString(out[i].cell(&t.Rows[j])))
		}
	}
	return out
}

// printed are the paper's figures of a method; empty where it has none.
func (r *Row) printed() string {
	if r.Printed == nil {
		return ""
	}
	return fmt.Sprintf("%.4f / %.4f", r.Printed.ACC, r.Printed.ECE)
}

// printedName is the heading of the paper's figures.
const printedName = "printed ACC / ECE"
