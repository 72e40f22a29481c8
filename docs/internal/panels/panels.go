// Package panels draws the figures of the pages: plots of one look, side by side in one file.
package panels

import (
	"fmt"
	"image/color"
	"io"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"fmp/onnx/atomicfile"
	"fmp/pipeline/lab/report"
)

// Main is the main function of a program that draws a figure: usage is its name and those of its
// arguments, the last of which is the figure's file.
func Main(usage string, run func(arguments []string) error) {
	words := strings.Fields(usage)
	if len(os.Args) != len(words) {
		fmt.Fprintln(os.Stderr, "usage:", usage, "(or .png)")
		os.Exit(2)
	}
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", words[0], err)
		os.Exit(1)
	}
}

// Palette is Okabe and Ito's, for the colour-blind, with two shades of grey for the last two of ten
// classes. The class is written out, or told by its shape, besides.
var Palette = []color.RGBA{
	{0, 114, 178, 255}, {213, 94, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255},
	{150, 120, 0, 255},
	{86, 180, 233, 255}, {230, 159, 0, 255}, {90, 60, 160, 255}, {60, 60, 60, 255},
	{140, 60, 30, 255},
}

// Style is that of text of a size in points.
func Style(size float64, c color.Color) text.Style {
	return text.Style{
		Color: c, Font: font.Font{Typeface: "Liberation", Variant: "Sans", Size: font.Length(size)},
		XAlign: draw.XCenter, YAlign: draw.YCenter, Handler: plot.DefaultTextHandler,
	}
}

// Panel is one plot of a figure.
type Panel struct{ report.Drawing }

// Labels adds words. An error stays with the panel, and [SaveSized] returns it.
func (p *Panel) Labels(at plotter.XYs, words []string) *plotter.Labels {
	l, err := plotter.NewLabels(plotter.XYLabels{XYs: at, Labels: words})
	if p.Failed(err) {
		return &plotter.Labels{TextStyle: make([]text.Style, len(at))}
	}
	p.Add(l)
	return l
}

// Small is a legend of small letters.
func (p *Panel) Small() {
	p.Legend.TextStyle = Style(8, color.Black)
	p.Legend.TextStyle.XAlign, p.Legend.TextStyle.YAlign = draw.XLeft, draw.YBottom
	p.Legend.Padding = vg.Points(2)
}

// New is an empty plot.
func New(title string) *Panel {
	p := plot.New()
	p.Title.Text = title
	p.Title.TextStyle = Style(10, color.Black)
	p.Title.TextStyle.YAlign = draw.YTop
	p.Title.Padding = vg.Points(4)
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Padding = vg.Points(2)
		a.Tick.Label.Font = font.Font{Typeface: "Liberation", Variant: "Sans", Size: 9}
	}
	return &Panel{report.Drawing{Plot: p, Of: title}}
}

// Save writes the plots in a row to a file, whose extension says how (.svg, .png).
func Save(path string, plots ...*Panel) error {
	return SaveSized(path, 2.2*vg.Inch, 2.4*vg.Inch, plots...)
}

// SaveSized is Save with plots of a width and height. Nothing is written where one of the plots
// failed.
func SaveSized(path string, side, height vg.Length, plots ...*Panel) error {
	c, err := draw.NewFormattedCanvas(side*vg.Length(len(plots)), height,
		strings.TrimPrefix(filepath.Ext(path), "."))
	if err != nil {
		return err
	}
	tiles := draw.Tiles{Rows: 1, Cols: len(plots), PadX: vg.Points(8), PadLeft: vg.Points(4),
		PadRight: vg.Points(4), PadTop: vg.Points(4),
		PadBottom: vg.Points(4)}
	canvas := draw.New(c)
	canvas.SetColor(color.White)
	canvas.Fill(canvas.Rectangle.Path())
	for i, p := range plots {
		if p.Err != nil {
			return p.Err
		}
		p.Draw(tiles.At(canvas, i, 0))
	}
	return atomicfile.Write(path, func(w io.Writer) error {
		_, err := c.WriteTo(w)
		return err
	})
}
