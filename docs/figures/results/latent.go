package main

import (
	"fmt"
	"image/color"
	"math"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"fmp/docs/internal/kept"
	"fmp/docs/internal/panels"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/metric"
)

// sets and partitions of the kept runs, and their labels.
var (
	sets       = []string{"mnist", "cifar10", "cifar100"}
	titles     = []string{"MNIST", "CIFAR-10", "CIFAR-100"}
	partitions = []string{"homogeneous", "dirichlet-0.1"}
	clients    = []string{"hom.", "α = 0.1"}
)

// records are those of a kept run.
func records(root, scope, name string) ([]experiment.Record, error) {
	return experiment.ReadResults(filepath.Join(root, scope, name))
}

// selected is a figure of each repeat of a method, with raw (shared) settings.
func selected(rs []experiment.Record, partition, method string,
	figure kept.Figure) map[int]float64 {
	return kept.Select(rs,
		experiment.Cell{Partition: partition, Protocol: "shared", Method: method}, figure)
}

// A line is one category of a panel: the loss of FMP without its latent, with the same scalars and
// with scalars of its own (FMP-mean), above FMP.
type line struct {
	label      string
	same, mean metric.Interval
}

// differences are lines of a figure for the data sets and partitions in which two repeats or more
// have it: an interval wants two. The label says their number where others lack the figure.
func differences(root string, figure kept.Figure) ([]line, error) {
	var out []line
	for i, set := range sets {
		closed, err := records(root, "closed", set)
		if err != nil {
			return nil, err
		}
		none, err := records(root, "ablation", "latent-none-"+set)
		if err != nil {
			return nil, err
		}
		for j, partition := range partitions {
			own := selected(closed, partition, "FMP", figure)
			if len(own) < 2 {
				continue
			}
			l := line{label: titles[i] + ", " + clients[j]}
			if l.same, err = kept.Less(selected(none, partition, "FMP", figure), own); err != nil {
				return nil, fmt.Errorf("%s, %s: %w", set, partition, err)
			}
			if l.mean, err = kept.Less(selected(closed, partition, "FMP-mean", figure),
				own); err != nil {
				return nil, fmt.Errorf("%s, %s: %w", set, partition, err)
			}
			if figureOfSome := len(own) < len(selected(closed, partition, "FMP",
				kept.NLL)); figureOfSome {
				l.label += fmt.Sprintf(", %d tasks", len(own))
			}
			out = append(out, l)
		}
	}
	return out, nil
}

// latent draws the gain of a sample's common latent, from the kept runs in closed scope and
// those of the ablation without it.
func latent(root, path string) error {
	joint, err := differences(root, kept.Joint)
	if err != nil {
		return err
	}
	absent, err := differences(root, func(r *experiment.Record) *float64 {
		if r.Absent == nil {
			return nil
		}
		return &r.NLL
	})
	if err != nil {
		return err
	}
	samples, err := bySamples(root)
	if err != nil {
		return err
	}
	return panels.SaveSized(path, 3.6*vg.Inch, 2.9*vg.Inch,
		forest("1. joint NLL without the latent, less with", joint),
		forest("2. NLL likewise, where a class is absent", absent), samples)
}

// forest is one line a category from top to bottom, intervals from left to right.
func forest(title string, lines []line) *panels.Panel {
	p := panels.New(title)
	p.X.Tick.Label.Font.Size, p.Y.Tick.Label.Font.Size = 8, 8
	var ticks []plot.Tick
	series := []struct {
		name  string
		at    float64
		of    func(line) metric.Interval
		shape draw.GlyphDrawer
		color color.Color
	}{
		{"same scalars", 0.15, func(l line) metric.Interval { return l.same }, draw.CircleGlyph{},
			panels.Palette[1]},
		{"its own (FMP-mean)", -0.15, func(l line) metric.Interval { return l.mean },
			draw.PyramidGlyph{}, panels.Palette[0]},
	}
	for _, s := range series {
		points := errors{}
		// Categories stand from top to bottom, at 0, -1, -2: the series beside each other.
		for i, l := range lines {
			x := s.of(l)
			points.XYs = append(points.XYs, plotter.XY{X: x.Mean, Y: float64(-i) + s.at})
			points.XErrors = append(points.XErrors, struct{ Low, High float64 }{x.Half, x.Half})
		}
		bars, err := plotter.NewXErrorBars(points)
		if p.Failed(err) {
			return p
		}
		bars.Color = s.color
		bars.CapWidth = 3
		p.Add(bars)
		p.Legend.Add(s.name, p.Dots(draw.GlyphStyle{Color: s.color, Shape: s.shape, Radius: 2.5},
			points.XYs...))
	}
	for i, l := range lines {
		ticks = append(ticks, plot.Tick{Value: float64(-i), Label: l.label})
	}
	p.Y.Tick.Marker = plot.ConstantTicks(ticks)
	p.Y.Min, p.Y.Max = float64(-len(lines))-0.4, 0.5
	p.X.Min = math.Min(p.X.Min, 0)
	// The dashed line at 0 is where the latent makes no difference.
	p.Line(color.Gray{120}, 1, plotter.XY{Y: p.Y.Min},
		plotter.XY{Y: p.Y.Max}).Dashes = []vg.Length{2, 2}
	p.Small()
	return p
}

// errors are points with intervals along x.
type errors struct {
	plotter.XYs
	plotter.XErrors
}

// bySamples is the joint NLL of the first S samples, less that of all, a mean over repeats: the
// cost of fewer samples.
func bySamples(root string) (*panels.Panel, error) {
	p := panels.New("3. joint NLL of S samples, less of 100")
	p.X.Tick.Label.Font.Size, p.Y.Tick.Label.Font.Size = 8, 8
	p.X.Scale = plot.LogScale{}
	p.X.Label.Text, p.X.Label.TextStyle = "S", panels.Style(8, color.Black)
	var ticks []plot.Tick
	for i, set := range sets {
		rs, err := records(root, "closed", set)
		if err != nil {
			return nil, err
		}
		for j, partition := range partitions {
			all := selected(rs, partition, "FMP", kept.Joint)
			var xys plotter.XYs
			ticks = ticks[:0]
			for _, s := range []int{1, 2, 5, 10, 20, 40, 100} {
				x, err := kept.Less(selected(rs, partition, "FMP", kept.First(s, true)), all)
				if err != nil {
					return nil, fmt.Errorf("%s, %s, %d samples: %w", set, partition, s, err)
				}
				xys = append(xys, plotter.XY{X: float64(s), Y: x.Mean})
				ticks = append(ticks, plot.Tick{Value: float64(s), Label: fmt.Sprint(s)})
			}
			l := p.Line(panels.Palette[i], 1.2, xys...)
			if j == 0 {
				l.Dashes = []vg.Length{vg.Points(4), vg.Points(2)}
			}
			p.Legend.Add(titles[i]+", "+clients[j], l)
		}
	}
	p.X.Tick.Marker = plot.ConstantTicks(ticks)
	p.Legend.Top = true
	p.Small()
	return p, nil
}
