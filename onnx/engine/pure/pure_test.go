package pure_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"fmp/onnx"
	"fmp/onnx/alloctest"
	"fmp/onnx/build"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
)

func newPure(t testing.TB, threads int) engine.Engine {
	t.Helper()
	return must.Get(pure.New(engine.Options{Threads: threads}))(t)
}

func modelOf(t testing.TB, f func(b *build.Builder)) *onnx.Model {
	t.Helper()
	b := build.New("test")
	f(b)
	return must.Get(b.Model())(t)
}

// opModel is a model of one node whose inputs are fed; nil inputs are left out.
func opModel(op string, opset int64, in []*onnx.Tensor, outputs int,
	attrs ...onnx.Attr) (*onnx.Model, map[string]*onnx.Tensor) {
	return modeltest.OneNode(&onnx.Node{Op: op, Attrs: attrs}, opset, in, outputs, modeltest.Open,
		func(i int) bool { // the ONNX Runtime wants to know sizes beforehand
			return (op == "Resize" || op == "Upsample") && i > 0
		})
}

// outcome is the shape and the elements of the first output of a model of one node, or why it is
// not loaded or does not run, which may be no defect of a kernel.
func outcome(t testing.TB, op string, opset int64, in []*onnx.Tensor, attrs ...onnx.Attr) string {
	t.Helper()
	m, feeds := opModel(op, opset, in, max(1, outputs[op]), attrs...)
	s, err := newPure(t, 1).Load(m)
	if err == nil {
		defer s.Close()
		var out map[string]*onnx.Tensor
		if out, err = engine.Eval(s, feeds); err == nil {
			return fmt.Sprint(out["y0"].Shape, " ", out["y0"].Data)
		}
	}
	if strings.Contains(err.Error(), "kernel failed") {
		t.Error(err)
	}
	return err.Error()
}

// outputs are those of operators that have several.
var outputs = map[string]int{"StringSplit": 2, "TopK": 2, "Split": 3}

func load(t testing.TB, m *onnx.Model) engine.Session {
	t.Helper()
	return must.Get(newPure(t, 2).Load(m))(t)
}

func eval(t testing.TB, s engine.Session, feeds map[string]*onnx.Tensor) map[string]*onnx.Tensor {
	t.Helper()
	return must.Get(engine.Eval(s, feeds))(t)
}

func want(t *testing.T, got *onnx.Tensor, want ...float32) {
	t.Helper()
	if got.Len() != len(want) {
		t.Fatalf("%v elements, want %v", got, want)
	}
	for i, w := range want {
		if math.Abs(float64(got.F32()[i]-w)) > 1e-6 {
			t.Fatalf("got %v, want %v", got.F32(), want)
		}
	}
}

// The same value read twice by one node, values read after a view of them was changed, and outputs
// that share a buffer with an input or with each other.
func TestSharedBuffers(t *testing.T) {
	m := modelOf(t, func(b *build.Builder) {
		x := b.Input("x", onnx.Float32, "n")
		twice := b.Add(x, x)                         // 2x
		view := b.Op("Identity", []build.Ref{twice}) // shares its buffer
		square := b.Mul(twice, twice)                // 4x²
		neg := b.Op("Neg", []build.Ref{view})
		b.Output("view", view)
		b.Output("square", square)
		b.Output("neg", neg)
		b.Output("fed", b.Op("Identity", []build.Ref{x}))
	})
	s := load(t, m)
	defer s.Close()
	x := onnx.Vector[float32](1, 2, 3)
	out := eval(t, s, map[string]*onnx.Tensor{"x": x})
	want(t, out["view"], 2, 4, 6)
	want(t, out["square"], 4, 16, 36)
	want(t, out["neg"], -2, -4, -6)
	want(t, out["fed"], 1, 2, 3)
	out["fed"].F32()[0], out["view"].F32()[0] = 9, 9
	want(t, x, 1, 2, 3)
	// What an earlier run gave away is not written to by a later one.
	next := eval(t, s, map[string]*onnx.Tensor{"x": onnx.Vector[float32](5, 5, 5)})
	want(t, out["square"], 4, 16, 36)
	want(t, next["square"], 100, 100, 100)
}

