package extractor

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fmp/featurize/dataset"
	"fmp/models"
	"fmp/onnx"
	"fmp/onnx/build"
	"fmp/onnx/engine/ort/orttest"
	"fmp/onnx/must"
)

func images(n, h, w, ch int) *dataset.Images {
	im := &dataset.Images{N: n, H: h, W: w, Ch: ch, Pix: make([]uint8, n*h*w*ch)}
	for i := range im.Pix {
		im.Pix[i] = uint8(i*37 + i/7)
	}
	return im
}

// identity is a model whose features are its input, pooled by the extractor.
func identity(t *testing.T, d onnx.DType, dims ...any) *onnx.Model {
	t.Helper()
	b := build.New("identity")
	v := b.Input("pixels", d, dims...)
	if d != onnx.Float32 {
		v = b.Cast(v, onnx.Float32)
	}
	b.Output("maps", v)
	return must.Get(b.Model())(t)
}

func TestLayoutsChannelsAndScale(t *testing.T) {
	eng := orttest.New(t)
	im := images(5, 6, 4, 3)
	mean := func(i, c int) float64 { // of channel c of image i, 0..1
		var s float64
		for k := range 24 {
			s += float64(im.At(i)[3*k+c])
		}
		return s / 24 / 255
	}
	grey := func(i, _ int) float64 {
		var s float64
		for k := range 24 {
			p := im.At(i)[3*k:]
			s += math.Round(.299*float64(p[0]) + .587*float64(p[1]) + .114*float64(p[2]))
		}
		return s / 24 / 255
	}
	for name, c := range map[string]struct {
		model *onnx.Model
		opt   Options
		dx    int
		want  func(i, c int) float64
	}{
		"NCHW":      {identity(t, onnx.Float32, "n", 3, 6, 4), Options{}, 3, mean},
		"NHWC":      {identity(t, onnx.Float32, "n", 6, 4, 3), Options{}, 3, mean},
		"open size": {identity(t, onnx.Float32, "n", 3, "h", "w"), Options{}, 3, mean},
		"given":     {identity(t, onnx.Float32, "n", "a", "b", "c"), Options{Layout: "nhwc"}, 3, mean},
		"fixed":     {identity(t, onnx.Float32, 2, 3, 6, 4), Options{}, 3, mean},
		"small":     {identity(t, onnx.Float32, "n", 3, 6, 4), Options{Batch: 2, Threads: 3}, 3, mean},
		"uint8": {identity(t, onnx.Uint8, "n", 6, 4, 3), Options{}, 3,
			func(i, c int) float64 { return 255 * mean(i, c) }},
		"half":    {identity(t, onnx.Float16, "n", 3, 6, 4), Options{}, 3, mean},
		"to grey": {identity(t, onnx.Float32, "n", 1, 6, 4), Options{}, 1, grey},
		"normalised": {identity(t, onnx.Float32, "n", 3, 6, 4),
			Options{Mean: []float64{.5, .4, .3}, Std: []float64{.25}}, 3,
			func(i, c int) float64 { return (mean(i, c) - []float64{.5, .4, .3}[c]) / .25 }},
	} {
		t.Run(name, func(t *testing.T) {
			x := must.Get(New(eng, c.model, models.Manifest{}, c.opt, *im))(t)
			defer x.Close()
			if x.Dx() != c.dx {
				t.Fatalf("dx %d; want %d", x.Dx(), c.dx)
			}
			got := must.Get(x.Features(context.Background(), im, nil))(t)
			for i := range im.N {
				for k := range c.dx {
					if g, w := float64(got[i*c.dx+k]),
						c.want(i, k); math.Abs(g-w) > 1e-4*(1+math.Abs(w)) {
						t.Errorf("image %d feature %d: %v; want %v", i, k, g, w)
					}
				}
			}
		})
	}
}

