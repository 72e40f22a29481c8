package grad

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime/metrics"
	"slices"
	"strings"
	"testing"

	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
	"fmp/onnx/op"
)

// hostile are sizes, axes and counts that files may hold.
var hostile = []int64{-1 << 31, -7, -1, 0, 1, 2, 7, 1 << 16, 1 << 20, 1 << 28, 1<<31 - 1, 1 << 31, 1 << 40,
	math.MaxInt64, math.MinInt64}

// twist changes one number, list or shape of a model of one node.
func twist(r *rand.Rand, m *onnx.Model) string {
	n, g := m.Graph.Nodes[0], m.Graph
	number := func() int64 { return hostile[r.IntN(len(hostile))] }
	list := func(v []int64) []int64 {
		v = append([]int64{}, v...)
		switch k := r.IntN(4); {
		case k == 0 || len(v) == 0:
			return append(v, number())
		case k == 1:
			return v[:len(v)-1]
		default:
			v[r.IntN(len(v))] = number()
		}
		return v
	}
	switch k := r.IntN(3); {
	case k == 0 && len(g.Inputs) > 0:
		in := &g.Inputs[r.IntN(len(g.Inputs))]
		var sizes []int64
		for _, d := range in.Shape {
			sizes = append(sizes, max(0, int64(d.Size)))
		}
		in.Shape = []onnx.Dim{}
		for _, d := range list(sizes) {
			in.Shape = append(in.Shape, onnx.Known(int(min(max(d, 0), onnx.MaxElements))))
		}
		return fmt.Sprintf("%s %v", in.Name, in.Shape)
	case k == 1 && len(g.Initializers) > 0:
		names := g.InitializerNames()
		name := names[r.IntN(len(names))]
		if v := g.Initializers[name].I64(); v != nil && len(g.Initializers[name].Shape) < 2 {
			if len(g.Initializers[name].Shape) == 0 {
				g.Initializers[name] = onnx.Scalar(number())
			} else {
				g.Initializers[name] = onnx.Vector(list(v)...)
			}
		}
		return fmt.Sprint(name, g.Initializers[name].Data)
	}
	known := op.Last(n.Domain, n.Op, int(m.Opset())).Attrs
	a := onnx.Attr{Name: known[r.IntN(len(known))].Name}
	for i := range known {
		if known[i].Name == a.Name {
			a.Kind = known[i].Kind
		}
	}
	if old, ok := n.Attr(a.Name); ok {
		a = old
	}
	a.Int, a.Ints = number(), list(a.Ints)
	for i := range n.Attrs {
		if n.Attrs[i].Name == a.Name {
			n.Attrs[i] = a
			return fmt.Sprint(a.Name, a.Int, a.Ints)
		}
	}
	if a.Kind == onnx.AttrInt || a.Kind == onnx.AttrInts {
		n.Attrs = append(n.Attrs, a)
	}
	return fmt.Sprint(a.Name, a.Int, a.Ints)
}

// allocated are the bytes that the program has asked for so far.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// TestHostileModels: whatever sizes, axes and counts a small model states, differentiating and
// planning it end with a result or an error, in bounded memory.
func TestHostileModels(t *testing.T) {
	const bound = 1 << 30
	eng := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	var models []func() *onnx.Model
	for _, k := range ruleCases {
		models = append(models, func() *onnx.Model { m, _, _ := k.model(false, 1); return m })
	}
	for _, c := range modeltest.Recurrent() {
		models = append(models, func() *onnx.Model { return onnx.Clone(c.Model()) })
	}
	r := rand.New(rand.NewPCG(3, 5))
	for i := range 4000 {
		m := models[i%len(models)]()
		n := m.Graph.Nodes[0]
		if len(op.Last(n.Domain, n.Op, int(m.Opset())).Attrs) == 0 {
			continue
		}
		name := n.Op
		for range 1 + r.IntN(2) {
			name += " " + twist(r, m)
		}
		name = fmt.Sprint(n.Op, n.Attrs, name)
		func() {
			before := allocated()
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("%.300s: panic: %v", name, p)
				}
				if used := allocated() - before; used > bound {
					t.Errorf("%.300s: %d bytes", name, used)
				}
			}()
			err := Supports(m)
			if err == nil {
				_, err = Build(m, Options{WRT: modeltest.Floats(m)})
			}
			if err != nil && strings.Contains(err.Error(), "the rule failed") {
				t.Errorf("%.300s: %v", name, err)
			}
			if s, err := eng.Load(m); err == nil {
				s.Close()
			}
		}()
	}
}

