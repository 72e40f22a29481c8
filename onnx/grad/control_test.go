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
			var wrt []string
			for _, in := range m.Graph.Inputs {
				if in.DType.IsFloat() {
					wrt = append(wrt, in.Name)
				}
			}
			checkGradient(t, eng, m, c.Feeds, wrt)
			checkForward(t, eng, m, c.Feeds, wrt)
			checkCurvature(t, eng, m, c.Feeds, wrt)
			if err := Supports(m); err != nil {
				t.Errorf("Supports says %v", err)
			}
		})
	}
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
