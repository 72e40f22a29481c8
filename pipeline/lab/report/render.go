package report

import (
	"bytes"
	"fmt"
	"html"
	"image/color"
	"io"
	"regexp"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Figure is one picture: a grid of plots, row by row; nil entries stay empty.
type Figure struct {
	// Name is the file name without extension; Title and Caption are for readers.
	Name, Title, Caption string
	Plots                [][]*plot.Plot
	Width, Height        vg.Length
	// Tiles (small plots) and Panels (larger ones) mark plots that are independent of each other: a
	// page may lay them out as its width allows.
	Tiles, Panels bool
}

// draw draws the figure on a canvas of any kind. Plots of several have their axes aligned. All rows
// have the length of the first. A figure of one plot takes the whole canvas.
func (f *Figure) draw(c vg.CanvasSizer) {
	const margin = 3 * vg.Length(1) // for letters and glyphs that extend a little beyond
	dc := draw.Crop(draw.New(c), margin, -margin, margin, -margin)
	if len(f.Plots) == 1 && len(f.Plots[0]) == 1 {
		f.Plots[0][0].Draw(dc)
		return
	}
	t := draw.Tiles{Rows: len(f.Plots), Cols: len(f.Plots[0]), PadX: vg.Points(8),
		PadY: vg.Points(8)}
	for i, row := range plot.Align(f.Plots, t, dc) {
		for j, sub := range row {
			if p := f.Plots[i][j]; p != nil {
				p.Draw(sub)
			}
		}
	}
}

// SVG writes the figure as SVG on a white background.
func (f *Figure) SVG(w io.Writer) error {
	c := vgsvg.New(f.Width, f.Height)
	white(c)
	f.draw(c)
	if _, err := c.WriteTo(w); err != nil {
		return fmt.Errorf("figure %s: %w", f.Name, err)
	}
	return nil
}

// PNG writes the figure as PNG on a white background, at 144 dots per inch.
func (f *Figure) PNG(w io.Writer) error {
	c := vgimg.NewWith(vgimg.UseWH(f.Width, f.Height), vgimg.UseDPI(144),
		vgimg.UseBackgroundColor(color.White))
	f.draw(c)
	if _, err := (vgimg.PngCanvas{Canvas: c}).WriteTo(w); err != nil {
		return fmt.Errorf("figure %s: %w", f.Name, err)
	}
	return nil
}

// white fills a canvas. gonum's writer of SVG leaves the background clear, and a dark viewer would
// hide black ink.
func white(c vg.CanvasSizer) {
	w, h := c.Size()
	var p vg.Path
	p.Move(vg.Point{})
	p.Line(vg.Point{X: w})
	p.Line(vg.Point{X: w, Y: h})
	p.Line(vg.Point{Y: h})
	p.Close()
	c.SetColor(color.White)
	c.Fill(p)
}

// Parts of an SVG of gonum's writer that a page replaces or leaves out.
var (
	svgHead  = regexp.MustCompile(`(?s)^.*?<svg[^>]*?(viewBox="[^"]*")[^>]*>`)
	svgFont  = regexp.MustCompile(`font-family:[^;"]*`)
	comments = regexp.MustCompile(`(?s)<!--.*?-->`)
)

// inline returns one plot as an SVG element for a page: as wide as its container, with the page's
// font, and with the page's own foreground colours in place of ink and faint.
func inline(p *plot.Plot, w, h vg.Length, label string) (string, error) {
	f := Figure{Name: label, Plots: [][]*plot.Plot{{p}}, Width: w, Height: h}
	return f.inline(label)
}

// inline returns the whole figure as one SVG element. Comments of the writer are removed.
func (f *Figure) inline(label string) (string, error) {
	c := vgsvg.New(f.Width, f.Height)
	f.draw(c)
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return "", fmt.Errorf("figure %s: %w", f.Name, err)
	}
	s := comments.ReplaceAllString(b.String(), "")
	m := svgHead.FindStringSubmatch(s)
	// Width and height are dropped with the head: the viewBox alone gives the proportions.
	if m == nil {
		return "", fmt.Errorf("figure %s: the SVG has no head with a viewBox", f.Name)
	}
	s = svgHead.ReplaceAllString(s,
		fmt.Sprintf(`<svg role="img" aria-label="%s" %s>`, html.EscapeString(label), m[1]))
	s = svgFont.ReplaceAllString(s, "font-family:inherit")
	// These are ink and faint as the writer spells them, in capitals or not.
	s = strings.NewReplacer("#222221", "var(--ink)", "#D0D0D1", "var(--faint)", "#d0d0d1",
		"var(--faint)").Replace(s)
	return s, nil
}