// shaped is a model whose features are its NCHW input's pixels as a map with the channels last, or
// as tokens, in float32 or float16.
func shaped(t *testing.T, tokens, half bool) *onnx.Model {
	t.Helper()
	b := build.New("shaped")
	v := b.Transpose(b.Input("pixels", onnx.Float32, "n", 3, 6, 4), 0, 2, 3, 1)
	if tokens {
		v = b.Reshape(v, 0, 24, 3)
	} else {
		v = b.Transpose(v, 0, 3, 1, 2)
	}
	if half {
		v = b.Cast(v, onnx.Float16)
	}
	b.Output("features", v)
	return must.Get(b.Model())(t)
}

func TestPoolingAndElementTypesAgree(t *testing.T) {
	eng := orttest.New(t)
	im := images(3, 6, 4, 3)
	var first []float32
	for _, tokens := range []bool{false, true} {
		for _, half := range []bool{false, true} {
			x := must.Get(New(eng, shaped(t, tokens, half), models.Manifest{}, Options{}, *im))(t)
			got, err := x.Features(context.Background(), im, nil)
			x.Close()
			over := map[bool]string{true: "averaged over 24 tokens", false: "averaged over 6 x 4 pixels"}[tokens]
			if notes := x.Notes(); err != nil || len(got) != 9 || !strings.Contains(notes[0], over) {
				t.Fatalf("tokens %v, float16 %v: %d numbers, %v, notes %q", tokens, half, len(got), err, notes)
			}
			if first == nil {
				first = got
			}
			for i := range got {
				if math.Abs(float64(got[i]-first[i])) > 1e-3 {
					t.Errorf("tokens %v, float16 %v: %v; want %v", tokens, half, got, first)
					break
				}
			}
		}
	}
}

// TestMapLayout: a map whose channels are elsewhere than the input's is refused where the images'
// proportions tell, and what is averaged over is told.
func TestMapLayout(t *testing.T) {
	eng := orttest.New(t)
	for name, c := range map[string]struct {
		dims, perm, want []int // of the input, of the output's axes; pixels averaged over, none where refused
	}{
		"NCHW":                {[]int{3, 24, 40}, []int{0, 1, 2, 3}, []int{24, 40}},
		"NHWC":                {[]int{24, 40, 3}, []int{0, 1, 2, 3}, []int{24, 40}},
		"NHWC behind NCHW":    {[]int{3, 24, 40}, []int{0, 2, 3, 1}, nil},
		"NCHW behind NHWC":    {[]int{24, 40, 3}, []int{0, 3, 1, 2}, nil},
		"square, behind NCHW": {[]int{3, 8, 8}, []int{0, 2, 3, 1}, nil},
		"a row less":          {[]int{3, 4, 4}, []int{0, 1, 2, 3}, []int{3, 4}},
		"neither":             {[]int{3, 8, 40}, []int{0, 1, 3, 2}, []int{40, 8}},
	} {
		t.Run(name, func(t *testing.T) {
			b := build.New("maps")
			v := b.Input("x", onnx.Float32, "n", c.dims[0], c.dims[1], c.dims[2])
			if name == "a row less" {
				v = b.Slice(v, 2, 0, 3)
			}
			b.Output("y", b.Transpose(v, c.perm...))
			x, err := New(eng, must.Get(b.Model())(t), models.Manifest{}, Options{}, *images(1, 8, 8, 3))
			if c.want == nil {
				must.Fail(x, err)(t, "extractor.output")
				return
			}
			must.Do(t, err)
			defer x.Close()
			if got, want := x.Layer().Over, fmt.Sprintf("averaged over %d x %d pixels", c.want[0], c.want[1]); got != want {
				t.Errorf("%s; want %s", got, want)
			}
		})
	}
}

func TestGreyImagesIntoColourModelAndResize(t *testing.T) {
	eng := orttest.New(t)
	im := &dataset.Images{N: 2, H: 5, W: 5, Ch: 1, Pix: make([]uint8, 50)}
	for i := range im.Pix {
		im.Pix[i] = 102 // a plain image stays plain at any size
	}
	x := must.Get(New(eng, identity(t, onnx.Float32, "n", 3, 32, 16), models.Manifest{}, Options{}, *im))(t)
	defer x.Close()
	got := must.Get(x.Features(context.Background(), im, nil))(t)
	for _, v := range got {
		if math.Abs(float64(v)-0.4) > 1e-6 {
			t.Errorf("features %v; want 0.4 everywhere", got)
			break
		}
	}
}

