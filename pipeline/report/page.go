package report

import (
	_ "embed" // the page's template
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"

	"go.yaml.in/yaml/v3"
	"gonum.org/v1/plot/vg"

	"fmp/pipeline/experiment"
)

//go:embed page.html
var pageSource string

//go:embed style.html
var styleSource string

var page = template.Must(template.Must(template.New("page").Parse(pageSource)).Parse(styleSource))

// pageData is what the template shows.
type pageData struct {
	Title, Summary string
	Tables         []pageTable
	Figures        []pageFigure // of the whole run
	Easy, Hard     []pageExample
	Tuning         []pageChoice
	Costs          []pageCost
	Config         string
	Facts          []pageFact
	Notes          []string
	Level          float64
	Best           string // what bold says
	Untrained      string // and what (untrained) does
}

type pageTable struct {
	Sentence   string
	Title      string
	Headings   []string
	Span       int // columns in all
	HasPrinted bool
	Tuned      bool
	Groups     []pageGroup
	Grids      []sideTable
	Figures    []pageFigure
	Open       bool
}

type pageGroup struct {
	Name string
	Rows []pageRow
}

type pageRow struct {
	Label, Upload, Printed, Value string
	Subject                       bool
	Cells                         []pageCell
}

type pageCell struct {
	Value, Half string
	Best        bool
}

type pageFigure struct {
	Title, Caption string
	SVG            []template.HTML
	Class          string
}

// pageChoice is one line of what the tuned protocol chose.
type pageChoice struct {
	Partition, Method, Param, Value, From, NLL string
	AtEnd                                      bool
}

type pageExample struct {
	Image                 template.URL
	Truth, Says, Measures string
	SVG                   template.HTML
}

// pageCost is one line of what methods took.
type pageCost struct{ Method, Tuning, Running, Share string }

type pageFact struct{ Name, Value string }

// inlined renders a figure for the page.
func inlined(f *Figure) (pageFigure, error) {
	out := pageFigure{Title: f.Title, Caption: f.Caption, Class: "one"}
	switch {
	case f.Tiles:
		out.Class = "tiles"
	case f.Panels:
		out.Class = "panels"
	default:
		s, err := f.inline(f.Title)
		out.SVG = []template.HTML{s}
		return out, err
	}
	w, h := f.Width/vg.Length(len(f.Plots[0])), f.Height/vg.Length(len(f.Plots))
	for _, row := range f.Plots {
		for _, p := range row {
			if p == nil {
				continue
			}
			s, err := inline(p, w, h, f.Title+": "+p.Title.Text)
			if err != nil {
				return out, err
			}
			out.SVG = append(out.SVG, s)
		}
	}
	return out, nil
}