// A graph's sizes may change from run to run, and fetched tensors are written in place.
func TestDynamicSizesAndInPlaceFetch(t *testing.T) {
	m := modelOf(t, func(b *build.Builder) {
		x := b.Input("x", onnx.Float32, "n", 3)
		b.Output("y", b.Relu(b.Add(x, b.Const(onnx.Vector[float32](1, 0, -1)))))
	})
	s := load(t, m)
	defer s.Close()
	for _, n := range []int{4, 1, 9, 0, 2} {
		x := onnx.ZerosF32(n, 3)
		y := onnx.ZerosF32(n, 3)
		for i := range x.F32() {
			x.F32()[i], y.F32()[i] = float32(i), -1
		}
		must.Do(t, s.Run(t.Context(), map[string]*onnx.Tensor{"x": x}, map[string]*onnx.Tensor{"y": y}))
		for i, v := range y.F32() {
			if w := float32(i) + []float32{1, 0, -1}[i%3]; v != w {
				t.Fatalf("n = %d: y[%d] = %v, want %v", n, i, v, w)
			}
		}
	}
	wrong := map[string]*onnx.Tensor{"y": onnx.ZerosF32(3, 3)}
	must.Fail(s.Run(t.Context(), map[string]*onnx.Tensor{"x": onnx.ZerosF32(2, 3)}, wrong))(t, "",
		"an output tensor of another shape was taken")
}

// Runs reuse their buffers: a second run of the same size allocates next to nothing.
func TestBuffersAreReused(t *testing.T) {
	m := modelOf(t, func(b *build.Builder) {
		x := b.Input("x", onnx.Float32, "n")
		v := x
		for range 20 {
			v = b.Op("Sin", []build.Ref{b.Add(v, x)})
		}
		b.Output("y", v)
	})
	s := load(t, m)
	defer s.Close()
	feeds := map[string]*onnx.Tensor{"x": onnx.ZerosF32(1 << 16)}
	fetch := map[string]*onnx.Tensor{"y": onnx.ZerosF32(1 << 16)}
	must.Do(t, s.Run(t.Context(), feeds, fetch))
	alloctest.AtMost(t, 1<<16, func() {
		for range 5 { // in which one value more a run, of 256 KiB, would be over the bound
			must.Do(t, s.Run(t.Context(), feeds, fetch))
		}
	})
}

// What onnx-go mangles comes out right all the same: optional inputs and outputs left out,
// booleans, bytes, empty tensors, scalars, operators without inputs.
func TestDecoderTraps(t *testing.T) {
	node := modeltest.Node
	m := onnx.NewModel(modeltest.Graph("x:float32[n,4]", "clipped:float32[n,4] inverse:float32[n,1] "+
		"chosen:float32[n,4] pooled:float32[1,1,m] sum:float32[n,4] joined:float32[n,4] bytes:float32[2]",
		map[string]*onnx.Tensor{
			"high": onnx.Scalar[float32](0.5), "ones": onnx.Vector[float32](1, 1, 1, 1),
			"mask": onnx.Vector(true, false, true, false),
			"none": onnx.ZerosF32(0, 4), "u8": onnx.Vector[uint8](7, 200),
			"shape": onnx.Vector[int64](1, 1, -1),
		},
		// out of order: the producer of "one" comes last
		node("Add", "x one", "sum"),
		node("Clip", "x _ high", "clipped"),
		node("LayerNormalization", "x ones", "normal _ inverse"),
		node("Where", "mask x normal", "chosen"),
		node("Reshape", "x shape", "flat"),
		node("MaxPool", "flat", "pooled _", onnx.IntsAttr("kernel_shape", 2)),
		node("Concat", "none x", "joined", onnx.IntAttr("axis", 0)),
		node("Cast", "u8", "bytes", onnx.IntAttr("to", int(onnx.Float32))),
		node("Constant", "", "one", onnx.FloatAttr("value_float", 1))))
	out := modeltest.Eval(t, newPure(t, 2), m, map[string]*onnx.Tensor{"x": onnx.NewTensor([]float32{-1, 0, 1, 2}, 1, 4)})
	inv := float32(1 / math.Sqrt(1.25+1e-5))
	want(t, out["clipped"], -1, 0, 0.5, 0.5)
	want(t, out["inverse"], inv)
	want(t, out["chosen"], -1, -0.5*inv, 1, 1.5*inv)
	want(t, out["pooled"], 0, 1, 2)
	want(t, out["sum"], 0, 1, 2, 3)
	want(t, out["joined"], -1, 0, 1, 2)
	want(t, out["bytes"], 7, 200)
}

