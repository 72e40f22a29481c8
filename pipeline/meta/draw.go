package meta

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"image/color"
	"io"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"fmp/onnx/atomicfile"
	"fmp/onnx/regularfile"
)

// panels of a plotted log: title, and the metrics shown, those of validation under their own kind.
var panels = []struct {
	title, kind string
	metrics     []string
}{
	{"training", "train", []string{"loss", "score", "alone", "coupling", "gap"}},
	{"validation: loss", "validation", []string{"loss"}},
	{"validation: relative gap", "validation", []string{"gap"}},
	{"validation: ACC", "validation", []string{"acc", "fmp_acc"}},
	{"validation: ECE and NLL", "validation", []string{"ece", "fmp_ece", "nll", "fmp_nll"}},
}

// palette holds the colour-blind safe colours of Okabe and Ito.
var palette = []color.Color{
	color.RGBA{0x00, 0x72, 0xb2, 0xff}, color.RGBA{0xd5, 0x5e, 0x00, 0xff},
	color.RGBA{0x00, 0x9e, 0x73, 0xff},
	color.RGBA{0xcc, 0x79, 0xa7, 0xff}, color.RGBA{0x00, 0x00, 0x00, 0xff},
}

// drawable reports whether the axes can show a value: the search for ticks does not terminate if
// the ends of an axis are too far apart or too close together, which is also why values are rounded
// to float32.
func drawable(v float64) bool { return math.Abs(v) <= 1e30 && (v == 0 || math.Abs(v) >= 1e-30) }

// maxLog bounds a training log: 256 MiB.
const maxLog = 256 << 20

// readLog returns the points of a training log by kind and metric ("train loss"), in the order of
// its lines. Values that are not drawable are left out. A line is one object of JSON with a kind, a
// step and numbers. Other fields are passed over.
// A line beyond 64 KiB, the bound of bufio.Scanner, is an error.
func readLog(data []byte) (map[string]plotter.XYs, error) {
	series := map[string]plotter.XYs{}
	sc := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; sc.Scan(); n++ {
		var line map[string]any
		if err := json.Unmarshal(sc.Bytes(), &line); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		kind, _ := line["kind"].(string)
		step, ok := line["step"].(float64)
		if !ok {
			return nil, fmt.Errorf("line %d holds no step", n)
		}
		if !drawable(step) {
			return nil, fmt.Errorf("line %d is of step %g; allowed are -1e30 to 1e30", n, step)
		}
		for k, v := range line {
			y, ok := v.(float64)
			if y = float64(float32(y)); ok && drawable(y) { // a diverging curve leaves the panel
				series[kind+" "+k] = append(series[kind+" "+k], plotter.XY{X: step, Y: y})
			}
		}
	}
	return series, sc.Err()
}

// widenAxis widens the range of an axis whose values are nearly equal: gonum widens it by 1, which
// is lost in large values, and its ticks then panic.
func widenAxis(a *plot.Axis) {
	if size := max(math.Abs(a.Min), math.Abs(a.Max)); a.Max-a.Min < 1e-6*size {
		a.Min, a.Max = a.Min-1e-3*size, a.Max+1e-3*size
	}
}

// legendLine is the height of a legend's line as a share of a panel's lines.
const legendLine = 0.07

// makeRoom raises the end of an axis, so that a legend of some lines stands above all curves. Of a
// height h it grows by s/(1 - s) h: the legend takes the share s of the whole.
func makeRoom(a *plot.Axis, lines int) {
	share := legendLine * float64(lines)
	a.Max += share / (1 - share) * (a.Max - a.Min)
}

// DrawLog plots a training log (JSON Lines of [Config].Log) as an SVG file. Values beyond 1e30, and
// nonzero values below 1e-30, are left out. Panels stand side by side, and one without any metric
// is left out. The log is untrusted, and at most maxLog bytes are read.
// The SVG is written once it is whole: an error leaves an older one as it was.
func DrawLog(log, svg string) error {
	data, err := regularfile.ReadFile(log, maxLog)
	if err != nil {
		return fmt.Errorf("drawing a training log: %w", err)
	}
	series, err := readLog(data)
	if err != nil {
		return fmt.Errorf("drawing %s: %w", log, err)
	}
	var plots []*plot.Plot
	for _, panel := range panels {
		p := plot.New()
		p.Title.Text, p.X.Label.Text, p.Legend.Top = panel.title, "step", true
		drawn := 0
		for i, m := range panel.metrics {
			xy := series[panel.kind+" "+m]
			if len(xy) == 0 {
				continue
			}
			l, err := plotter.NewLine(xy)
			if err != nil {
				return fmt.Errorf("drawing %s: %s: %w", log, m, err)
			}
			l.Color, l.Width = palette[i%len(palette)], vg.Points(1.5)
			if i%2 == 1 {
				l.Dashes = []vg.Length{vg.Points(5), vg.Points(2)}
			}
			p.Add(l)
			p.Legend.Add(m, l)
			drawn++
		}
		if drawn > 0 {
			widenAxis(&p.X)
			widenAxis(&p.Y)
			makeRoom(&p.Y, drawn)
			plots = append(plots, p)
		}
	}
	if len(plots) == 0 {
		return fmt.Errorf("drawing %s: it holds no metric that is drawn", log)
	}
	c := vgsvg.New(vg.Points(360)*vg.Length(len(plots)), vg.Points(280))
	tiles := draw.Tiles{Rows: 1, Cols: len(plots), PadX: vg.Points(16), PadTop: vg.Points(8),
		PadBottom: vg.Points(8), PadLeft: vg.Points(8), PadRight: vg.Points(8)}
	whole := draw.New(c)
	for i, p := range plots {
		p.Draw(tiles.At(whole, i, 0))
	}
	return atomicfile.Write(svg, func(w io.Writer) error {
		_, err := c.WriteTo(w)
		return err
	})
}