// Page writes the self-contained page of a run.
func Page(w io.Writer, c experiment.Config, m *experiment.Manifest, ts []Table, tuned *experiment.Tuned, costs []experiment.Cost, detail *experiment.Detail, byTable [][]*Figure, whole []*Figure) error {
	d := pageData{Title: "fmp: " + c.Dataset.Label(), Notes: m.Notes, Level: Level * 100, Best: bestNote,
		Summary: fmt.Sprintf("%d clients of %d points, %d repeats, %d test images, %d classes.", c.Federation.Clients, c.Federation.Points, c.Seeds, m.Sizes["test"], m.Sizes["classes"])}
	if untrained(ts) {
		d.Untrained = untrainedNote
	}
	for i := range ts {
		t, err := tableForPage(&ts[i], byTable[i])
		if err != nil {
			return err
		}
		t.Open = i == 0
		d.Tables = append(d.Tables, t)
	}
	for _, c := range tuned.Choices {
		chosen := Row{Param: c.Param, Value: c.Value, Temperature: c.Temperature, More: c.More}
		x := pageChoice{Partition: c.Partition, Method: c.Method, Param: c.Param, Value: chosen.setting(), AtEnd: c.AtEnd()}
		if n := len(c.Grid); n > 0 {
			x.From = fmt.Sprintf("%d values, %g to %g", n, c.Grid[0], c.Grid[n-1])
		}
		if len(c.NLL) > 0 {
			x.NLL = fmt.Sprintf("%.4f", slices.Min(c.NLL))
		}
		d.Tuning = append(d.Tuning, x)
	}
	for _, c := range costs {
		d.Costs = append(d.Costs, pageCost{c.Method, fmt.Sprintf("%.2f", c.Tuning), fmt.Sprintf("%.2f", c.Running), fmt.Sprintf("%.1f%%", 100*c.Share)})
	}
	for _, f := range whole {
		x, err := inlined(f)
		if err != nil {
			return err
		}
		d.Figures = append(d.Figures, x)
	}
	if detail != nil {
		for _, l := range []struct {
			from []experiment.Example
			to   *[]pageExample
		}{{detail.Easy, &d.Easy}, {detail.Hard, &d.Hard}} {
			for i := range l.from {
				x, err := exampleForPage(&l.from[i], detail.Classes)
				if err != nil {
					return err
				}
				*l.to = append(*l.to, x)
			}
		}
	}
	y, err := yaml.Marshal(c)
	if err != nil {
		return fmt.Errorf("report: settings: %w", err)
	}
	d.Config = string(y)
	for _, g := range []map[string]string{m.Versions, m.Models, m.Data} {
		for _, k := range slices.Sorted(maps.Keys(g)) {
			d.Facts = append(d.Facts, pageFact{k, g[k]})
		}
	}
	d.Facts = append(d.Facts, pageFact{"identity of the run", m.Identity})
	if err := page.Execute(w, d); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

func tableForPage(t *Table, figures []*Figure) (pageTable, error) {
	out := pageTable{Title: t.title(), Sentence: t.sentence(), Tuned: t.tuned(), Grids: t.sideTables()}
	shown := t.columns()
	for _, c := range shown {
		out.Headings = append(out.Headings, headings[c])
	}
	out.Span = len(shown) + 4
	group := ""
	for _, r := range t.Rows {
		if r.Group != group {
			group = r.Group
			out.Groups = append(out.Groups, pageGroup{Name: r.Group})
		}
		row := pageRow{Label: r.label(), Subject: r.Subject(), Upload: byteSize(r.UploadBytes)}
		if out.Tuned {
			row.Value = r.setting()
		}
		for _, c := range shown {
			iv := r.interval(c)
			x := pageCell{Value: mean(*iv), Best: r.best[c]}
			if iv.N > 1 {
				x.Half = fmt.Sprintf("±%.4f", iv.Half)
			}
			row.Cells = append(row.Cells, x)
		}
		if r.Printed != nil {
			out.HasPrinted = true
			row.Printed = fmt.Sprintf("%.4f / %.4f", r.Printed.ACC, r.Printed.ECE)
		}
		g := &out.Groups[len(out.Groups)-1]
		if r.Control() && t.Chance > 0 {
			g.Name += fmt.Sprintf(" (chance %.2f)", t.Chance)
		}
		g.Rows = append(g.Rows, row)
	}
	for _, f := range figures {
		x, err := inlined(f)
		if err != nil {
			return out, err
		}
		out.Figures = append(out.Figures, x)
	}
	return out, nil
}

func exampleForPage(e *experiment.Example, classes []string) (pageExample, error) {
	p, err := spreadPlot(e, classes)
	if err != nil {
		return pageExample{}, err
	}
	says := 0
	if len(e.Top) > 0 {
		says = e.Top[0]
	}
	out := pageExample{
		Image:    template.URL("data:image/png;base64," + base64.StdEncoding.EncodeToString(e.PNG)),
		Truth:    classes[e.Label],
		Says:     fmt.Sprintf("%s (%.0f%%)", classes[says], 100*e.Mean[says]),
		Measures: fmt.Sprintf("test image %d, disagreement %.3f nats", e.Index, e.Disagreement),
	}
	out.SVG, err = inline(p, 2.4*vg.Inch, 1.1*vg.Inch, fmt.Sprintf("posterior samples for test image %d", e.Index))
	return out, err
}
