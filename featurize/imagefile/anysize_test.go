package imagefile

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/must"
)

// pixelClassifier returns a classifier of images whose samples are its pixels: what a graph before
// it does to them is then seen.
func pixelClassifier(t *testing.T, h, w, ch int, resize Resize) *onnx.Model {
	t.Helper()
	b := build.New("classifier")
	x := b.Input("images", onnx.Uint8, "n", h, w, ch)
	b.Output("probabilities", b.Cast(b.Reshape(x, -1, h*w*ch), onnx.Float32))
	m := must.Get(b.Model())(t)
	must.Do(t, (models.Manifest{Kind: models.KindClassifier, C: h * w * ch,
		Resize: string(resize)}).Write(m))
	return m
}

// unreadOf returns the names of the initializers that no node reads.
func unreadOf(g *onnx.Graph) (names []string) {
	for name := range g.Initializers {
		if !slices.ContainsFunc(g.Nodes, func(n *onnx.Node) bool { return slices.Contains(n.Reads(), name) }) {
			names = append(names, name)
		}
	}
	return names
}

// The graph of a classifier of images of any size has the pixels of [Fit.Pixels], for every way to
// resize, larger and smaller, flat and tall; [models.FixedSize] takes it away again.
func TestAnySizeIsFit(t *testing.T) {
	eng := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	random := rand.New(rand.NewPCG(1, 2))
	for _, resize := range []Resize{Stretch, Crop, Pad, "crop:0.875", "crop:0.1"} {
		for _, c := range []struct{ h, w, toH, toW, ch int }{
			{24, 24, 24, 24, 3}, {57, 91, 24, 24, 3}, {91, 57, 24, 32, 3}, {7, 5, 24, 24, 3},
			{24, 61, 24, 24, 1},
			{1, 90, 16, 16, 3}, {200, 150, 16, 24, 3},
		} {
			fixed := pixelClassifier(t, c.toH, c.toW, c.ch, resize)
			before := maps.Clone(fixed.Metadata)
			m := must.Get(models.AnySize(fixed))(t)
			if !maps.Equal(fixed.Metadata, before) {
				t.Fatalf("the classifier of one size has the metadata %v; before %v", fixed.Metadata, before)
			}
			if n := unreadOf(m.Graph); n != nil {
				t.Errorf("%s: no node reads %q", resize, n)
			}
			f := must.Get(models.ReadManifest(m))(t)
			behind := must.Get(models.FixedSize(m, f))(t)
			fit, err := FitOf(behind.Graph.Inputs[0], f)
			if want := (Fit{c.toH, c.toW, c.ch, resize}); err != nil || fit != want {
				t.Fatalf("fit %v, %v; want %v", fit, err, want)
			}
			s := must.Get(eng.Load(m))(t)
			pix := make([]uint8, c.h*c.w*c.ch)
			for i := range pix { // edges, as overshooting is cut off at 0 and 255
				pix[i] = []uint8{0, 255, uint8(random.IntN(256))}[random.IntN(3)]
			}
			out := must.Get(engine.Eval(s,
				map[string]*onnx.Tensor{"images": onnx.NewTensor(pix, 1, c.h, c.w, c.ch)}, "probabilities"))(t)
			want := make([]uint8, fit.Size())
			fit.Pixels(Raw(pix, c.h, c.w, c.ch), want)
			for i, v := range out["probabilities"].F32() {
				if v != float32(want[i]) {
					t.Fatalf("%s %v: pixel %d is %v; want %d", resize, c, i, v, want[i])
				}
			}
			must.Do(t, s.Close())
			s = must.Get(eng.Load(behind))(t)
			same := must.Get(engine.Eval(s,
				map[string]*onnx.Tensor{"images": onnx.NewTensor(want, 1, c.toH, c.toW, c.ch)},
				"probabilities"))(t)
			for i, v := range same["probabilities"].F32() {
				if v != float32(want[i]) {
					t.Fatalf("%s %v: without its resizing, pixel %d is %v; want %d as it is", resize,
						c, i, v, want[i])
				}
			}
			must.Do(t, s.Close())
		}
	}
}
