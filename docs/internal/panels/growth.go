package panels

import (
	"math"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// Growth is a plot of a cost against a size on logarithmic axes. A dashed line through the last
// point grows in proportion; it begins where the least cost or the least size does.
func Growth(title, label string, at plotter.XYs) *Panel {
	p := New(title)
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = powers{}, powers{}
	p.Y.Label.Text = label
	p.Y.Label.TextStyle = Style(9, Palette[8])
	last := at[len(at)-1]
	_, _, least, _ := plotter.XYRange(at)
	// The line is y = last.Y x / last.X. It begins where it enters the plot, at the left or below.
	from := max(at[0].X, last.X*least/last.Y)
	p.Line(Palette[8], 1, plotter.XY{X: from, Y: last.Y * from / last.X}, last).Dashes =
		[]vg.Length{vg.Points(3), vg.Points(3)}
	p.Line(Palette[0], 1, at...)
	marks := plotter.DefaultGlyphStyle
	marks.Color = Palette[0]
	p.Dots(marks, at...)
	return p
}

// powers are ticks at powers of ten, of which up to four have labels.
type powers struct{}

// Ticks returns the powers within a range.
func (powers) Ticks(low, high float64) (out []plot.Tick) {
	// 1e-9 keeps a power at an end of the range, which its logarithm may miss by rounding.
	from, to := int(math.Ceil(math.Log10(low)-1e-9)), int(math.Floor(math.Log10(high)+1e-9))
	every := max((to-from+3)/4, 1)
	for e := from; e <= to; e++ {
		t := plot.Tick{Value: math.Pow10(e)}
		// Counted from the largest, so that it always has its label.
		if (to-e)%every == 0 {
			t.Label = strconv.FormatFloat(t.Value, 'g', -1, 64)
			if e > 1 && e < 10 {
				t.Label = "10" + string([]rune("²³⁴⁵⁶⁷⁸⁹")[e-2])
			}
		}
		out = append(out, t)
	}
	return out
}