func TestSignatureErrors(t *testing.T) {
	two := build.New("two")
	v := two.Input("image", onnx.Float32, "n", 3, 8, 8)
	two.Output("a", two.Relu(v))
	two.Output("b", two.Exp(v))
	twoOut := must.Get(two.Model())(t)
	in2 := build.New("in2")
	in2.Output("y", in2.Add(in2.Input("p", onnx.Float32, "n", 3, 8, 8), in2.Input("q", onnx.Float32, "n", 3, 8, 8)))
	twoIn := must.Get(in2.Model())(t)
	for name, c := range map[string]struct {
		model *onnx.Model
		opt   Options
		want  string
	}{
		"ambiguous layout": {identity(t, onnx.Float32, "n", 3, 5, 3), Options{},
			"say which with extractor.layout"},
		"nothing known": {identity(t, onnx.Float32, "n", "a", "b", "c"), Options{},
			"say which with extractor.layout"},
		"four channels": {identity(t, onnx.Float32, "n", 4, 8, 8), Options{}, "no axis has 1 or 3 channels"},
		"two channels": {identity(t, onnx.Float32, "n", 2, 8, 8), Options{Layout: "NCHW"},
			"1 and 3 are supported"},
		"not an image":   {identity(t, onnx.Float32, "n", 10), Options{}, "4 dimensions"},
		"int64":          {identity(t, onnx.Int64, "n", 3, 8, 8), Options{}, "float32, float16 and uint8"},
		"huge":           {identity(t, onnx.Float32, "n", 3, 100000, 8), Options{}, "pixels a side"},
		"two outputs":    {twoOut, Options{}, "a float32[n, 3, 8, 8], b float32[n, 3, 8, 8]"},
		"no such output": {twoOut, Options{Output: "c"}, `"c"`},
		"two inputs":     {twoIn, Options{}, "p, q"},
		"no such input":  {twoOut, Options{Output: "a", Input: "x"}, `"x"`},
		"layout":         {twoOut, Options{Output: "a", Layout: "CHW"}, "auto, nchw and nhwc"},
		"batch":          {twoOut, Options{Output: "a", Batch: 70000}, "1 to 65536, or 0 for as many as 512 MB hold"},
		"zero std":       {twoOut, Options{Output: "a", Std: []float64{0}}, "std"},
		"NaN mean":       {twoOut, Options{Output: "a", Mean: []float64{math.NaN()}}, "mean"},
		"two means":      {twoOut, Options{Output: "a", Mean: []float64{1, 2}}, "mean"},
		"side":           {twoOut, Options{Output: "a", Side: 9}, "leave side out"},
	} {
		if err := c.opt.check(); err != nil {
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: error %v; want one with %q", name, err, c.want)
			}
			continue
		}
		must.Fail(read(c.model, c.opt, 3))(t, c.want, name)
	}
}

// classifier is convolution, pooling, flatten and a linear layer, then a softmax where asked for.
func classifier(t *testing.T, soft bool, out string) *onnx.Model {
	t.Helper()
	b := build.New("classifier")
	v := b.Input("image", onnx.Float32, "n", 1, 8, 8)
	k := make([]float32, 4*9)
	for i := range k {
		k[i] = float32(i%5) - 2
	}
	v = b.Relu(b.Op("Conv", []build.Ref{v, b.Param("k", onnx.NewTensor(k, 4, 1, 3, 3))}))
	v = b.Op("Flatten", []build.Ref{b.Op("GlobalAveragePool", []build.Ref{v})})
	w := onnx.ZerosF32(4, 10)
	w.F32()[10] = 1
	v = b.Op("Gemm", []build.Ref{v, b.Param("w", w), b.Param("b", onnx.ZerosF32(10))})
	if soft {
		v = b.Softmax(v, 1)
	}
	b.Output(out, v)
	return must.Get(b.Model())(t)
}

