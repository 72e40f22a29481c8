package report

import (
	"cmp"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// sideLabels names marks in the right margin of a plot, each by a line from its mark. Names stand
// one above the other in the order of their marks, at least a line's height apart, so that none
// covers another, however close the marks are.
type sideLabels struct {
	marks plotter.XYs
	texts []string
	style draw.TextStyle
}

// leader is the length of a line outside the plot, in points.
const leader = vg.Length(9)

// newSideLabels returns the labels of a plot, in the font of its ticks.
func newSideLabels(p *plot.Plot, marks plotter.XYs, texts []string) *sideLabels {
	style := p.X.Tick.Label
	style.Color, style.XAlign, style.YAlign, style.Rotation = ink, draw.XLeft, draw.YCenter, 0
	style.Font.Size = vg.Points(7)
	return &sideLabels{marks, texts, style}
}

// Plot draws the names and their lines. Names are ordered by height; of marks at one height, that
// further right is named below. A quarter of a letter's height separates names.
func (l *sideLabels) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	order := make([]int, len(l.marks))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(l.marks[a].Y, l.marks[b].Y),
			cmp.Compare(l.marks[b].X, l.marks[a].X))
	})
	var wanted []float64
	for _, i := range order {
		wanted = append(wanted, float64(y(l.marks[i].Y)))
	}
	for k, at := range apartBy(wanted, float64(l.style.Height("X")*1.25), float64(c.Min.Y),
		float64(c.Max.Y)) {
		i := order[k]
		end := vg.Point{X: c.Max.X + leader, Y: vg.Length(at)}
		c.StrokeLines(draw.LineStyle{Color: faint, Width: vg.Points(0.6)},
			[]vg.Point{{X: x(l.marks[i].X), Y: y(l.marks[i].Y)}, end})
		c.FillText(l.style, vg.Point{X: end.X + 2, Y: end.Y}, l.texts[i])
	}
}

// GlyphBoxes keeps room for the names on the right: a box at the right end of the plot, as wide as
// leader and longest name.
func (l *sideLabels) GlyphBoxes(*plot.Plot) []plot.GlyphBox {
	var width vg.Length
	for _, s := range l.texts {
		width = max(width, l.style.Width(s))
	}
	return []plot.GlyphBox{{X: 1, Y: 0.5,
		Rectangle: vg.Rectangle{Max: vg.Point{X: leader + 2 + width}}}}
}

// apartBy moves ascending positions as far as needed to be at least gap apart, and within lo and hi
// where they fit. A pass upwards moves positions up from their predecessors; a pass downwards moves
// those above hi back. Where they do not fit, the gap holds and the least are below lo.
func apartBy(at []float64, gap, lo, hi float64) []float64 {
	out := slices.Clone(at)
	for i := range out {
		out[i] = max(out[i], lo)
		if i > 0 {
			out[i] = max(out[i], out[i-1]+gap)
		}
	}
	for i := len(out) - 1; i >= 0; i-- {
		if out[i] = min(out[i], hi); i < len(out)-1 {
			out[i] = min(out[i], out[i+1]-gap)
		}
	}
	return out
}
