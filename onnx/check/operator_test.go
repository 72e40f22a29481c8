package check_test

import (
	"strings"
	"testing"

	"fmp/onnx"
	"fmp/onnx/check"
)

// Broken models: each is sound but for one node, and the error must say what is wrong with it.
func TestModelHoldsNodesAgainstTheirOperators(t *testing.T) {
	t.Parallel()
	node := func(op, in, out string, attrs ...onnx.Attr) *onnx.Node {
		n := &onnx.Node{Name: "node", Op: op, Attrs: attrs}
		split := func(s string) (names []string) {
			if s == "" {
				return nil
			}
			for _, name := range strings.Split(s, " ") {
				names = append(names, strings.TrimPrefix(name, "-"))
			}
			return names
		}
		n.Inputs, n.Outputs = split(in), split(out)
		return n
	}
	microsoft := func(op string) *onnx.Node {
		n := node(op, "x w", "y")
		n.Domain = "com.microsoft"
		return n
	}
	for _, tc := range []struct {
		name  string
		opset int64
		node  *onnx.Node
		want  string // "" where nothing is wrong
	}{
		{"sound", 17, node("Conv", "x w", "y", onnx.IntsAttr("strides", 1, 1)), ""},
		{"an optional input", 17, node("Conv", "x w b", "y"), ""},
		{"an optional input left out", 17, node("Clip", "x - b0", "y"), ""},
		{"trailing inputs left out", 17, node("Relu", "x - -", "y"), ""},
		{"variadic", 17, node("Concat", "x x x x x", "y", onnx.IntAttr("axis", 0)), ""},
		{"an attribute of tools", 17, node("Relu", "x", "y", onnx.IntAttr("__note", 0)), ""},

		{"a misspelt operator", 17, node("Covn", "x w", "y"),
			`node "node" (Covn): there is no operator Covn; did you mean Conv?`},
		{"an operator like none", 17, node("Frobnicate", "x", "y"), "there is no operator Frobnicate"},
		{"too many inputs", 17, node("Relu", "x x x", "y"), "it has 3 inputs and takes 1 (X)"},
		{"too few inputs", 17, node("Conv", "x", "y"), "it has 1 inputs and takes 2 to 3 (X, W, B)"},
		{"a required input left out", 17, node("Conv", "- w", "y"),
			"its input 0 (X) is left out, which is not optional"},
		{"nothing to join", 17, node("Concat", "", "y", onnx.IntAttr("axis", 0)),
			"it has 0 inputs and takes at least 1 (inputs...)"},
		{"too many outputs", 17, node("Relu", "x", "y z"), "it has 2 outputs and takes 1 (Y)"},
		{"a misspelt attribute", 17, node("LeakyRelu", "x", "y", onnx.FloatAttr("alhpa", 0.1)),
			`the operator has no attribute "alhpa"; did you mean alpha?`},
		{"an attribute of no kind of its", 17, node("Relu", "x", "y", onnx.FloatAttr("slope", 0.1)),
			`no attribute "slope"; in operator set 14 it has none`},
		{"an attribute of a later version", 11,
			node("AveragePool", "x", "y", onnx.IntsAttr("kernel_shape", 2, 2),
				onnx.IntsAttr("dilations", 2, 2)),
			`no attribute "dilations"; in operator set 11 its attributes are auto_pad, ceil_mode`},
		{"an attribute of another kind", 17, node("Softmax", "x", "y", onnx.FloatAttr("axis", 1)),
			`the attribute "axis" is a float where an integer is expected`},
		{"a required attribute", 17, node("Concat", "x x", "y"),
			`the attribute "axis" (an integer) is missing`},
		{"an element type", 17, node("Sqrt", "n", "y"), "input 0 (X) is of int64; allowed are"},
		{"two element types", 17, node("Add", "x n", "y"),
			"input 1 (B) is of int64 and input 0 of float32"},
		{"an operator that came later", 13, node("LayerNormalization", "x w", "y"),
			"LayerNormalization is an operator from operator set 17 on, and the model imports 13"},
		{"an operator that went", 17, node("Upsample", "x s", "y"),
			"operator set 10 took the operator Upsample out"},

		{"an operator of the ONNX Runtime", 17, microsoft("FusedConv"), ""},
		{"a misspelt one", 17, microsoft("FusedCnov"),
			"the operator com.microsoft.FusedCnov is not known here; did you mean FusedConv?; " +
				"the ONNX Runtime"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			value := func(name string, d onnx.DType, dims ...any) onnx.ValueInfo {
				return onnx.ValueInfo{Name: name, DType: d, Shape: onnx.Shape(dims...)}
			}
			m := onnx.NewModel(&onnx.Graph{Name: "g", Nodes: []*onnx.Node{tc.node},
				Inputs:  []onnx.ValueInfo{value("x", onnx.Float32, 1, 2, 4, 4), value("n", onnx.Int64, 4)},
				Outputs: []onnx.ValueInfo{value("y", onnx.Float32)},
				Initializers: map[string]*onnx.Tensor{"w": onnx.ZerosF32(2, 2, 1, 1),
					"b": onnx.ZerosF32(2), "b0": onnx.Scalar[float32](1), "s": onnx.ZerosF32(4)},
			})
			m.Opsets = map[string]int64{"": tc.opset, "com.microsoft": 1}
			err := check.Model(m)
			switch {
			case tc.want == "" && err != nil:
				t.Error(err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("error %v does not say %q", err, tc.want)
			}
		})
	}
}