// inBytes stores each value that a node computes in bytes, and reads these in its place.
func inBytes(g *onnx.Graph) {
	g.Initializers["scale"] = onnx.Scalar[float32](0.01)
	g.Initializers["zero"] = onnx.Scalar[uint8](128)
	var nodes []*onnx.Node
	for _, n := range g.Nodes {
		v := n.Outputs[0]
		n.Outputs[0] = v + "/real"
		nodes = append(nodes, n, &onnx.Node{Op: "QuantizeLinear", Name: v + "/store",
			Inputs: []string{v + "/real", "scale", "zero"}, Outputs: []string{v + "/bytes"}},
			&onnx.Node{Op: "DequantizeLinear", Name: v + "/read",
				Inputs: []string{v + "/bytes", "scale", "zero"}, Outputs: []string{v}})
	}
	g.Nodes = nodes
}

// apartBias writes a Gemm of values in bytes as MatMul, its bytes, and Add.
func apartBias(g *onnx.Graph) {
	at := slices.IndexFunc(g.Nodes, func(n *onnx.Node) bool { return n.Op == "Gemm" })
	n := g.Nodes[at]
	n.Op = "MatMul"
	read := g.Nodes[at+2]
	v := read.Outputs[0]
	read.Outputs[0] = v + "/product"
	g.Nodes = slices.Insert(g.Nodes, at+3, &onnx.Node{Op: "Add", Name: v + "/add",
		Inputs: []string{v + "/product", n.Inputs[2]}, Outputs: []string{v}})
	n.Inputs = n.Inputs[:2]
}

func TestPenultimateFeatures(t *testing.T) {
	eng := orttest.New(t)
	im := images(3, 8, 8, 1)
	for _, c := range []struct {
		soft bool
		out  string
		opt  Options
		as   func(*onnx.Graph)
		dx   int
	}{{false, "logits", Options{}, nil, 4}, {true, "probabilities", Options{}, nil, 4},
		{false, "features", Options{}, nil, 10}, {false, "logits", Options{Output: "logits"}, nil, 10},
		{false, "y", Options{Output: "relu"}, nil, 4}, {true, "bytes", Options{}, inBytes, 4},
		{true, "product in bytes", Options{}, func(g *onnx.Graph) { inBytes(g); apartBias(g) }, 4},
		{true, "weights that the network rounds", Options{}, func(g *onnx.Graph) {
			at := slices.IndexFunc(g.Nodes, func(n *onnx.Node) bool { return n.Op == "Gemm" })
			g.Nodes[at].Inputs[1] = "w2"
			g.Nodes = slices.Insert(g.Nodes, 0,
				&onnx.Node{Op: "Identity", Name: "w2", Inputs: []string{"w"}, Outputs: []string{"w2"}})
			inBytes(g)
		}, 4},
		{true, "bytes of onnxruntime's own", Options{}, func(g *onnx.Graph) {
			inBytes(g)
			apartBias(g)
			for _, n := range g.Nodes {
				if isBytes(n) {
					n.Domain = "com.microsoft"
				}
			}
		}, 4},
		{true, "a weight that may be replaced", Options{}, func(g *onnx.Graph) {
			g.AddOptional("k", g.Initializers["k"])
		}, 4}} {
		m := classifier(t, c.soft, c.out)
		m.Opsets["com.microsoft"] = 1
		if c.as != nil {
			c.as(m.Graph)
		}
		x, err := New(eng, m, models.Manifest{}, c.opt, *im)
		if err != nil {
			t.Fatalf("%s: %v", c.out, err)
		}
		if x.Dx() != c.dx {
			t.Errorf("%s: dx %d; want %d (%q)", c.out, x.Dx(), c.dx, x.Notes())
		}
		if m, _ := x.Client(nil, nil); len(m.Graph.Optional) > 0 {
			t.Errorf("%s: inputs besides the images are left: %v", c.out, m.Graph.Optional)
		}
		x.Close()
	}
}

