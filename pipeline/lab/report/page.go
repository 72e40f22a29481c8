package report

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"gonum.org/v1/plot/vg"
	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"fmp/pipeline/lab/experiment"
)

// pageFact is an entry of a list of facts. Texts are escaped where they become part of the page.
type pageFact struct{ Name, Value string }

// inlined renders a figure as elements of the page. Tiles and panels have an SVG for each plot,
// each of an equal share of the figure's size; others are one SVG. The caption stands below. Plots
// apart let the page wrap them on a narrow screen.
func inlined(f *Figure) (g.Node, error) {
	var svgs g.Group
	add := func(svg string, err error) error {
		svgs = append(svgs, h.Div(g.Raw(svg)))
		return err
	}
	class := ""
	switch {
	case f.Tiles:
		class = "tiles"
	case f.Panels:
		class = "panels"
	default:
		class = "one"
		if err := add(f.inline(f.Title)); err != nil {
			return nil, err
		}
	}
	if f.Tiles || f.Panels {
		width, height := f.Width/vg.Length(len(f.Plots[0])), f.Height/vg.Length(len(f.Plots))
		for _, p := range slices.Concat(f.Plots...) {
			// A grid may have holes, which take no room on a page.
			if p == nil {
				continue
			}
			if err := add(inline(p, width, height, f.Title+": "+p.Title.Text)); err != nil {
				return nil, err
			}
		}
	}
	return h.Figure(h.Div(h.Class(class), svgs), h.FigCaption(g.Text(f.Caption))), nil
}

// inlinedAll renders the figures that there are, each under a heading with its title.
func inlinedAll(fs []*Figure, heading func(...g.Node) g.Node) (g.Group, error) {
	var out g.Group
	for _, f := range fs {
		if f == nil {
			continue
		}
		x, err := inlined(f)
		if err != nil {
			return nil, err
		}
		out = append(out, heading(g.Text(f.Title)), x)
	}
	return out, nil
}

// run is the content of a run's page. Nothing in it is changed while the page is written.
type run struct {
	config   experiment.Config
	manifest *experiment.Manifest
	tables   []Table
	// tuned has no choices where nothing was tuned, and costs are nil where there are no timings.
	tuned   *experiment.Tuned
	costs   []experiment.Cost
	detail  *experiment.Detail // nil: no example is shown
	byTable [][]*Figure        // the figures of each table
	whole   []*Figure          // those of all
}

