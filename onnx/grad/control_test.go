package grad

import (
	"maps"
	"strings"
	"testing"

	"fmp/onnx"
	"fmp/onnx/engine/ort/orttest"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
	"fmp/onnx/shape"
)

// Graphs within nodes, and recurrent layers, against central differences on the ONNX Runtime.
func TestGradientsThroughGraphsWithin(t *testing.T) {
	eng := orttest.New(t)
	cases := modeltest.Control()
	maps.Copy(cases, modeltest.Recurrent())
	for name, c := range cases {
		if strings.Contains(name, "clipped") || strings.Contains(name, "other activations") ||
			strings.Contains(name, "scaled") {
			continue // these have kinks; package differential looks for them
		}
		t.Run(name, func(t *testing.T) {
			m := c.Model()
			must.Do(t, shape.Infer(m))
			wrt := modeltest.Floats(m)
			checkGradient(t, eng, m, c.Feeds, wrt)
			checkForward(t, eng, m, c.Feeds, wrt)
			checkCurvature(t, eng, m, c.Feeds, wrt)
			if err := Supports(m); err != nil {
				t.Errorf("Supports says %v", err)
			}
		})
	}
}

// grown is a Loop whose nodes make the next value of one of an open size.
func grown(nodes ...*onnx.Node) *onnx.Graph {
	node := modeltest.Node
	return modeltest.Graph("x:float32[N] n:int64[] w:float32[K]", "y:float32",
		map[string]*onnx.Tensor{"k": onnx.ZerosF32(1, 1, 2), "a": onnx.Vector[int64](0, 1)},
		node("Loop", "n _ x", "y", modeltest.Body("body", modeltest.Graph("i:int64[] on:bool[] v:float32",
			"on2:bool[] v2:float32", nil, append(nodes, node("Identity", "on", "on2"))...))))
}

// What cannot be differentiated is refused by name, also where it is within a graph.
func TestRefusalsWithinGraphs(t *testing.T) {
	node, body, graph := modeltest.Node, modeltest.Body, modeltest.Graph
	for name, c := range map[string]struct {
		g    *onnx.Graph
		want []string
	}{
		"an operator without a rule": {graph("x:float32[2,5,2,2] on:bool[]", "y:float32[]", nil,
			node("If", "on", "y", body("then_branch",
				graph("", "a:float32[]", nil, node("MaxRoiPool", "x x", "a"))),
				body("else_branch", graph("", "b:float32[]", nil,
					node("ReduceSum", "x", "b", onnx.IntAttr("keepdims", 0)))))),
			[]string{"If", "then_branch", "MaxRoiPool"}},
		"a value that grows": {graph("x:float32[2] n:int64[]", "y:float32", nil,
			node("Loop", "n _ x", "y",
				body("body", graph("i:int64[] on:bool[] v:float32", "on2:bool[] v2:float32", nil,
					node("Identity", "on", "on2"), node("Concat", "v v", "v2", onnx.IntAttr("axis", 0)))))),
			[]string{"Loop", `"v"`, "from size 2 to 4"}},
		"a value of open size that doubles": {grown(node("Concat", "v v", "v2", onnx.IntAttr("axis", 0))),
			[]string{"Loop", `"v"`, "from size N to 2*N"}},
		"a value of open size that grows": {grown(node("Concat", "v w", "v2", onnx.IntAttr("axis", 0))),
			[]string{"Loop", `"v"`, "from size N to K + N"}},
		"a value of open size that shrinks": {grown(node("Unsqueeze", "v a", "v3"), node("Conv", "v3 k", "v4"),
			node("Squeeze", "v4 a", "v2")), []string{"Loop", `"v"`, "from size N to N - 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := onnx.NewModel(c.g)
			_, built := Build(m, Options{WRT: []string{"x"}})
			for _, err := range []error{built, Supports(m)} {
				for _, w := range c.want {
					must.Fail(err)(t, w)
				}
			}
		})
	}
}

// TestChanges: a size changes where all that its turn adds has one sign, and may stay where terms of
// both signs can make up for each other.
func TestChanges(t *testing.T) {
	for _, c := range []struct {
		from, to string
		want     bool
	}{{"N", "N", false}, {"2*N", "4*N", true}, {"N + 2", "N + 4", true}, {"N + 2", "N", true},
		{"N + 2", "2*N + 4", true}, {"K + N", "N", true}, {"K*N", "2*K*N", true}, {"N - 2", "N", true},
		{"N - K", "2*N", true}, {"N - K", "2*N - 2*K", false}, {"N", "M", false}, {"N", "K*N", false},
		{"N", "K + 2", false}, {"N - 2", "K - 2", false}, {"N", "N + floor(N/2)", false}, {"N", "", false}} {
		if got := changes(onnx.Symbolic(c.from), onnx.Symbolic(c.to)); got != c.want {
			t.Errorf("from %q to %q: %v", c.from, c.to, got)
		}
	}
}

// TestControlByFloats: what a file gives in place of a condition, or leaves out, is no fault. No
// gradient goes through a condition.
func TestControlByFloats(t *testing.T) {
	node, body, graph := modeltest.Node, modeltest.Body, modeltest.Graph
	one := func(name string) onnx.Attr {
		return body(name, graph("", "a:float32[]", map[string]*onnx.Tensor{"k": onnx.Scalar[float32](1)},
			node("Identity", "k", "a")))
	}
	for name, c := range map[string]struct {
		n    *onnx.Node
		want string
	}{
		"If": {node("If", "x", "y", one("then_branch"), one("else_branch")), ""},
		"Loop": {node("Loop", "_ x k", "n y", body("body", graph("i:int64[] on:bool[] v:int64[]",
			"on2:bool[] v2:int64[] u:float32[]", map[string]*onnx.Tensor{"c": onnx.Scalar[float32](1)},
			node("Identity", "on", "on2"), node("Identity", "v", "v2"), node("Identity", "c", "u")))), ""},
		"LinearAttention": {node("LinearAttention", "x x", "y", onnx.IntAttr("q_num_heads", 1),
			onnx.IntAttr("kv_num_heads", 1)), "2 inputs"},
		"AffineGrid": {node("AffineGrid", "x", "y"), "1 inputs"},
		"GRU":        {node("GRU", "x", "y", onnx.IntAttr("hidden_size", 2)), "1 inputs"},
	} {
		m := onnx.NewModel(graph("x:float32[2,3,4]", "y:float32",
			map[string]*onnx.Tensor{"k": onnx.Scalar[int64](1)}, c.n))
		m.Opsets[""] = onnx.MaxOpset
		_, built := Build(m, Options{WRT: []string{"x"}})
		for _, err := range []error{built, Supports(m)} {
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%s: the error is %v where %q is expected", name, err, c.want)
			}
		}
	}
}
