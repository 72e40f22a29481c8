// The program martingale draws the first figure of docs/concepts.md: a martingale posterior in the
// plane. Seen points of two classes, unseen ones drawn with the program's own predictor (untrained:
// a smoothed bootstrap), one straight boundary fitted to both, again and again, and the mean of the
// fits' probabilities.
//
//	go run ./docs/figures/martingale docs/figures/martingale.svg
package main

import (
	"context"
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"fmp/docs/internal/panels"
	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/pipeline/erm"
	"fmp/pipeline/point"
	"fmp/pipeline/sample"
)

const (
	seed    = 3
	n       = 14  // seen points
	fresh   = 30  // points of one draw
	samples = 40  // draws
	l2      = 0.1 // of the fits
	extent  = 3.2 // of the plane, from the middle
)

func main() {
	panels.Main("martingale FILE.svg",
		func(a []string) error { return run(context.Background(), a[0]) })
}

// run fits one head to the seen points alone, and one to them with each set of drawn points. The
// latter are the samples of the posterior, and their mean is the prediction.
func run(ctx context.Context, path string) error {
	seen, err := observe()
	if err != nil {
		return err
	}
	drawn, err := drawUnseen(ctx, seen)
	if err != nil {
		return err
	}
	var problems []*erm.Problem
	alone, err := erm.FromSets(l2, seen)
	if err != nil {
		return err
	}
	problems = append(problems, alone)
	for _, d := range drawn {
		p, err := erm.FromSets(l2, seen, d)
		if err != nil {
			return err
		}
		problems = append(problems, p)
	}
	fits, err := erm.SolveAll(ctx, problems, erm.Options{})
	if err != nil {
		return err
	}
	var heads []erm.Theta
	for _, f := range fits {
		heads = append(heads, f.Theta)
	}

	first := plane("1. seen data, and a fit")
	second := plane("2. unseen data drawn, a fit to all")
	third := plane("3. drawn again, another fit")
	fourth := plane(fmt.Sprintf("4. %d draws: the posterior", samples))
	fifth := plane("5. their mean: the prediction")
	boundary(first, heads[0], 1.5, 255)
	dots(first, seen, 3.5, 255)
	for i, p := range []*panels.Panel{second, third} {
		dots(p, drawn[i], 2, 110)
		boundary(p, heads[i+1], 1.5, 255)
		dots(p, seen, 3.5, 255)
	}
	for _, h := range heads[1:] {
		boundary(fourth, h, 0.7, 130)
	}
	dots(fourth, seen, 3.5, 255)
	levels(fifth, heads[1:])
	dots(fifth, seen, 3.5, 255)
	return panels.Save(path, first, second, third, fourth, fifth)
}

// observe makes the seen points: two clouds that touch.
func observe() (*point.Set, error) {
	r := rng.New(seed, "points")
	var features []float32
	var labels []int
	for i := range n {
		y := i % 2
		// side is -1 of the first class and 1 of the second.
		side := 2*float64(y) - 1
		features = append(features, float32(1.1*side+0.75*r.NormFloat64()),
			float32(0.5*side+0.75*r.NormFloat64()))
		labels = append(labels, y)
	}
	return point.FromLabelled(features, 2, labels, 2)
}

// drawUnseen draws sets of unseen points given the seen ones.
func drawUnseen(ctx context.Context, seen *point.Set) ([]*point.Set, error) {
	m, err := models.NewPredictor(models.PredictorConfig{Dx: 2, C: 2, Beta: 20}, seed)
	if err != nil {
		return nil, err
	}
	eng, err := pure.New(engine.Options{})
	if err != nil {
		return nil, err
	}
	defer eng.Close()
	p, err := sample.New(eng, m)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	noise, err := p.Noise(rng.New(seed, "noise"), samples, fresh)
	if err != nil {
		return nil, err
	}
	return p.Draw(ctx, seen, noise, samples)
}

// dots draws points in the colour and shape of their class: discs and triangles.
func dots(p *panels.Panel, set *point.Set, radius float64, alpha uint8) {
	for c, shape := range []draw.GlyphDrawer{draw.CircleGlyph{}, draw.PyramidGlyph{}} {
		var at plotter.XYs
		for i := range set.N {
			row := set.Row(i)
			// Numbers 2 and 3 of a row belong to the two classes; the larger tells the point's.
			if (row[3] > row[2]) == (c == 1) {
				at = append(at, plotter.XY{X: float64(row[0]), Y: float64(row[1])})
			}
		}
		if len(at) > 0 {
			p.Dots(draw.GlyphStyle{Color: faded(panels.Palette[c], alpha), Shape: shape,
				Radius: vg.Length(radius)}, at...)
		}
	}
}

