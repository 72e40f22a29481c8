package main

import (
	"fmt"
	"image/color"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"fmp/docs/internal/panels"
	"fmp/pipeline/lab/experiment"
)

// sizes are the images a client of the kept runs, and methods those that are drawn, with their
// marks.
var (
	sizes   = []int{10, 20, 200, 1000, 2900}
	methods = []string{"FMP", "ANN", "FedCGS", "Fed3R", "CANN"}
	marks   = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{},
		draw.CrossGlyph{}, draw.PlusGlyph{}}
)

// rounds draws NLL and bytes of an upload against images a client, one line a method, from the kept
// runs behind a pretrained network.
func rounds(root, path string) error {
	var runs [][]experiment.Record
	for _, n := range sizes {
		rs, err := experiment.ReadResults(filepath.Join(root, "pretrained",
			fmt.Sprintf("cifar10-%d", n)))
		if err != nil {
			return err
		}
		runs = append(runs, rs)
	}
	var plots []*panels.Panel
	for _, c := range []struct{ title, partition string }{{"1. NLL, homogeneous", "homogeneous"},
		{"2. NLL, α = 0.1", "dirichlet-0.1"}} {
		// Rivals have the settings that suit the scored images best; FMP has its own.
		p, err := lines(c.title, runs, c.partition, func(r *experiment.Record) float64 {
			if r.Method == "FMP" || r.Hindsight == nil {
				return r.NLL
			}
			return *r.Hindsight
		})
		if err != nil {
			return err
		}
		plots = append(plots, p)
	}
	bytes, err := lines("3. KB a client, homogeneous", runs, "homogeneous",
		func(r *experiment.Record) float64 { return r.UploadBytes / 1000 })
	if err != nil {
		return err
	}
	bytes.Y.Scale = plot.LogScale{}
	bytes.Y.Tick.Marker = plot.ConstantTicks{{Value: 50, Label: "50"}, {Value: 100, Label: "100"},
		{Value: 1000, Label: "1,000"}, {Value: 3000, Label: "3,000"}}
	bytes.Legend.Top = false
	return panels.SaveSized(path, 3*vg.Inch, 2.9*vg.Inch, append(plots, bytes)...)
}

// lines is one line a method over images a client, its mean over the repeats that a run has.
func lines(title string, runs [][]experiment.Record, partition string,
	figure func(*experiment.Record) float64) (*panels.Panel, error) {
	p := panels.New(title)
	p.X.Scale = plot.LogScale{}
	p.X.Label.Text, p.X.Label.TextStyle = "images a client", panels.Style(8, color.Black)
	var ticks []plot.Tick
	for _, n := range sizes {
		ticks = append(ticks, plot.Tick{Value: float64(n), Label: fmt.Sprint(n)})
	}
	p.X.Tick.Marker = plot.ConstantTicks(ticks)
	for i, method := range methods {
		var at plotter.XYs
		for j, rs := range runs {
			var sum, count float64
			for k := range rs {
				if r := &rs[k]; r.Method == method && r.Partition == partition {
					sum, count = sum+figure(r), count+1
				}
			}
			if count > 0 {
				at = append(at, plotter.XY{X: float64(sizes[j]), Y: sum / count})
			}
		}
		if len(at) == 0 {
			return nil, fmt.Errorf("no kept run has %s on %s", method, partition)
		}
		l := p.Line(panels.Palette[i], 1, at...)
		s := p.Dots(draw.GlyphStyle{Color: panels.Palette[i], Shape: marks[i],
			Radius: vg.Points(3)}, at...)
		if method == "FMP" {
			l.Width = vg.Points(2)
		} else if !slices.Contains([]string{"FedCGS", "Fed3R"}, method) {
			l.Dashes = []vg.Length{vg.Points(4), vg.Points(2)}
		}
		p.Legend.Add(method, l, s)
	}
	p.Legend.Top = true
	p.Small()
	return p, nil
}
