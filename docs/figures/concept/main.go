// The program concept draws the figure of docs/concepts.md: the steps of a federated martingale posterior in
// a plane of two features, computed by the packages that do the real work, with untrained models.
//
//	go run ./docs/figures/concept docs/figures/concept.svg
package main

import (
	"context"
	"fmt"
	"image"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"fmp/models"
	"fmp/models/rng"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/pipeline/compress"
	"fmp/pipeline/erm"
	"fmp/pipeline/metric"
	"fmp/pipeline/point"
	"fmp/pipeline/sample"
)

// Sizes of the toy: three classes in the plane, three clients.
const (
	classes = 3
	clients = 3
	held    = 20 // points of a client
	size    = 6  // points of an upload
	fresh   = 60 // points of one draw
	samples = 12 // heads
	l2      = 0.5
	edge    = 4.0 // the plane is [-edge, edge] squared
)

// palette is from Okabe and Ito's colours for the colour-blind.
var palette = []color.RGBA{{0, 114, 178, 255}, {213, 94, 0, 255}, {0, 158, 115, 255}}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: concept FILE.svg (or .png)")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "concept:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, path string) error {
	own := make([]*point.Set, clients)
	for m := range own {
		own[m] = client(m)
	}
	eng, err := pure.New(engine.Options{})
	if err != nil {
		return err
	}
	defer eng.Close()
	uploads, err := upload(ctx, eng, own)
	if err != nil {
		return err
	}
	seen, err := point.Pool(uploads...)
	if err != nil {
		return err
	}
	drawn, err := unseen(ctx, eng, seen)
	if err != nil {
		return err
	}
	var heads []erm.Theta
	for _, u := range drawn {
		p, err := erm.FromSets(l2, seen, u)
		if err != nil {
			return err
		}
		s, err := erm.Solve(ctx, p, erm.Options{})
		if err != nil {
			return err
		}
		heads = append(heads, s.Theta)
	}
	mean, err := prediction(ctx, heads)
	if err != nil {
		return err
	}
	return save(path, []*plot.Plot{
		panel("1. a client's points", scatter(own[0], 2.5)),
		panel("2. its upload, area = mass", scatter(uploads[0], 0)),
		panel("3. points drawn once", scatter(drawn[0], 1.8), scatter(seen, 0)),
		panel(fmt.Sprintf("4. heads of %d draws", samples), boundaries(heads)...),
		panel("5. mean of their softmaxes", mean),
	})
}

// client is points of three Gaussian classes; each client lacks most of one class.
func client(m int) *point.Set {
	s := point.New(held, 2, classes)
	r := rng.New(7, "client", m)
	for i := range held {
		y := r.IntN(classes)
		if y == m {
			y = (y + r.IntN(classes)) % classes
		}
		angle := 2*math.Pi*float64(y)/classes + math.Pi/2
		z := s.Row(i)
		z[0] = float32(1.7*math.Cos(angle) + 0.8*r.NormFloat64())
		z[1] = float32(1.7*math.Sin(angle) + 0.8*r.NormFloat64())
		z[2+y] = 1
	}
	return s
}

func upload(ctx context.Context, eng engine.Engine, own []*point.Set) ([]*point.Set, error) {
	m, err := models.NewEmbedding(models.EmbeddingConfig{Dx: 2, C: classes, Size: size}, 1)
	if err != nil {
		return nil, err
	}
	c, err := compress.New(eng, m)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return c.Compress(ctx, own)
}

func unseen(ctx context.Context, eng engine.Engine, seen *point.Set) ([]*point.Set, error) {
	m, err := models.NewPredictor(models.PredictorConfig{Dx: 2, C: classes}, 1)
	if err != nil {
		return nil, err
	}
	p, err := sample.New(eng, m)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	return p.Draw(ctx, seen, p.Noise(rng.New(7, "noise"), samples, fresh), samples)
}