func TestRefusals(t *testing.T) {
	one := func(n *onnx.Node, opset int64) *onnx.Model {
		m := onnx.NewModel(modeltest.Graph("x:float32[n]", "y", nil, n))
		m.Opsets[""] = opset
		return m
	}
	node := modeltest.Node
	bytes := func(n *onnx.Node) *onnx.Model {
		m := onnx.NewModel(modeltest.Graph("x:uint8[n] scale:float32[]", "y", nil, n))
		m.Opsets[""] = 17
		return m
	}
	foreign := node("Relu", "x", "y")
	foreign.Domain = "com.example"
	fused := func(op, in string, attrs ...onnx.Attr) *onnx.Model {
		m := one(node(op, in, "y", attrs...), 17)
		m.Graph.Nodes[0].Domain, m.Opsets["com.microsoft"] = "com.microsoft", 1
		return m
	}
	const fault, other = "The model is at fault", "Run it on the ONNX Runtime"
	for _, c := range []struct {
		name string
		m    *onnx.Model
		says []string
	}{
		{"unknown operator", one(node("Frobnicate", "x", "y"), 17),
			[]string{`"Frobnicate y"`, "(Frobnicate)", "not supported", fault}},
		{"other domain", one(foreign, 17), []string{"com.example.Relu", "domain", other}},
		{"future opset", one(node("Relu", "x", "y"), 99), []string{"opset 99", "1 to 28"}},
		{"too old an opset", one(node("Gelu", "x", "y"), 17), []string{"Gelu", "20-28", "17", fault}},
		{"a norm before its set", one(node("LayerNormalization", "x x", "y"), 16), []string{"17-28", "16", other}},
		{"a norm of the runtime", one(node("SimplifiedLayerNormalization", "x x", "y"), 17), []string{other}},
		{"a part of a node", fused("FusedConv", "x x", onnx.IntAttr("surprise", 1)),
			[]string{"y/conv", `"surprise"`, other}},
		{"unknown attribute", one(node("Relu", "x", "y", onnx.IntAttr("surprise", 1)), 17),
			[]string{`"surprise"`, fault}},
		{"attribute of another kind", one(node("LeakyRelu", "x", "y", onnx.IntAttr("alpha", 1)), 17),
			[]string{`"alpha"`, "kind", fault}},
		{"window too large", one(node("MaxPool", "x", "y", onnx.IntsAttr("kernel_shape", 1<<20+1)), 17),
			[]string{"each must be 1 to 1048576", other}},
		{"too many inputs", one(node("Relu", "x x", "y"), 17), []string{"2 inputs", "takes 1 (X)", fault}},
		{"too few inputs", one(node("Add", "x", "y"), 17), []string{"1 inputs", "takes 2 (A, B)"}},
		{"element type", one(node("Not", "x", "y"), 17), []string{"float32", fault}},
		{"training", one(node("Dropout", "x", "y mask more"), 17), []string{"3 outputs"}},
		{"subgraph", one(node("If", "x", "y", modeltest.Body("then_branch", &onnx.Graph{})), 17),
			[]string{"If", "bool"}},
		{"no groups", one(node("Conv", "x x", "y", onnx.IntAttr("group", 0)), 17), []string{"group 0: at least 1"}},
		{"transposed, no groups", one(node("ConvTranspose", "x x", "y", onnx.IntAttr("group", 0)), 17),
			[]string{"group 0: at least 1"}},
		{"no groups of bytes", bytes(node("ConvInteger", "x x", "y", onnx.IntAttr("group", 0))),
			[]string{"group 0: at least 1"}},
		{"no groups of quanta", bytes(node("QLinearConv", "x scale x x scale x scale x", "y",
			onnx.IntAttr("group", -1))), []string{"group -1: at least 1"}},
		{"widths below 1", fused("Attention", "x x x", onnx.IntAttr("num_heads", 2),
			onnx.IntsAttr("qkv_hidden_sizes", 8, 8, -8)), []string{"qkv_hidden_sizes is [8 8 -8]"}},
		{"two widths", fused("Attention", "x x x", onnx.IntAttr("num_heads", 2),
			onnx.IntsAttr("qkv_hidden_sizes", 8, 8)), []string{"want 3 numbers"}},
		{"no number of heads", fused("Attention", "x x x"), []string{"num_heads is 0; want 1"}},
		{"a mask of lengths", fused("Attention", "x x x x", onnx.IntAttr("num_heads", 2)),
			[]string{"a mask of one axis"}},
		{"heads below 1", fused("Attention", "x x x", onnx.IntAttr("num_heads", -2)),
			[]string{"num_heads is -2; want 1"}},
		{"a value without its zero point", fused("QLinearConcat", "x x x x", onnx.IntAttr("axis", 0)),
			[]string{"2 inputs after its scale and zero point; want three for each value"}},
		{"a beta alone", fused("FusedGemm", "x x", onnx.StrAttr("activation", "HardSigmoid"),
			onnx.FloatAttr("activation_beta", .9)), []string{"activation_beta without activation_alpha"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := newPure(t, 1).Load(c.m)
			var u *pure.UnsupportedError
			if !errors.As(err, &u) {
				t.Fatalf("Load: %v, want an UnsupportedError", err)
			}
			for _, s := range c.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q does not say %q", err, s)
				}
			}
			if got := pure.Supports(c.m); len(got) != len(u.Nodes) || got[0] != u.Nodes[0] {
				t.Errorf("Supports says %v, Load %v", got, u.Nodes)
			}
		})
	}
	// Broken models are errors too, of no operator's making.
	for name, n := range map[string]*onnx.Node{
		"dangling input": node("Relu", "z", "y"),
		"cycle":          node("Add", "x y", "y"),
		"given twice":    node("Relu", "x", "x"),
		"no output":      node("Relu", "x", "w"),
	} {
		must.Fail(newPure(t, 1).Load(one(n, 17)))(t, "", name)
	}
}

