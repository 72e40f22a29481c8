package pass_test

import (
	"fmt"
	"reflect"
	"runtime"
	"testing"

	"fmp/onnx"
	"fmp/onnx/engine"
	"fmp/onnx/engine/pure"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
	"fmp/onnx/pass"
	_ "fmp/onnx/rare"
)

// upgraded fails unless a model computes the same in a later operator set.
func upgraded(t *testing.T, m *onnx.Model, to int, feeds map[string]*onnx.Tensor) {
	t.Helper()
	e := must.Get(pure.New(engine.Options{Threads: 1}))(t)
	want := modeltest.Eval(t, e, m, feeds)
	must.Do(t, pass.Upgrade(m, to))
	if got := modeltest.Eval(t, e, m, feeds); !reflect.DeepEqual(got, want) {
		t.Errorf("operator set %d: %v, was %v", to, got["y"].Data, want["y"].Data)
	}
}

// TestUpgradeOfDFT: in operator set 17 the axis is an attribute, 1 by default, and from 20 on an
// input, -2 by default.
func TestUpgradeOfDFT(t *testing.T) {
	x := onnx.ZerosF32(1, 3, 4, 1)
	for i := range x.F32() {
		x.F32()[i] = float32(i * i)
	}
	for _, tc := range []struct{ reads, attrs string }{
		{"x", ""}, {"x", "axis=1"}, {"x", "axis=2"}, {"x", "axis=-3 onesided=1"}, {"x length", ""},
		{"x length", "axis=2 inverse=1"},
	} {
		for _, to := range []int{19, 20, onnx.MaxOpset} {
			t.Run(tc.reads+" "+tc.attrs, func(t *testing.T) {
				m := onnx.NewModel(modeltest.Graph("x:float32[1,3,4,1]", "y:float32",
					map[string]*onnx.Tensor{"length": onnx.Scalar[int64](5)},
					modeltest.Node("DFT", tc.reads, "y", modeltest.Attrs("DFT", 17, tc.attrs)...)))
				m.Opsets[""] = 17
				upgraded(t, m, to, map[string]*onnx.Tensor{"x": x})
			})
		}
	}
}

// TestUpgradeWithin: bounds and paddings have the type of a value that a graph within a node makes,
// takes from around it, or is given.
func TestUpgradeWithin(t *testing.T) {
	node, body, graph := modeltest.Node, modeltest.Body, modeltest.Graph
	clip := func(in, out string) *onnx.Node {
		return node("Clip", in, out, onnx.FloatAttr("min", 0), onnx.FloatAttr("max", 6))
	}
	pad := func(in, out string) *onnx.Node {
		return node("Pad", in, out, onnx.IntsAttr("pads", 0, 1), onnx.FloatAttr("value", 2))
	}
	turn := graph("i:int64[] on:bool[] s:float32", "on2:bool[] s2:float32[3]", nil,
		node("Identity", "on", "on2"), clip("s", "s2"))
	turn.Inputs[2] = onnx.ValueInfo{Name: "s"}
	deep := node("If", "yes", "d", body("then_branch", graph("", "r:float32", nil, clip("h", "r"))),
		body("else_branch", graph("", "q:float32", nil, node("Neg", "h", "m"), pad("m", "q"))))
	for name, nodes := range map[string][]*onnx.Node{
		"made within": {node("If", "no", "y",
			body("then_branch", graph("", "a:float32", nil, node("Neg", "x", "b"), clip("b", "a"))),
			body("else_branch", graph("", "p:float32", nil, node("Abs", "x", "c"), pad("c", "p"))))},
		"two deep": {node("If", "no", "y", body("then_branch", graph("", "a:float32", nil, pad("x", "a"))),
			body("else_branch", graph("", "d:float32", nil, node("Neg", "x", "h"), deep)))},
		"carried": {node("Loop", "turns yes x", "y", body("body", turn))},
	} {
		t.Run(name, func(t *testing.T) {
			m := onnx.NewModel(graph("x:float32[3] yes:bool[] no:bool[]", "y:float32",
				map[string]*onnx.Tensor{"turns": onnx.Scalar(int64(2))}, nodes...))
			m.Opsets[""] = 10
			upgraded(t, m, 17, map[string]*onnx.Tensor{"x": onnx.Vector[float32](-8, 1, 9),
				"yes": onnx.Scalar(true), "no": onnx.Scalar(false)})
		})
	}
}

// TestUpgradeOfMany: memory grows with the graphs within nodes, not with their square.
func TestUpgradeOfMany(t *testing.T) {
	node, body, graph := modeltest.Node, modeltest.Body, modeltest.Graph
	allocated := func(ifs int) float64 {
		var nodes []*onnx.Node
		at := "x"
		for i := range ifs {
			out, a, b := fmt.Sprint("v", i), fmt.Sprint("a", i), fmt.Sprint("b", i)
			nodes = append(nodes, node("If", "yes", out,
				body("then_branch", graph("", a+":float32", nil, node("Abs", at, a))),
				body("else_branch", graph("", b+":float32", nil, node("Neg", at, b)))))
			at = out
		}
		m := onnx.NewModel(graph("x:float32[3] yes:bool[]", at+":float32", nil, nodes...))
		m.Opsets[""] = 10
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		must.Do(t, pass.Upgrade(m, 17))
		runtime.ReadMemStats(&after)
		return float64(after.TotalAlloc - before.TotalAlloc)
	}
	if few, many := allocated(100), allocated(800); many > 12*few {
		t.Errorf("100 nodes take %v bytes, 800 %v", few, many)
	}
}

// TestNoGraph: a model without a graph is an error.
func TestNoGraph(t *testing.T) {
	for name, do := range map[string]func(m *onnx.Model) error{
		"inline": pass.Inline, "simplify": pass.Simplify, "to float32": pass.ToFloat32,
		"upgrade": func(m *onnx.Model) error { return pass.Upgrade(m, 17) },
	} {
		for _, m := range []*onnx.Model{nil, {}} {
			must.Fail(do(m))(t, "there is no graph", name)
		}
	}
}