// prediction is a picture of the mean of the heads' softmaxes: the classes' colours mixed by probability.
func prediction(ctx context.Context, heads []erm.Theta) (plot.Plotter, error) {
	const n = 90
	var rows []float32
	for i := range n * n {
		rows = append(rows, float32(-edge+2*edge*(float64(i%n)+0.5)/n), float32(edge-2*edge*(float64(i/n)+0.5)/n))
	}
	p, err := metric.Predict(ctx, heads, rows, 0)
	if err != nil {
		return nil, err
	}
	img := image.NewRGBA(image.Rect(0, 0, n, n))
	for i := range n * n {
		var rgb [3]float64
		for c, v := range p.Row(i) {
			for k, w := range []uint8{palette[c].R, palette[c].G, palette[c].B} {
				rgb[k] += v * float64(w)
			}
		}
		img.SetRGBA(i%n, i/n, color.RGBA{uint8(rgb[0]), uint8(rgb[1]), uint8(rgb[2]), 255})
	}
	return plotter.NewImage(img, -edge, -edge, edge, edge), nil
}

// boundaries are the lines where a head holds two classes for equally probable and the third for less.
func boundaries(heads []erm.Theta) []plot.Plotter {
	var out []plot.Plotter
	for _, t := range heads {
		logit := func(x, y float64, c int) float64 {
			return t.W[c]*x + t.W[t.C+c]*y + t.W[2*t.C+c]
		}
		for i := range classes {
			j, k := (i+1)%classes, (i+2)%classes
			a, b, d := t.W[i]-t.W[j], t.W[t.C+i]-t.W[t.C+j], t.W[2*t.C+i]-t.W[2*t.C+j]
			norm := math.Hypot(a, b)
			if norm == 0 {
				continue
			}
			var line plotter.XYs
			for s := -2 * edge; s <= 2*edge; s += 0.02 {
				x, y := -a*d/(norm*norm)-b/norm*s, -b*d/(norm*norm)+a/norm*s
				if math.Abs(x) < edge && math.Abs(y) < edge && logit(x, y, i) >= logit(x, y, k) {
					line = append(line, plotter.XY{X: x, Y: y})
				}
			}
			if len(line) < 2 {
				continue
			}
			out = append(out, &plotter.Line{
				XYs:       plotter.XYs{line[0], line[len(line)-1]}, // the part kept is one piece
				LineStyle: draw.LineStyle{Color: color.RGBA{80, 80, 80, 160}, Width: vg.Points(0.7)},
			})
		}
	}
	return out
}

// scatter shows points in the colour of their most probable class; a radius of 0 makes the area the mass.
func scatter(s *point.Set, radius float64) plot.Plotter {
	_, labels := s.Labelled()
	xys := make(plotter.XYs, s.N)
	for i := range xys {
		xys[i] = plotter.XY{X: float64(s.Row(i)[0]), Y: float64(s.Row(i)[1])}
	}
	shapes := []draw.GlyphDrawer{draw.CircleGlyph{}, draw.BoxGlyph{}, draw.PyramidGlyph{}}
	if radius == 0 {
		shapes = []draw.GlyphDrawer{draw.RingGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}}
	}
	return &plotter.Scatter{XYs: xys, GlyphStyleFunc: func(i int) draw.GlyphStyle {
		r := radius
		if r == 0 {
			r = 2.6 * math.Sqrt(float64(s.W[i]))
		}
		return draw.GlyphStyle{Color: palette[labels[i]], Shape: shapes[labels[i]], Radius: vg.Points(r)}
	}}
}

func panel(title string, content ...plot.Plotter) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Title.TextStyle.Font = font.Font{Typeface: "Liberation", Variant: "Sans", Size: 10}
	p.Title.Padding = vg.Points(4)
	p.Add(content...)
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = -edge, edge, -edge, edge
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Tick.Marker = plot.ConstantTicks{}
		a.Padding = 0
	}
	return p
}

func save(path string, panels []*plot.Plot) error {
	const side, height = 1.9 * vg.Inch, 2.1 * vg.Inch
	c, err := draw.NewFormattedCanvas(side*vg.Length(len(panels)), height, strings.TrimPrefix(filepath.Ext(path), "."))
	if err != nil {
		return err
	}
	tiles := draw.Tiles{Rows: 1, Cols: len(panels), PadX: vg.Points(8), PadLeft: vg.Points(4), PadRight: vg.Points(4), PadTop: vg.Points(4), PadBottom: vg.Points(4)}
	canvas := draw.New(c)
	canvas.SetColor(color.White)
	canvas.Fill(canvas.Rectangle.Path())
	for i, p := range panels {
		p.Draw(tiles.At(canvas, i, 0))
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := c.WriteTo(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
