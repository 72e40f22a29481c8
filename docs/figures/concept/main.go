// The program concept draws the figure of docs/concepts.md from a run of the embedded digits: the
// first client's points, its upload, points drawn once, and every head's probabilities for the test
// image that they disagree on most.
//
//	fmp run --seeds 1 --methods FMP --dataset.test 1000 --out runs/concept
//	go run ./docs/figures/concept runs/concept docs/figures/concept.svg
package main

import (
	"bytes"
	"fmt"
	"image/color"
	"image/png"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg/draw"

	"fmp/docs/internal/panels"
	"fmp/pipeline/lab/experiment"
	"fmp/pipeline/lab/report"
)

func main() {
	panels.Main("concept RUN-DIRECTORY FILE.svg", func(a []string) error { return run(a[0], a[1]) })
}

func run(dir, path string) error {
	d, err := experiment.ReadDetail(dir)
	if err != nil {
		return err
	}
	if d == nil || len(d.Hard) == 0 {
		return fmt.Errorf("%s holds no details: make it with the command at the head of "+
			"this program", dir)
	}
	plots := []*panels.Panel{panels.New("1. one client's points"),
		panels.New("2. its upload (area: mass)"), panels.New("3. points drawn by the server")}
	plane(plots, d)
	e := &d.Hard[0]
	return panels.Save(path, append(plots, spread(e, d.Classes), average(e, d.Classes))...)
}

// plane fills the first three panels: principal components of the features.
func plane(plots []*panels.Panel, d *experiment.Detail) {
	// lo and hi bound all sets, so that the panels share their axes.
	lo, hi := [2]float64{math.Inf(1), math.Inf(1)}, [2]float64{math.Inf(-1), math.Inf(-1)}
	for _, s := range d.View.Sets {
		for _, q := range s {
			lo[0], hi[0] = min(lo[0], q.X), max(hi[0], q.X)
			lo[1], hi[1] = min(lo[1], q.Y), max(hi[1], q.Y)
		}
	}
	for i, set := range []string{"client", "upload", "drawn"} {
		p := plots[i]
		p.Dots(draw.GlyphStyle{Color: color.Gray{215}, Shape: draw.CircleGlyph{}, Radius: 1.2},
			report.XYs(d.View.Sets["background"])...)
		points := d.View.Sets[set]
		names := make([]string, len(points))
		for k, q := range points {
			names[k] = d.Classes[q.Class]
		}
		labels := p.Labels(report.XYs(points), names)
		for k, q := range points {
			size := 9.0
			switch set {
			case "upload":
				// The area grows with the mass.
				size = 3 + 7*math.Sqrt(max(q.Weight, 0))
			case "drawn":
				size = 7
			}
			labels.TextStyle[k] = panels.Style(size, panels.Palette[q.Class%len(panels.Palette)])
		}
		p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = lo[0], hi[0], lo[1], hi[1]
		p.X.Tick.Marker, p.Y.Tick.Marker = plot.ConstantTicks{}, plot.ConstantTicks{}
	}
}

// spread shows the probabilities that every head gives an image's three most probable classes.
func spread(e *experiment.Example, classes []string) *panels.Panel {
	p := panels.New(fmt.Sprintf("4. what %d heads say of one image", len(e.Samples)))
	var names []string
	for k, c := range e.Top {
		names = append(names, classes[c])
		var points plotter.XYs
		for i, s := range e.Samples {
			// Heads are spread over half a unit around their class, in their order.
			points = append(points, plotter.XY{
				X: float64(k) + 0.5*(float64(i)/float64(len(e.Samples))-0.5), Y: s[k]})
		}
		p.Dots(draw.GlyphStyle{Color: panels.Palette[c%len(panels.Palette)],
			Shape: draw.CircleGlyph{}, Radius: 2}, points...)
	}
	probabilities(p, names)
	return p
}

// average shows the mean of the heads' probabilities, and the image.
func average(e *experiment.Example, classes []string) *panels.Panel {
	p := panels.New("5. their mean: the prediction")
	for c, v := range e.Mean {
		bar, err := plotter.NewBarChart(plotter.Values{v}, 8)
		if p.Failed(err) {
			return p
		}
		bar.XMin, bar.Color, bar.LineStyle.Width = float64(c),
			panels.Palette[c%len(panels.Palette)], 0
		p.Add(bar)
	}
	probabilities(p, classes)
	img, err := png.Decode(bytes.NewReader(e.PNG))
	if err != nil {
		p.Failed(fmt.Errorf("the image of the details: %w", err))
		return p
	}
	p.Add(plotter.NewImage(img, float64(len(classes))-3.6, 0.68, float64(len(classes))-0.6, 0.98))
	return p
}

// probabilities gives a panel the axes of probabilities of named classes.
func probabilities(p *panels.Panel, names []string) {
	p.NominalX(names...)
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = -0.6, float64(len(names))-0.4, 0, 1
	p.Y.Tick.Marker = plot.ConstantTicks{{Value: 0, Label: "0"}, {Value: 0.5, Label: "½"},
		{Value: 1, Label: "1"}}
}
