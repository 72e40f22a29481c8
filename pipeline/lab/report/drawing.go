package report

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// drawing is a plot that keeps the first error of drawing on it.
type drawing struct {
	*plot.Plot
	of  string // whom an error is about
	err error
}

// failed keeps an error.
func (d *drawing) failed(err error) bool {
	if err != nil && d.err == nil {
		d.err = fmt.Errorf("%s: %w", d.of, err)
	}
	return err != nil
}

// line adds a line of a width in points.
func (d *drawing) line(c color.Color, width float64, through ...plotter.XY) *plotter.Line {
	l, err := plotter.NewLine(plotter.XYs(through))
	if d.failed(err) {
		return &plotter.Line{}
	}
	l.Color, l.Width = c, vg.Points(width)
	d.Add(l)
	return l
}

// dots adds points.
func (d *drawing) dots(style draw.GlyphStyle, at ...plotter.XY) *plotter.Scatter {
	s, err := plotter.NewScatter(plotter.XYs(at))
	if d.failed(err) {
		return &plotter.Scatter{}
	}
	s.GlyphStyle = style
	d.Add(s)
	return s
}
