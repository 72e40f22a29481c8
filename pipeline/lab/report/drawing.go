package report

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Drawing is a plot that keeps the first error of drawing on it: a figure is checked once, at its
// end. After an error lines and dots are drawn on nothing. It spares a check at each of many calls.
type Drawing struct {
	*plot.Plot
	Of  string // the subject of an error
	Err error
}

// Failed keeps an error, the first alone, and reports whether err is one.
func (d *Drawing) Failed(err error) bool {
	if err != nil && d.Err == nil {
		d.Err = fmt.Errorf("%s: %w", d.Of, err)
	}
	return err != nil
}

// Line adds a line of a width in points, which is plain until it is styled. A line through no point
// and one through a NaN or an infinity are errors.
func (d *Drawing) Line(c color.Color, width float64, through ...plotter.XY) *plotter.Line {
	l, err := plotter.NewLine(plotter.XYs(through))
	if d.Failed(err) {
		// The caller may style this one too: it is on no plot.
		return &plotter.Line{}
	}
	l.Color, l.Width = c, vg.Points(width)
	d.Add(l)
	return l
}

// Bars adds vertical intervals of the given half widths about points. Points and half widths are of
// one number, in the units of the axes.
func (d *Drawing) Bars(c color.Color, at plotter.XYs, half []float64) *plotter.YErrorBars {
	var points struct {
		plotter.XYs
		plotter.YErrors
	}
	points.XYs = at
	for _, h := range half {
		points.YErrors = append(points.YErrors, struct{ Low, High float64 }{h, h})
	}
	bars, err := plotter.NewYErrorBars(points)
	if d.Failed(err) {
		return &plotter.YErrorBars{}
	}
	bars.Color = c
	d.Add(bars)
	return bars
}

// Dots adds points. A style of their own for each is set by GlyphStyleFunc of the result.
func (d *Drawing) Dots(style draw.GlyphStyle, at ...plotter.XY) *plotter.Scatter {
	s, err := plotter.NewScatter(plotter.XYs(at))
	if d.Failed(err) {
		return &plotter.Scatter{}
	}
	s.GlyphStyle = style
	d.Add(s)
	return s
}