func TestManifestIsHeeded(t *testing.T) {
	eng := orttest.New(t)
	im := images(2, 4, 4, 1)
	m := identity(t, onnx.Float32, "n", 1, 4, 4)
	must.Fail(New(eng, m, models.Manifest{Kind: models.KindPredictor}, Options{}, *im))(t, "predictor",
		"a predictor as extractor")
	must.Fail(New(eng, m, models.Manifest{Kind: models.KindExtractor, Dx: 7}, Options{}, *im))(t,
		"dx 7", "another dx")
	a := must.Get(New(eng, m, models.Manifest{Mean: []float32{.5}, Std: []float32{.25}}, Options{}, *im))(t)
	defer a.Close()
	b := must.Get(New(eng, m, models.Manifest{}, Options{Mean: []float64{.5}, Std: []float64{.25}}, *im))(t)
	defer b.Close()
	fa, _ := a.Features(context.Background(), im, nil)
	fb, _ := b.Features(context.Background(), im, nil)
	if !slices.Equal(fa, fb) || a.Digest() != b.Digest() {
		t.Error("mean and std from the manifest and from options differ")
	}
	for _, half := range []Options{{Mean: []float64{.5}}, {Std: []float64{2}}, {Std: []float64{2}, Scale: Scale255}} {
		must.Fail(New(eng, m, models.Manifest{}, half, *im))(t, "give both", half)
	}
}

func TestSidecar(t *testing.T) {
	dir := t.TempDir()
	model := filepath.Join(dir, "net.onnx")
	if o, p, err := Sidecar(model); err != nil || p != "" || o.Mean != nil {
		t.Errorf("none: %+v %q %v", o, p, err)
	}
	write := func(name, text string) {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	write("net.yaml", "mean: [0.5]\nstd: [0.25]\nlayout: NHWC\noutput: pool\nside: 64\nbatch: 8\n")
	o, _, err := Sidecar(model)
	if err != nil || o.Layout != "NHWC" || o.Std[0] != 0.25 || o.Output != "pool" ||
		o.Side != 64 || o.Batch != 8 {
		t.Errorf("%+v %v", o, err)
	}
	if got, err := (Options{Mean: []float64{0.1}}).over(o); err != nil || got.Mean[0] != 0.1 || got.Std[0] != 0.25 {
		t.Errorf("options over the side-car: %+v, %v", got, err)
	}
	for _, bad := range []string{"menn: [1]", "mean: abc", "std: [-1]", "layout: QQ", "a: &a [*a]",
		"mean: [.nan]", "- 1",
		"mean: [1]\n---\nmean: [2]", strings.Repeat("#", maxSidecar+1)} {
		write("net.onnx.yaml", bad)
		if o, _, err := Sidecar(model); err == nil {
			t.Errorf("%.20q: no error, %+v", bad, o)
		}
	}
}

// What an engine says of an operator that it lacks is not enough: the error says what to do.
func TestUnknownOperators(t *testing.T) {
	eng := orttest.New(t)
	m := classifier(t, false, "logits")
	m.Graph.Nodes[0].Op, m.Graph.Nodes[0].Domain = "Blur", "my.layers"
	m.Opsets["my.layers"] = 1
	if _, err := New(eng, m, models.Manifest{}, Options{}, *images(1, 8, 8, 1)); err == nil ||
		!strings.Contains(err.Error(), "my.layers.Blur") ||
		!strings.Contains(err.Error(), "export it with standard operators") {
		t.Errorf("error is %v", err)
	}
}

// TestBatch: small images go through the model 256 at once, large ones in fewer, and what was asked
// for stays.
func TestBatch(t *testing.T) {
	for side, want := range map[int]int{32: 256, 128: 136, 224: 44, 2048: 1} {
		for asked, got := range map[int]int{0: want, 7: 7} {
			x := &Extractor{opt: Options{Batch: asked}}
			if err := x.shape(dataset.Images{H: side, W: side, Ch: 3}); err != nil || x.opt.Batch != got {
				t.Errorf("side %d, %d asked for: %d images a call, %v; want %d", side, asked,
					x.opt.Batch, err, got)
			}
		}
	}
}