// Mistakes that only show when the model runs give an error that names the node, and leave the
// session usable.
func TestRunErrors(t *testing.T) {
	m := modelOf(t, func(b *build.Builder) {
		x := b.Input("x", onnx.Float32, "n")
		i := b.Input("i", onnx.Int64, "k")
		b.Output("y", b.Op("Gather", []build.Ref{x, i}))
		b.Output("big", b.Op("ConstantOfShape", []build.Ref{i}))
	})
	s := load(t, m)
	defer s.Close()
	x := onnx.Vector[float32](1, 2, 3)
	for name, feeds := range map[string]map[string]*onnx.Tensor{
		"index outside": {"x": x, "i": onnx.Vector[int64](3)},
		"missing":       {"x": x},
		"unknown":       {"x": x, "i": onnx.Vector[int64](1), "z": x},
		"other type":    {"x": x, "i": onnx.Vector[int32](1)},
		"other rank":    {"x": onnx.ZerosF32(2, 2), "i": onnx.Vector[int64](1)},
		"negative size": {"x": x, "i": onnx.Vector[int64](-1)},
		"broken tensor": {"x": {DType: onnx.Float32, Shape: []int{5}, Data: []float32{1}},
			"i": onnx.Vector[int64](1)},
	} {
		must.Fail(engine.Eval(s, feeds))(t, "", name)
	}
	huge := modelOf(t, func(b *build.Builder) {
		b.Output("y", b.Op("ConstantOfShape", []build.Ref{b.Input("shape", onnx.Int64, 4)}))
	})
	h := load(t, huge)
	defer h.Close()
	for _, d := range [][]int64{{1 << 20, 1 << 20, 1, 1}, {1 << 30, 1, 1, 1}, {1 << 62, 4, 1, 1},
		{-1, -1, 1, 1}} {
		must.Fail(engine.Eval(h, map[string]*onnx.Tensor{"shape": onnx.Vector(d...)}))(t, "", d)
	}
	out := eval(t, s, map[string]*onnx.Tensor{"x": x, "i": onnx.Vector[int64](2)})
	want(t, out["y"], 3)
	s.Close()
	must.Fail(engine.Eval(s, map[string]*onnx.Tensor{"x": x, "i": onnx.Vector[int64](2)}))(t, "",
		"a closed session ran")
}