// faded is a colour mixed with white, as SVG files are smaller and more widely understood without
// transparency.
func faded(c color.RGBA, alpha uint8) color.RGBA {
	mix := func(v uint8) uint8 { return uint8((int(v)*int(alpha) + 255*(255-int(alpha))) / 255) }
	return color.RGBA{mix(c.R), mix(c.G), mix(c.B), 255}
}

// boundary draws the line where both classes are equally likely.
func boundary(p *panels.Panel, t erm.Theta, width float64, alpha uint8) {
	// w0 x + w1 y + b = 0 with the differences of the two classes' weights. Rows 0 and 1 of a head
	// are those of the features, and row 2 is the intercept.
	w := [3]float64{}
	for j := range w {
		w[j] = t.Row(j)[1] - t.Row(j)[0]
	}
	var ends plotter.XYs
	add := func(x, y float64) {
		if math.Abs(x) <= extent+1e-9 && math.Abs(y) <= extent+1e-9 && len(ends) < 2 {
			ends = append(ends, plotter.XY{X: x, Y: y})
		}
	}
	// Where the line meets the edges of the plane: at most two of these four places lie on it.
	for _, e := range []float64{-extent, extent} {
		if w[0] != 0 {
			add(-(w[1]*e+w[2])/w[0], e)
		}
		if w[1] != 0 {
			add(e, -(w[0]*e+w[2])/w[1])
		}
	}
	if len(ends) < 2 {
		p.Failed(fmt.Errorf("a boundary %v lies outside the figure", w))
		return
	}
	p.Line(faded(color.RGBA{40, 40, 40, 255}, alpha), width, ends...)
}

// surface is the mean over heads of the probability of the second class. It is 1 / (1 + exp(-(w0 x
// + w1 y + b))), of the differences of the two classes' weights.
type surface struct {
	heads []erm.Theta
	side  int
}

// Dims, X and Y place side x side values evenly on the plane.
func (s surface) Dims() (c, r int) { return s.side, s.side }
func (s surface) X(c int) float64  { return extent * (2*float64(c)/float64(s.side-1) - 1) }
func (s surface) Y(r int) float64  { return s.X(r) }

// Z is the mean probability at a place.
func (s surface) Z(c, r int) float64 {
	sum := 0.0
	for _, t := range s.heads {
		z := t.Row(2)[1] - t.Row(2)[0] + (t.Row(0)[1]-t.Row(0)[0])*s.X(c) +
			(t.Row(1)[1]-t.Row(1)[0])*s.Y(r)
		sum += 1 / (1 + math.Exp(-z))
	}
	return sum / float64(len(s.heads))
}

// levels draws lines of equal probability. Where a line crosses the upper edge is interpolated
// between two values.
func levels(p *panels.Panel, heads []erm.Theta) {
	s := surface{heads, 41}
	for _, l := range []struct {
		at    float64
		label string
		width float64
	}{{0.1, "0.1", 0.8}, {0.5, "0.5", 1.5}, {0.9, "0.9", 0.8}} {
		c := plotter.NewContour(s, []float64{l.at}, nil)
		c.LineStyles = []draw.LineStyle{{Color: color.RGBA{40, 40, 40, 255},
			Width: vg.Length(l.width)}}
		p.Add(c)
		// The label stands where the line meets the upper edge.
		for i := range s.side - 1 {
			a, b := s.Z(i, s.side-1), s.Z(i+1, s.side-1)
			if (a-l.at)*(b-l.at) <= 0 && a != b {
				x := s.X(i) + (s.X(i+1)-s.X(i))*(l.at-a)/(b-a)
				p.Labels(plotter.XYs{{X: x, Y: extent * 1.07}}, []string{l.label}).TextStyle[0] =
					panels.Style(8, color.Black)
				break
			}
		}
	}
}

// plane is a panel without numbers at its axes.
func plane(title string) *panels.Panel {
	p := panels.New(title)
	// The room above the plane is for the labels of [levels].
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = -extent, extent, -extent, extent*1.12
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.ConstantTicks{}, plot.ConstantTicks{}
	return p
}