// TestSizesAndAxesAreChecked: sizes beyond the budget and axes beyond the rank are errors of the
// node, and values without elements have gradients.
func TestSizesAndAxesAreChecked(t *testing.T) {
	for _, c := range []struct{ name, op, in, attrs, want string }{
		{"padding", "AveragePool", "x:float32[1,1,4,4]", "kernel_shape=16777217,2 pads=16777216,0,16777216,0",
			"budget"},
		{"product of padding", "AveragePool", "x:float32[1,1,4,4]",
			"kernel_shape=4097,4097 pads=4096,4096,4096,4096 ceil_mode=1", "budget"},
		{"a large image", "AveragePool", "x:float32[1,3,4096,4096]", "kernel_shape=3,3 pads=1,1,1,1", ""},
		{"positions of a kernel", "Conv", "x:float32[1,1,4] w:float32[1,1,65536]", "pads=65536,0", "budget"},
		{"offsets of a kernel", "DeformConv",
			"x:float32[1,1,h,k] w:float32[1,1,1048576,1048576] o:float32[1,2,4,4]", "", "more than"},
		{"offsets of a window", "DeformConv",
			"x:float32[2,1,8,8] w:float32[1,1,3,3] o:float32[2,18,6,6]", "", ""},
		{"offsets beyond the window", "DeformConv",
			"x:float32[2,1,8,8] w:float32[1,1,3,3] o:float32[2,18,9,9]", "", "positions of the offset"},
		{"offsets without the pads", "DeformConv",
			"x:float32[2,1,8,8] w:float32[1,1,3,3] o:float32[2,18,6,6]", "pads=0,0,4,4", "positions of the offset"},
		{"offsets of another kernel", "DeformConv",
			"x:float32[2,1,8,8] w:float32[1,1,3,3] o:float32[2,18,6,6]", "kernel_shape=5,5", "kernel_shape [5 5]"},
		{"offsets without steps", "DeformConv",
			"x:float32[2,1,8,8] w:float32[1,1,3,3] o:float32[2,18,6,6]", "strides=0,0", "strides [0 0]"},
		{"offsets of no groups", "DeformConv",
			"x:float32[2,1,8,8] w:float32[1,1,3,3] o:float32[2,18,6,6]", "group=0", "group is 0"},
		{"groups of no offsets", "DeformConv",
			"x:float32[2,1,8,8] w:float32[1,1,3,3] o:float32[2,18,6,6]", "offset_group=0", "offset_group 0"},
		{"axis", "RMSNormalization", "x:float32[2,3] w:float32[3]", "axis=7", "axis 7"},
		{"negative axis", "RMSNormalization", "x:float32[2,3] w:float32[3]", "axis=-2000000000",
			"axis -2000000000"},
		{"axes", "MeanVarianceNormalization", "x:float32[2,3,4]", "axes=0,7", "axis 7"},
		{"cells", "RoiAlign", "x:float32[1,1,4,4] r:float32[1,4] b:int64[1]", "output_height=0",
			"output_height is 0"},
		{"numbers of a window", "MaxUnpool", "x:float32[1,1,2,2] i:int64[1,1,2,2] s:int64[4]",
			"kernel_shape=2,2 strides=2", "strides"},
		{"numbers of a padding", "ConvTranspose", "x:float32[1,1,2,2] w:float32[1,1,h,k]",
			"kernel_shape=2,2 output_padding=0 auto_pad=SAME_UPPER", "output_padding"},
		{"starts", "Slice", "x:float32[4] s:int64[1073741824] e:int64[1073741824]", "", "rank"},
		{"matrices without elements", "Det", "x:float32[2,0,0]", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := modeltest.Values(c.in)
			n := &onnx.Node{Name: "n", Op: c.op, Outputs: []string{"y"}, Attrs: modeltest.Attrs(c.op, 23, c.attrs)}
			for _, in := range v {
				n.Inputs = append(n.Inputs, in.Name)
			}
			m := onnx.NewModel(&onnx.Graph{Name: "g", Nodes: []*onnx.Node{n}, Inputs: v,
				Outputs:      []onnx.ValueInfo{{Name: "y", DType: onnx.Float32}},
				Initializers: map[string]*onnx.Tensor{}})
			m.Opsets[""] = 23
			err := Supports(m)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// TestFalseRanks: a file that states a lower rank for a broadcast value than an operand has is not
// believed, of a value within and of an output.
func TestFalseRanks(t *testing.T) {
	node := modeltest.Node
	for _, c := range []struct {
		name, output, stated string
		nodes                []*onnx.Node
	}{
		{"product", "y:float32", "c:float32[3]", []*onnx.Node{node("Mul", "a b", "c"), node("Abs", "c", "y")}},
		{"output", "y:float32[3]", "", []*onnx.Node{node("Mul", "a b", "y")}},
		{"choice", "y:float32[]", "", []*onnx.Node{node("Where", "on b a", "y")}},
		{"expanded", "y:float32[3]", "", []*onnx.Node{node("Expand", "b s", "y")}},
		{"slope", "y:float32[3]", "", []*onnx.Node{node("PRelu", "a b", "y")}},
		{"scalar", "y:float32[]", "", []*onnx.Node{node("PRelu", "a b", "y")}},
		{"a higher rank", "y:float32[1,2,3]", "", []*onnx.Node{node("Mul", "a b", "y")}},
	} {
		m := onnx.NewModel(modeltest.Graph("x:float32[6] s:int64[k] b:float32[2,3] on:bool[]", c.output, nil,
			append([]*onnx.Node{node("Reshape", "x s", "a")}, c.nodes...)...))
		if c.stated != "" {
			m.Graph.Values = modeltest.Values(c.stated)
		}
		if err := Supports(m); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if _, err := Build(m, Options{WRT: []string{"b"}}); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestRuleFails: a rule that panics is an error.
func TestRuleFails(t *testing.T) {
	_, err := (&call{}).apply(func(c *call) []string { return c.cot[:1] })
	must.Fail(err)(t, "the rule failed: runtime error", "")
}

// TestCumProdOfNothing: a gradient without elements has the shape of its value; the ONNX Runtime
// itself ends the process there.
func TestCumProdOfNothing(t *testing.T) {
	m := onnx.NewModel(modeltest.Graph("x:float32[a,b,c,3]", "y:float32",
		map[string]*onnx.Tensor{"k": onnx.Scalar[int64](2)}, modeltest.Node("CumProd", "x k", "y")))
	m.Opsets[""] = 26
	g := must.Get(Build(m, Options{WRT: []string{"x"}}))(t)
	eng := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	x := onnx.ZerosF32(2, 6, 0, 3)
	got := modeltest.Eval(t, eng, g, map[string]*onnx.Tensor{"x": x, "grad_y": x})["grad_x"]
	if !slices.Equal(got.Shape, x.Shape) {
		t.Errorf("the gradient is %v", got)
	}
}