// page writes the self-contained page of a run. Its parts are the tables with their figures, those
// of the whole run, examples, and the settings. The figures must have been drawn. Parts are built
// in memory first: an error in one writes nothing. Texts of files go through g.Text, which escapes
// them.
func (r *run) page(w io.Writer) error {
	c, m, ts := r.config, r.manifest, r.tables
	summary := fmt.Sprintf("%d clients of %d points, %d repeats, %d test images, %d classes. %s",
		c.Federation.Clients, c.Federation.Points, c.Seeds, m.Sizes["test"], m.Sizes["classes"],
		strings.Join(notes(ts, true), " "))
	var body g.Group
	for i := range ts {
		t, err := tableForPage(&ts[i], r.byTable[i], i == 0)
		if err != nil {
			return err
		}
		body = append(body, t)
	}
	figures, err := inlinedAll(r.whole, h.H2)
	if err != nil {
		return err
	}
	body = append(body, figures)
	if r.detail != nil {
		x, err := examplesForPage(r.detail)
		if err != nil {
			return err
		}
		body = append(body, x)
	}
	body = append(body, h.H2(g.Text("Settings and versions")))
	if len(m.Notes) > 0 {
		body = append(body, h.Ul(g.Map(m.Notes, func(n string) g.Node { return h.Li(g.Text(n)) })))
	}
	if len(r.tuned.Choices) > 0 {
		body = append(body, folded(false, g.Text("What the tuned settings were chosen from"),
			h.P(g.Text("Each method's setting with the least NLL on held-out rows of tasks "+
				"drawn from the meta-training corpus, of the run's size and partition. The "+
				"values tried go on where the best is at an end, and grow finer around it.")),
			table("", []string{"method", "partition", "setting", "chosen", "held-out NLL", "of"},
				rows(r.tuned.Choices, choiceCells))))
	}
	if len(r.costs) > 0 {
		body = append(body, folded(false, g.Text("What each method cost"),
			h.P(g.Text("Seconds of the clock, over all partitions and repeats: choosing its "+
				"settings, and running and scoring it. What methods share (fits, drawn points) "+
				"counts for the one that came first.")),
			table("", []string{"method", "tuning, s", "running, s", "share"},
				rows(r.costs, func(c experiment.Cost) []string {
					return []string{c.Method, fmt.Sprintf("%.2f", c.Tuning),
						fmt.Sprintf("%.2f", c.Running), fmt.Sprintf("%.1f%%", 100*c.Share)}
				}))))
	}
	// Names are sorted within versions, models and data, so that equal runs have equal pages.
	var facts []pageFact
	for _, of := range []map[string]string{m.Versions, m.Models, m.Data} {
		for _, k := range slices.Sorted(maps.Keys(of)) {
			facts = append(facts, pageFact{k, of[k]})
		}
	}
	settings, err := yaml.Marshal(c)
	if err != nil {
		return fmt.Errorf("report: settings: %w", err)
	}
	body = append(body, folded(false, g.Text("Versions and digests"),
		factList(append(facts, pageFact{"identity of the run", m.Identity}))),
		folded(false, g.Text("Settings (config.yaml)"), h.Pre(g.Text(string(settings)))))
	if err := document("fmp: "+c.Dataset.Label(), summary, body).Render(w); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// choiceCells returns one row of the table of tuned choices. Choices of earlier versions have no
// values tried; those cells are empty. Held-out NLL is in nats, with joint NLL added where the
// method is chosen by both.
func choiceCells(c experiment.Choice) []string {
	// A choice is printed as the setting of a single record, in the words of tables.
	value, nll, from := setting(settingsOf([]experiment.Record{{Param: c.Param, Value: c.Value,
		Temperature: c.Temperature, More: c.More}})), "", ""
	if ends := c.AtEnd(); len(ends) > 0 {
		value += fmt.Sprintf(" (%s at the end of what was tried)", strings.Join(ends, " and "))
	}
	if len(c.NLL) > 0 {
		nll = fmt.Sprintf("%.4f", slices.Min(c.NLL))
	}
	if n := len(c.Grid); n > 0 {
		from = fmt.Sprintf("%d values, %g to %g", n, c.Grid[0], c.Grid[n-1])
	}
	return []string{c.Method, c.Partition, c.Param, value, nll, from}
}

// tableForPage returns a table's section: its rows by group, its side tables and its figures. Only
// the first section of a page is open at first. Half widths are left out where repeats do not vary.
func tableForPage(t *Table, figures []*Figure, open bool) (g.Node, error) {
	// A page has every column: its reader leaves some out by the boxes of [pick].
	shown, extras := t.columns(), t.extras(true, t.showsPrinted())
	head := []string{"method"}
	for _, c := range shown {
		head = append(head, headings[c])
	}
	for _, e := range extras {
		head = append(head, e.name)
	}
	// Rows of one group follow each other, as [Table.group] sorts them.
	var groups g.Group
	for of := t.Rows; len(of) > 0; {
		n := slices.IndexFunc(of, func(r Row) bool { return r.Group != of[0].Group })
		if n < 0 {
			n = len(of)
		}
		name := of[0].Group
		// g.Map calls at once, so that name is whole where the head of the group is made below.
		lines := g.Map(of[:n], func(r Row) g.Node {
			if r.Control() && t.Chance > 0 {
				name += fmt.Sprintf(" (chance %.2f)", t.Chance)
			}
			cells := g.Group{g.If(r.Subject(), h.Class("subject")), td(r.label())}
			for _, c := range shown {
				iv := r.interval(c)
				half := ""
				if varies(iv) {
					half = fmt.Sprintf("±%.4f", iv.Half)
				}
				cells = append(cells, h.Td(g.If(r.best[c], h.Class("best")), g.Text(mean(*iv)+" "),
					h.Small(g.Text(half))))
			}
			for _, e := range extras {
				cells = append(cells, td(e.cell(&r)))
			}
			return row(cells)
		})
		groups = append(groups, h.TBody(
			row(h.Class("group"), h.Th(h.ColSpan(fmt.Sprint(len(head))), h.Scope("rowgroup"),
				g.Text(name))),
			lines))
		of = of[n:]
	}
	inlined, err := inlinedAll(figures, h.H3)
	if err != nil {
		return nil, err
	}
	sentence := t.sentence()
	return folded(open, h.H2(g.Text(t.title())), g.If(sentence != "", h.P(g.Text(sentence))),
		pick(head), table("", head, groups),
		g.If(t.tuned(), h.P(g.Text("The setting, and the temperature T that divides the "+
			"heads, were chosen on the meta-training corpus by NLL; no test image took part. All "+
			"that was tried: see below."))),
		g.Map(t.sideTables(), func(s sideTable) g.Node {
			return g.Group{h.H3(g.Text(s.Title)),
				table("", append([]string{"method"}, s.Headings...), rows(s.Rows,
					func(r sideRow) []string { return append([]string{r.Label}, r.Cells...) }))}
		}), inlined), nil
}

// examplesForPage returns the images of which FMP is most and least certain. Unsure images come
// first, as they show the spread of samples.
func examplesForPage(d *experiment.Detail) (g.Node, error) {
	if len(d.Easy) == 0 {
		return nil, nil
	}
	var lists [2]g.Group
	for k, of := range [][]experiment.Example{d.Hard, d.Easy} {
		for i := range of {
			x, err := exampleForPage(&of[i], d.Classes)
			if err != nil {
				return nil, err
			}
			lists[k] = append(lists[k], x)
		}
	}
	return g.Group{
		h.H2(g.Text("Which images is it sure of, and which not?")),
		h.P(g.Text("Every dot is one posterior sample of FMP and its probability for a class: "),
			h.Span(h.Class("key"), g.Text("▲ the true class")), g.Text(", "),
			h.Span(h.Class("key2"), g.Text("● another")),
			g.Text(". Where the dots are spread, the samples disagree: the uploads do "+
				"not settle it.")),
		h.H3(g.Text("Unsure: the images of largest disagreement")),
		h.Div(h.Class("examples"), lists[0]),
		h.H3(g.Text("Sure: the images of least entropy")), h.Div(h.Class("examples"), lists[1]),
	}, nil
}

// exampleForPage returns one image beside its spreadPlot, its class and FMP's prediction. classes
// are all names, by which label and prediction are told. Label and top classes are indices that
// [experiment.ReadDetail] has checked.
func exampleForPage(e *experiment.Example, classes []string) (g.Node, error) {
	p, err := spreadPlot(e, classes)
	if err != nil {
		return nil, err
	}
	svg, err := inline(p, 2.4*vg.Inch, 1.1*vg.Inch,
		fmt.Sprintf("posterior samples for test image %d", e.Index))
	if err != nil {
		return nil, err
	}
	says := 0
	if len(e.Top) > 0 {
		says = e.Top[0]
	}
	truth := classes[e.Label]
	return h.Div(h.Class("example"), image(e.PNG, "test image of class "+truth), g.Raw(svg),
			h.Div(g.Text("true: "), h.B(g.Text(truth)),
				g.Text(fmt.Sprintf("; FMP says %s (%.0f%%)", classes[says], 100*e.Mean[says])),
				h.Br(), h.Small(g.Text(fmt.Sprintf("test image %d, disagreement %.3f nats", e.Index,
					e.Disagreement))))),
		nil
}
