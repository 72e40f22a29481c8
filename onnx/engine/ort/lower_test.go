package ort

import (
	"math"
	"slices"
	"strings"
	"testing"

	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
)

// TestNewerSet: what operator set 28 says more of operators that the runtime has in an older one is
// computed by it, as the set's equations say.
func TestNewerSet(t *testing.T) {
	e := newEngine(t, Options{Threads: 1})
	x := onnx.NewTensor([]float32{0, 1, 2, 3, 4, 5, 6, 7}, 1, 2, 2, 2)
	rows := onnx.NewTensor([]float32{0, 1, 2, 3, 4, 5}, 2, 3)
	for _, c := range []struct {
		name string
		node onnx.Node
		in   []*onnx.Tensor
		want []float32
	}{
		{"depth first", onnx.Node{Op: "SpaceToDepth",
			Attrs: []onnx.Attr{onnx.IntAttr("blocksize", 2), onnx.StrAttr("mode", "DCR")}},
			[]*onnx.Tensor{x}, []float32{0, 4, 1, 5, 2, 6, 3, 7}},
		{"columns first", onnx.Node{Op: "SpaceToDepth",
			Attrs: []onnx.Attr{onnx.IntAttr("blocksize", 2), onnx.StrAttr("mode", "CRD")}},
			[]*onnx.Tensor{x}, []float32{0, 1, 2, 3, 4, 5, 6, 7}},
		{"a length of 0", onnx.Node{Op: "ReverseSequence",
			Attrs: []onnx.Attr{onnx.IntAttr("time_axis", 1), onnx.IntAttr("batch_axis", 0)}},
			[]*onnx.Tensor{rows, onnx.Vector[int64](0, 3)}, []float32{0, 1, 2, 5, 4, 3}},
		{"remainders of floats", onnx.Node{Op: "Mod"},
			[]*onnx.Tensor{onnx.NewTensor([]float32{-4.5, 4.5, -4, 5, -1, 7}, 2, 3),
				onnx.Vector[float32](2, -2, float32(math.Inf(1)))},
			[]float32{1.5, -1.5, float32(math.Inf(1)), 1, -1, 7}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, feeds := modeltest.OneNode(&c.node, 28, c.in, 1, onnx.Known, nil)
			m.IR = 13
			got := must.Get(engine.Eval(open(t, e, m), feeds))(t)["y0"].F32()
			if !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

// TestLocale: a StringNormalizer that names no locale runs on a system without en_US.
func TestLocale(t *testing.T) {
	m := onnx.NewModel(modeltest.Graph("x:string[2]", "y:string", nil, modeltest.Node(
		"StringNormalizer", "x", "y", onnx.StrAttr("case_change_action", "UPPER"))))
	m.IR, m.Opsets[""] = 8, 17
	got := must.Get(engine.Eval(open(t, newEngine(t, Options{Threads: 1}), m),
		map[string]*onnx.Tensor{"x": onnx.Vector("oak", "Öl")}))(t)
	if want := []string{"OAK", "ÖL"}; !slices.Equal(got["y"].Data.([]string), want) {
		t.Errorf("%q, want %q", got["y"].Data, want)
	}
}

// TestPooling: pools are computed as the standard says behind a padding, within a branch, and where
// ceil_mode reaches beyond the padding.
func TestPooling(t *testing.T) {
	e := newEngine(t, Options{Threads: 1})
	// 16 channels, of which the runtime makes blocks
	dims := []onnx.Dim{onnx.Known(1), onnx.Known(16), onnx.Known(3), onnx.Known(3)}
	ceil, include := onnx.IntAttr("ceil_mode", 1), onnx.IntAttr("count_include_pad", 1)
	pad := &onnx.Node{Name: "pad", Op: "Pad", Inputs: []string{"x", "ends"}, Outputs: []string{"padded"}}
	pool := func(op, in string, side int, attrs ...onnx.Attr) *onnx.Node {
		return &onnx.Node{Name: "pool", Op: op, Inputs: []string{in}, Outputs: []string{"y"}, Attrs: append(
			attrs, onnx.IntsAttr("kernel_shape", side, side), onnx.IntsAttr("strides", 2, 2))}
	}
	branch := func(name string, nodes ...*onnx.Node) onnx.Attr {
		return onnx.Attr{Name: name, Kind: onnx.AttrGraph, Graph: &onnx.Graph{Name: name, Nodes: nodes,
			Outputs: []onnx.ValueInfo{{Name: "y", DType: onnx.Float32, Shape: dims}}}}
	}
	either := func(nodes ...*onnx.Node) []*onnx.Node {
		return []*onnx.Node{{Name: "either", Op: "If", Inputs: []string{"yes"}, Outputs: []string{"z"},
			Attrs: []onnx.Attr{branch("then_branch", nodes...), branch("else_branch", nodes...)}},
			{Name: "same", Op: "Identity", Inputs: []string{"z"}, Outputs: []string{"y"}}}
	}
	model := func(nodes ...*onnx.Node) *onnx.Model {
		return &onnx.Model{IR: 8, Opsets: map[string]int64{"": 17}, Graph: &onnx.Graph{Name: "pools",
			Inputs: []onnx.ValueInfo{{Name: "x", DType: onnx.Float32, Shape: dims},
				{Name: "yes", DType: onnx.Bool, Shape: []onnx.Dim{}}},
			Outputs:      []onnx.ValueInfo{{Name: "y", DType: onnx.Float32}},
			Initializers: map[string]*onnx.Tensor{"ends": onnx.Vector[int64](0, 0, 0, 0, 0, 0, 1, 1)},
			Nodes:        nodes}}
	}
	same := onnx.StrAttr("auto_pad", "SAME_UPPER")
	for name, c := range map[string]struct {
		pool *onnx.Node
		want string
	}{
		"no padding": {pool("AveragePool", "v", 2, ceil, include), ""},
		"padding": {pool("AveragePool", "v", 2, ceil, include, onnx.IntsAttr("pads", 0, 0, 1, 1)),
			"export the model in that set"},
		"padding by name": {pool("AveragePool", "v", 2, ceil, include, same),
			"export the model in that set"},
	} {
		foreign := model(&onnx.Node{Name: "gelu", Op: "Gelu", Domain: "com.microsoft",
			Inputs: []string{"x"}, Outputs: []string{"v"}}, c.pool)
		foreign.Opsets["com.microsoft"] = 1
		if m, err := lower(foreign); (err == nil) != (c.want == "") ||
			err != nil && !strings.Contains(err.Error(), c.want) || err == nil && overcounts(m.Graph) {
			t.Errorf("%s: error is %v; want %q", name, err, c.want)
		}
	}
	for name, c := range map[string]struct {
		nodes []*onnx.Node
		want  []float32
	}{
		"maximum behind a Pad": {[]*onnx.Node{pad, pool("MaxPool", "padded", 2)}, []float32{-1, 0, 0, 0}},
		"in a branch":          {either(pad, pool("MaxPool", "padded", 2)), []float32{-1, 0, 0, 0}},
		"mean behind a Pad": {[]*onnx.Node{pad, pool("AveragePool", "padded", 3, ceil)},
			[]float32{-5, -3, -4, -2.25}},
		"beyond the end": {[]*onnx.Node{pool("AveragePool", "x", 2, ceil, include)},
			[]float32{-3, -4.5, -7.5, -9}},
		"beyond a padding": {[]*onnx.Node{pool("AveragePool", "x", 3, ceil, include,
			onnx.IntsAttr("pads", 1, 1, 0, 0))}, []float32{-4. / 3, -16. / 6, -4, -7}},
		"beyond, in a branch": {either(pool("AveragePool", "x", 2, ceil, include)),
			[]float32{-3, -4.5, -7.5, -9}},
	} {
		t.Run(name, func(t *testing.T) {
			x := onnx.NewTensor(slices.Repeat([]float32{-1, -2, -3, -4, -5, -6, -7, -8, -9}, 16), 1, 16, 3, 3)
			got := must.Get(engine.Eval(open(t, e, model(c.nodes...)),
				map[string]*onnx.Tensor{"x": x, "yes": onnx.NewTensor([]bool{true})}))(t)["y"].F32()
			want := slices.Repeat(c.want, 16)
			if !slices.EqualFunc(got, want, func(a, b float32) bool { return math.Abs(float64(a-b)) < 1e-6 }) {
				t.Errorf("%v, want %v", got, want)
			}
		})
	}
}
