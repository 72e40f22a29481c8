package shape_test

import (
	"strings"
	"testing"

	"fmp/onnx"
	"fmp/onnx/internal/modeltest"
	"fmp/onnx/must"
	"fmp/onnx/shape"
)

// TestContradicted holds what a file states against what follows: in the graph, in both branches of an If, also
// one that is never taken, and in a loop's last turn alone.
func TestContradicted(t *testing.T) {
	t.Parallel()
	node := modeltest.Node
	cast := onnx.IntAttr("to", int(onnx.Int64))
	branch := func(name, typ string) onnx.Attr {
		return modeltest.Body(name, modeltest.Graph("", name+":"+typ, nil, node("Neg", "x", name)))
	}
	choose := []*onnx.Node{node("If", "yes", "y", branch("then_branch", "float32[4,3]"),
		branch("else_branch", "int64[4,3]"))}
	body := modeltest.Graph("i:int64[] c:bool[] s:float32[4,3]", "d:bool s2:float32[8,3]", nil,
		node("Identity", "c", "d"), node("Concat", "s s", "s2", onnx.IntAttr("axis", 0)))
	yes := map[string]*onnx.Tensor{"yes": onnx.Scalar(true)}
	for name, c := range map[string]struct {
		output, values string
		constants      map[string]*onnx.Tensor
		nodes          []*onnx.Node
		want           string // what is found, "" where nothing is
	}{
		"the same":      {"y:float32[n,3]", "", nil, []*onnx.Node{node("Neg", "x", "y")}, ""},
		"no shape":      {"y:float32", "", nil, []*onnx.Node{node("Neg", "x", "y")}, ""},
		"a fixed batch": {"y:float32[1,3]", "", nil, []*onnx.Node{node("Neg", "open", "y")}, ""},
		"a type":        {"y:float32[4,3]", "", nil, []*onnx.Node{node("Cast", "x", "y", cast)}, `"y" is float32, and int64 follows`},
		"a size":        {"y:float32[5,3]", "", nil, []*onnx.Node{node("Neg", "x", "y")}, `"y" is of shape [5 3], and [4 3] follows`},
		"a rank":        {"y:float32[4,3,1]", "", nil, []*onnx.Node{node("Neg", "x", "y")}, `"y" is of shape [4 3 1]`},
		"within":        {"y:float32", "h:float32[9,9]", nil, []*onnx.Node{node("Neg", "x", "h"), node("Neg", "h", "y")}, `"h" is of shape [9 9]`},
		"below an operand's": {"y:float32", "h:float32[3]", nil, []*onnx.Node{node("Reshape", "open sizes", "r"),
			node("Mul", "r x", "h"), node("Neg", "h", "y")}, `"h" is of shape [3], and a rank of 2 or more follows`},
		"as an operand's": {"y:float32", "h:float32[4,3]", nil, []*onnx.Node{node("Reshape", "open sizes", "r"),
			node("Mul", "r x", "h"), node("Neg", "h", "y")}, ""},
		"a branch":        {"y:float32", "", nil, choose, `"else_branch" is int64, and float32 follows`},
		"one never taken": {"y:float32", "", yes, choose, `"else_branch" is int64, and float32 follows`},
		"a loop": {"y:float32", "", nil,
			[]*onnx.Node{node("Loop", "trips _ x", "y", modeltest.Body("body", body))}, ""},
	} {
		inputs := "x:float32[4,3] open:float32[n,3] trips:int64[] sizes:int64[k]"
		if c.constants == nil {
			inputs += " yes:bool[]"
		}
		m := onnx.NewModel(modeltest.Graph(inputs, c.output, c.constants, c.nodes...))
		if c.values != "" {
			m.Graph.Values = modeltest.Values(c.values)
		}
		found, err := shape.Contradicted(m)
		var got []string
		for _, s := range found {
			got = append(got, s.String())
		}
		if err != nil {
			got = append(got, err.Error())
		}
		if s := strings.Join(got, "; "); !strings.Contains(s, c.want) || c.want == "" && s != "" {
			t.Errorf("%s: %q, want %q", name, s, c.want)
		}
	}
	_, err := shape.Contradicted(nil)
	must.Fail(err)(t, "there is no graph")
}
