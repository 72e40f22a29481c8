package report

import (
	_ "embed" // the pages' style
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"fmp/pipeline/internal/design"
)

// Pages are assembled from elements in Go, which escape their content, instead of html/template: a
// program that links text/template keeps every exported method of every type, since a template may
// name it (6 MB here).

//go:embed style.css
var style string

// maxColumns is the number of columns of a table that a reader can leave out.
const maxColumns = 24

// sheet returns the style of a page. Boxes above a table hide its columns without a script.
func sheet() string {
	var b strings.Builder
	b.WriteString(design.CSS + style)
	for i := 2; i <= maxColumns; i++ {
		fmt.Fprintf(&b,
			".pick:has(.c%d:not(:checked)) + .scroll tr:not(.group) > :nth-child(%d) { "+
				"display: none; }\n", i, i)
	}
	return b.String()
}

// pick returns boxes by which a reader chooses the columns of the table that follows, the first
// apart.
func pick(headings []string) g.Node {
	var boxes g.Group
	for i, name := range headings {
		if i > 0 && i < maxColumns && name != "" {
			boxes = append(boxes, h.Label(h.Input(h.Type("checkbox"),
				h.Class(fmt.Sprintf("c%d", i+1)), h.Checked(), h.AutoComplete("off")),
				g.Text(" "+name)), g.Text("\n"))
		}
	}
	return h.FieldSet(h.Class("pick"), h.Legend(g.Text("Columns")), boxes)
}

// document returns a self-contained page, which loads no other resource.
func document(title, summary string, body ...g.Node) g.Node {
	return h.Doctype(h.HTML(h.Lang("en"), g.Text("\n"),
		h.Head(h.Meta(h.Charset("utf-8")), h.Meta(h.Name("viewport"),
			h.Content("width=device-width, initial-scale=1")), h.Meta(h.Name("color-scheme"),
			h.Content("light dark")), h.TitleEl(g.Text(title)), h.Link(h.Rel("icon"),
			h.Href("data:,")), h.StyleEl(g.Raw(sheet()))), g.Text("\n"),
		h.Body(h.Main(h.H1(g.Text(title)), h.P(g.Text(summary)), g.Group(body))),
	))
}

// table returns a table with a heading line, as wide as it needs to be, in a scrolling container.
// The container takes the keyboard's focus and has a name, so that it can be scrolled without a
// mouse.
func table(class string, headings []string, body ...g.Node) g.Node {
	th := func(s string) g.Node {
		if s == "" {
			return h.Td() // a heading without text is none
		}
		return h.Th(h.Scope("col"), g.Text(s))
	}
	name := strings.Join(slices.DeleteFunc(slices.Clone(headings), func(s string) bool {
		return s == ""
	}), ", ")
	return h.Div(h.Class("scroll"), h.TabIndex("0"), h.Role("group"),
		h.Aria("label", "Table of "+name), g.Text("\n"),
		h.Table(g.If(class != "", h.Class(class)), h.THead(h.Tr(g.Map(headings, th))),
			g.Group(body)))
}

// rows returns a table's body of plain text cells.
func rows[T any](of []T, cells func(T) []string) g.Node {
	return h.TBody(g.Map(of, func(x T) g.Node { return row(g.Map(cells(x), td)) }))
}

// row is a line of a table; the line break behind it is for readers of the source.
func row(cells ...g.Node) g.Node { return g.Group{h.Tr(cells...), g.Text("\n")} }

// td is a cell of plain text.
func td(s string) g.Node { return h.Td(g.Text(s)) }

// folded returns a section that opens on a click.
func folded(open bool, summary g.Node, body ...g.Node) g.Node {
	return g.Group{h.Details(g.If(open, g.Attr("open")), h.Summary(summary), g.Group(body)),
		g.Text("\n")}
}

// factList returns a list of names and values.
func factList(facts []pageFact) g.Node {
	return h.Dl(g.Map(facts,
		func(f pageFact) g.Node { return g.Group{h.Dt(g.Text(f.Name)), h.Dd(g.Text(f.Value))} }))
}

// image returns a PNG embedded in the page.
func image(png []byte, alt string) g.Node {
	return h.Img(h.Src("data:image/png;base64,"+base64.StdEncoding.EncodeToString(png)), h.Alt(alt))
}
