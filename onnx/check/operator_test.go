package check_test

import (
	"errors"
	"math"
	"strings"
	"testing"

	"fmp/onnx"
	"fmp/onnx/check"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
)

// Broken models: each is sound but for one node, and the error must say what is wrong with it.
func TestModelHoldsNodesAgainstTheirOperators(t *testing.T) {
	t.Parallel()
	node := modeltest.Node
	imputer := node("Imputer", "x", "y", onnx.FloatsAttr("imputed_value_floats", 1),
		onnx.FloatAttr("replaced_value_float", float32(math.NaN())))
	imputer.Domain = "ai.onnx.ml"
	microsoft := func(op string) *onnx.Node {
		n := node(op, "x w", "y")
		n.Domain = "com.microsoft"
		return n
	}
	linear := func(in, rule string) *onnx.Node {
		n := node("LinearAttention", in, "y state", onnx.IntAttr("q_num_heads", 1), onnx.IntAttr("kv_num_heads", 1))
		if rule != "" {
			n.Attrs = append(n.Attrs, onnx.StrAttr("update_rule", rule))
		}
		return n
	}
	for _, tc := range []struct {
		name  string
		opset int64
		node  *onnx.Node
		want  string // "" where nothing is wrong
	}{
		{"sound", 17, node("Conv", "x w", "y", onnx.IntsAttr("strides", 1, 1)), ""},
		{"no number", 17, node("LeakyRelu", "x", "y", onnx.FloatAttr("alpha", float32(math.NaN()))),
			"not a number"},
		{"missing values", 17, imputer, ""},
		{"an optional input", 17, node("Conv", "x w b", "y"), ""},
		{"an optional input left out", 17, node("Clip", "x _ b0", "y"), ""},
		{"trailing inputs left out", 17, node("Relu", "x _ _", "y"), ""},
		{"variadic", 17, node("Concat", "x x x x x", "y", onnx.IntAttr("axis", 0)), ""},
		{"an attribute of tools", 17, node("Relu", "x", "y", onnx.IntAttr("__note", 0)), ""},

		{"a misspelt operator", 17, node("Covn", "x w", "y"),
			`node "node" (Covn): there is no operator Covn; did you mean Conv?`},
		{"a norm before its set", 16, node("LayerNormalization", "x s", "y"),
			"operator set 16 of the standard does not have LayerNormalization; the ONNX Runtime may run it"},
		{"a norm of the runtime", 17, node("SimplifiedLayerNormalization", "x s", "y"), "may run it"},
		{"a norm before its groups", 17, node("GroupNormalization", "x s s", "y"), "from operator set 21 on"},
		{"a norm withdrawn", 18, node("GroupNormalization", "x s s", "y"),
			"may run it (engine ort), or export the model with set 21"},
		{"an operator like none", 17, node("Frobnicate", "x", "y"), "there is no operator Frobnicate"},
		{"too many inputs", 17, node("Relu", "x x x", "y"), "it has 3 inputs and takes 1 (X)"},
		{"too few inputs", 17, node("Conv", "x", "y"), "it has 1 inputs and takes 2 to 3 (X, W, B)"},
		{"a required input left out", 17, node("Conv", "_ w", "y"),
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
		{"an operator that came later", 13, node("Gelu", "x", "y"),
			"Gelu is an operator from operator set 20 on, and the model imports 13"},
		{"an operator that went", 17, node("Upsample", "x s", "y"),
			"operator set 10 took the operator Upsample out"},

		{"a word of a later version", 18, node("Pad", "x n", "y", onnx.StrAttr("mode", "wrap")), ""},
		{"no word", 18, node("MaxPool", "x", "y", onnx.StrAttr("auto_pad", ""), onnx.IntsAttr("kernel_shape", 2, 2)), ""},
		{"a word of no version", 18, node("Pad", "x n", "y", onnx.StrAttr("mode", "mirror")),
			`mode is "mirror"; allowed are constant, reflect, edge, wrap`},
		{"a word of another operator", 18, node("DepthToSpace", "x", "y", onnx.StrAttr("mode", "constant"),
			onnx.IntAttr("blocksize", 1)), `mode is "constant"; allowed are DCR, CRD`},
		{"a part without an output", 18, node("Split", "x", "y z", onnx.IntAttr("num_outputs", 3)),
			"num_outputs is 3 with 2 outputs"},

		{"a rule without its input", 27, linear("x x x _ x", "gated_delta"), "update_rule is gated_delta, which takes"},
		{"a rule by default", 27, linear("x x x _ _ x", ""), "update_rule is gated_delta"},
		{"an input that no rule reads", 27, linear("x x x _ x x", "gated"), "update_rule is gated, which"},
		{"a rule with its inputs", 27, linear("x x x _ x x", "gated_delta"), ""},

		{"an operator of the ONNX Runtime", 17, microsoft("FusedConv"), ""},
		{"a misspelt one", 17, microsoft("FusedCnov"),
			"the operator com.microsoft.FusedCnov is not known here; did you mean FusedConv?; " +
				"the ONNX Runtime may run it"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.node.Name = "node"
			m := onnx.NewModel(modeltest.Graph("x:float32[1,2,4,4] n:int64[4]", "y:float32",
				map[string]*onnx.Tensor{"w": onnx.ZerosF32(2, 2, 1, 1), "b": onnx.ZerosF32(2),
					"b0": onnx.Scalar[float32](1), "s": onnx.ZerosF32(4)}, tc.node))
			m.Opsets = map[string]int64{"": tc.opset, "com.microsoft": 1, "ai.onnx.ml": 3}
			err := check.Model(m)
			if tc.want == "" {
				must.Do(t, err)
			} else {
				must.Fail(err)(t, tc.want)
			}
			if errors.Is(err, onnx.ErrUnknown) != strings.Contains(tc.want, "may run it") {
				t.Errorf("%v: is the model at fault, or is it unknown here?", err)
			}
		})
	}
}

// Element types follow from one node to the next, into subgraphs and from what a file says of
// values.
func TestModelFollowsElementTypes(t *testing.T) {
	t.Parallel()
	m := onnx.NewModel(modeltest.Graph("x:float32[3]", "y:float32[3]", nil,
		modeltest.Node("Equal", "x x", "b"), modeltest.Node("Sin", "b", "y")))
	m.Graph.Values = modeltest.Values("c:int64")
	must.Fail(check.Model(m))(t, "input 0 (input) is of bool; allowed are")
	m.Graph.Nodes[0] = modeltest.Node("Cast", "x", "c", onnx.IntAttr("to", int(onnx.Int64)))
	m.Graph.Nodes[1].Inputs[0] = "c"
	must.Fail(check.Model(m))(t, "is of int64")
	branch := func(name, op string) onnx.Attr {
		return modeltest.Body(name, modeltest.Graph("", "r"+op+":float32", nil, modeltest.Node(op, "x", "r"+op)))
	}
	m.Graph.Inputs = append(m.Graph.Inputs, modeltest.Values("if:bool[]")...)
	m.Graph.Nodes = []*onnx.Node{modeltest.Node("If", "if", "y",
		branch("then_branch", "Relu"), branch("else_branch", "Not"))}
	must.Fail(check.Model(m))(t, `node "Not rNot" (Not): input 0 (X) is of float32; allowed are bool`)
}