// Element types follow from one node to the next, into subgraphs and from what a file says of
// values.
func TestModelFollowsElementTypes(t *testing.T) {
	t.Parallel()
	m := onnx.NewModel(&onnx.Graph{Name: "g", Initializers: map[string]*onnx.Tensor{},
		Inputs:  []onnx.ValueInfo{{Name: "x", DType: onnx.Float32, Shape: onnx.Shape(3)}},
		Outputs: []onnx.ValueInfo{{Name: "y", DType: onnx.Float32, Shape: onnx.Shape(3)}},
		Values:  []onnx.ValueInfo{{Name: "c", DType: onnx.Int64}},
		Nodes: []*onnx.Node{
			{Name: "compare", Op: "Equal", Inputs: []string{"x", "x"}, Outputs: []string{"b"}},
			{Name: "last", Op: "Sin", Inputs: []string{"b"}, Outputs: []string{"y"}},
		}})
	if err := check.Model(m); err == nil ||
		!strings.Contains(err.Error(), "input 0 (input) is of bool; allowed are") {
		t.Errorf("error is %v", err)
	}
	m.Graph.Nodes[0] = &onnx.Node{Name: "cast", Op: "Cast", Inputs: []string{"x"},
		Outputs: []string{"c"},
		Attrs:   []onnx.Attr{onnx.IntAttr("to", int(onnx.Int64))}}
	m.Graph.Nodes[1].Inputs[0] = "c"
	if err := check.Model(m); err == nil || !strings.Contains(err.Error(), "is of int64") {
		t.Errorf("error is %v", err)
	}
	branch := func(op string) *onnx.Graph {
		return &onnx.Graph{Name: op, Initializers: map[string]*onnx.Tensor{},
			Outputs: []onnx.ValueInfo{{Name: "r" + op, DType: onnx.Float32}},
			Nodes:   []*onnx.Node{{Name: op, Op: op, Inputs: []string{"x"}, Outputs: []string{"r" + op}}}}
	}
	m.Graph.Inputs = append(m.Graph.Inputs,
		onnx.ValueInfo{Name: "if", DType: onnx.Bool, Shape: onnx.Shape()})
	m.Graph.Nodes = []*onnx.Node{{Name: "if", Op: "If", Inputs: []string{"if"}, Outputs: []string{"y"},
		Attrs: []onnx.Attr{
			{Name: "then_branch", Kind: onnx.AttrGraph, Graph: branch("Relu")},
			{Name: "else_branch", Kind: onnx.AttrGraph, Graph: branch("Not")},
		}}}
	if err := check.Model(m); err == nil ||
		!strings.Contains(err.Error(),
			`node "Not" (Not): input 0 (X) is of float32; allowed are bool`) {
		t.Errorf("error is %v", err)
	}
}