func TestOptions(t *testing.T) {
	for _, o := range []engine.Options{{Threads: -1}, {Threads: pure.MaxThreads + 1}} {
		must.Fail(pure.New(o))(t, "", o)
	}
}

// A zero of one matrix does not hide an infinity of the other, as it would in BLAS.
func TestInfinitiesSurvive(t *testing.T) {
	m := modelOf(t, func(b *build.Builder) {
		b.Output("y", b.MatMul(b.Input("a", onnx.Float32, 1, 2), b.Input("b", onnx.Float32, 2, 2)))
	})
	s := load(t, m)
	defer s.Close()
	inf := float32(math.Inf(1))
	out := eval(t, s, map[string]*onnx.Tensor{"a": onnx.NewTensor([]float32{0, 1}, 1, 2),
		"b": onnx.NewTensor([]float32{inf, 1, 2, 3}, 2, 2)})
	if y := out["y"].F32(); y[0] == y[0] || y[1] != 3 {
		t.Errorf("got %v, want [NaN 3]", y)
	}
}

// Half-precision weights compute as float32 does, rounded once for each operator.
func TestHalfPrecision(t *testing.T) {
	half := func(v ...uint16) *onnx.Tensor {
		return &onnx.Tensor{DType: onnx.Float16, Shape: []int{len(v)}, Data: v}
	}
	m := onnx.NewModel(modeltest.Graph("x:float16[n]", "y:float16 wide:float32 same:float16",
		map[string]*onnx.Tensor{"w": half(0x4000, 0x3800, 0x0001)}, // 2, 0.5, 2^-24
		modeltest.Node("Mul", "x w", "y"),
		modeltest.Node("Cast", "y", "wide", onnx.IntAttr("to", int(onnx.Float32))),
		modeltest.Node("Max", "x", "same")))
	s := load(t, m)
	defer s.Close()
	out := eval(t, s, map[string]*onnx.Tensor{"x": half(0x3c00, 0xc200, 0x3c00)}) // 1, -3, 1
	want(t, out["wide"], 2, -1.5, float32(math.Ldexp(1, -24)))
	if y := out["y"].Data.([]uint16); y[0] != 0x4000 || y[1] != 0xbe00 || y[2] != 1 {
		t.Errorf("y = %#x", y)
	}
	if y := out["same"].Data.([]uint16); y[0] != 0x3c00 || y[1] != 0xc200 {
		t.Errorf("same = %#x", y)
	}
}
