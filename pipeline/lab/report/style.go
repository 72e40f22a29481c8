package report

import (
	"image/color"
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"fmp/pipeline/lab/rival"
)

// Colours of Okabe and Ito, which are distinguishable with every kind of colour vision, and stand
// out both on white and on near-black. ink and faint are foregrounds that the page replaces in dark
// mode.
var (
	ink        = color.RGBA{0x22, 0x22, 0x21, 0xff}
	faint      = color.RGBA{0xd0, 0xd0, 0xd1, 0xff}
	orange     = color.RGBA{0xe6, 0x9f, 0x00, 0xff}
	skyBlue    = color.RGBA{0x56, 0xb4, 0xe9, 0xff}
	green      = color.RGBA{0x00, 0x9e, 0x73, 0xff}
	blue       = color.RGBA{0x00, 0x72, 0xb2, 0xff}
	vermillion = color.RGBA{0xd5, 0x5e, 0x00, 0xff}
	purple     = color.RGBA{0xcc, 0x79, 0xa7, 0xff}
	grey       = color.RGBA{0x8c, 0x8c, 0x8c, 0xff}
)

// classColors are the colours of the classes in a picture; shapes distinguish further classes. They
// include neither yellow, too pale on white, nor grey, which is the background's.
var classColors = []color.RGBA{orange, skyBlue, green, blue, vermillion, purple, ink}

// familyColors are the colours of methods by their family, groupShapes their glyphs by their group.
var (
	familyColors = map[rival.Family]color.Color{rival.Fits: green, rival.GaussianPriors: skyBlue,
		rival.Martingales: blue, rival.Federated: vermillion, rival.Discriminants: purple, "": grey}
	groupShapes = map[string]draw.GlyphDrawer{string(rival.Local): draw.PyramidGlyph{},
		string(rival.Centralised): draw.BoxGlyph{}, string(rival.OneShot): draw.CircleGlyph{}}
)

// methodColor returns the colour of a method's family. Methods without a family, and those from
// outside, are grey.
func methodColor(method string) color.Color { return familyColors[info(method).Family] }

// info describes a method; it is empty for unknown methods, such as those of an older program.
func info(method string) rival.Info {
	m, err := rival.Lookup(method)
	if err != nil {
		return rival.Info{}
	}
	return m.Info()
}

// glyph is the mark of a method: colour by family, shape by group, radius by size. Shape and colour
// both tell, so that a figure in grey can still be read.
func glyph(method, group string, size vg.Length) draw.GlyphStyle {
	shape := groupShapes[group]
	if shape == nil { // of a baseline
		shape = draw.CrossGlyph{}
	}
	return draw.GlyphStyle{Color: methodColor(method), Shape: shape, Radius: size}
}

// frame removes a plot's axes and shows a box and a small margin around it. Adding to a plot widens
// its axes, so call this last.
func frame(p *plot.Plot, xmin, xmax, ymin, ymax float64) {
	p.HideAxes()
	w, h := 0.04*(xmax-xmin), 0.04*(ymax-ymin)
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = xmin-w, xmax+w, ymin-h, ymax+h
}

// newPlot returns an empty plot in the common style: no frame, faint grid, sans-serif text. The
// face is embedded in the program, so that figures are alike on every machine.
func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil // the canvas or the page provides one
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	set := func(f *font.Font, size float64) {
		f.Typeface, f.Variant, f.Size = "Liberation", "Sans", vg.Points(size)
	}
	set(&p.Title.TextStyle.Font, 11)
	p.Title.TextStyle.Color = ink
	p.Title.Padding = vg.Points(4)
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Color = grey
		a.Label.TextStyle.Color = ink
		set(&a.Label.TextStyle.Font, 10)
		a.Tick.Label.Color = ink
		set(&a.Tick.Label.Font, 9)
		a.Tick.LineStyle.Color = grey
		a.Padding = vg.Points(2)
		a.Tick.Marker = roundTicks{}
	}
	p.Legend.TextStyle.Color = ink
	set(&p.Legend.TextStyle.Font, 9)
	p.Legend.ThumbnailWidth = vg.Points(16)
	p.Legend.Padding = vg.Points(3)
	return p
}

// grid adds faint lines at the ticks.
func grid(p *plot.Plot, vertical, horizontal bool) {
	g := plotter.NewGrid()
	g.Vertical.Color, g.Horizontal.Color = nil, nil
	if vertical {
		g.Vertical.Color = faint
	}
	if horizontal {
		g.Horizontal.Color = faint
	}
	p.Add(g)
}

// roundTicks places ticks at multiples of 1, 2 or 5 times a power of ten. The step is the smallest
// such from 10^floor(log10(span/3)) of which at most six fit into the span. Each label has the
// decimals that the step needs. Slacks of 1e-9 keep ticks at the ends in spite of rounding.
type roundTicks struct{}

func (roundTicks) Ticks(lo, hi float64) []plot.Tick {
	span := hi - lo
	if !(span > 0) || math.IsInf(span, 0) {
		return nil
	}
	step := math.Pow(10, math.Floor(math.Log10(span/3)))
	for _, m := range []float64{1, 2, 5, 10} {
		if span/(m*step) <= 6 {
			step *= m
			break
		}
	}
	digits := max(0, int(math.Ceil(-math.Log10(step)-1e-9)))
	var out []plot.Tick
	for k := math.Ceil(lo/step - 1e-9); k*step <= hi+1e-9*span; k++ {
		v := k*step + 0 // avoid a negative zero
		out = append(out, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'f', digits, 64)})
	}
	return out
}
